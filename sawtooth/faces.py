"""A package's face: the names that other packages may use, each loaded on first use (PEP 562)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy(package: str, face: Mapping[str, tuple[str, ...]]) -> tuple[Callable[[str], Any], list[str]]:
    """Return ``__getattr__`` and ``__all__`` of ``package``; ``face`` holds the names by the module that defines them.

    A face imports nothing by itself: the sampler must not load duckdb, nor ``--help`` pandas.
    """
    homes = {name: module for module, names in face.items() for name in names}

    def get(name: str) -> Any:
        if name in homes:
            return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, sorted(homes)
