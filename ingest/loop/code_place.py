"""Where a function is defined, written as torch.profiler writes a Python call: ``train.py(12): Texts.__getitem__``.

Standard library only: it is part of the recorder.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

OF_PYTORCH = "torch.utils.data"  # its base classes have a __getitem__ that only raises


def code_place(function: Any) -> str | None:
    """Return file, line and name of a function's definition; None for one that has no Python code."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    if not hasattr(function, "__code__"):  # an object that is called
        function = getattr(type(function), "__call__", None)  # noqa: B004
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    return f"{_short(code.co_filename)}({code.co_firstlineno}): {getattr(function, '__qualname__', code.co_name)}"


def sample_place(dataset: Any) -> str | None:
    """Return the place of the code that makes a sample of ``dataset``. Wrappers of PyTorch, such as ``Subset``, are looked through."""
    while type(dataset).__module__.startswith(OF_PYTORCH) and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    methods = (getattr(type(dataset), name, None) for name in ("__getitems__", "__getitem__", "__iter__"))
    own = (method for method in methods if not str(getattr(method, "__module__", "")).startswith(OF_PYTORCH))
    return next((place for method in own if (place := code_place(method))), None)


def _short(path: str) -> str:
    """Return ``path`` below the longest entry of Python's path that holds it, as torch.profiler shortens it."""
    folders = [f"{Path(entry).resolve()}/" for entry in sys.path]
    longest = max((folder for folder in folders if path.startswith(folder)), key=len, default="")
    return path[len(longest) :]
