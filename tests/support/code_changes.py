"""All code that findings can suggest: the changes that modules of ``analysis.findings`` define."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from sawtooth.analysis import findings
from sawtooth.analysis.run.model import CodeChange


def code_changes() -> dict[str, CodeChange]:
    """Return all changes by module, framework and number, such as "casts PyTorch 1"."""
    changes: dict[str, CodeChange] = {}
    seen: set[int] = set()
    for module in pkgutil.walk_packages(findings.__path__, findings.__name__ + "."):
        count = 0
        for value in vars(importlib.import_module(module.name)).values():
            for change in _changes_in(value):
                if id(change) not in seen:
                    seen.add(id(change))
                    count += 1
                    changes[f"{module.name.rpartition('.')[2]} {change.framework} {count}"] = change
    return changes


def _changes_in(value: Any) -> Iterator[CodeChange]:
    if isinstance(value, CodeChange):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _changes_in(item)
    elif isinstance(value, dict):
        yield from _changes_in(list(value.values()))
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _changes_in(getattr(value, field.name))
