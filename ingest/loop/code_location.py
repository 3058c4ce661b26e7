"""Location of a function's definition in torch.profiler's format: ``train.py(12): Texts.__getitem__``.

Standard library only, because the recorder imports this module.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

# The __getitem__ of PyTorch's base classes only raises, so it is not the user's code.
PYTORCH_DATASETS = "torch.utils.data"
MAX_LENGTH = 300  # Characters of a location that are stored.


def code_location(function: Any) -> str | None:
    """Return file, line and name of a function's definition; None without Python code."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    if not hasattr(function, "__code__"):  # The function is an object, and its class defines __call__.
        function = getattr(type(function), "__call__", None)  # noqa: B004
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    return f"{_relative_path(code.co_filename)}({code.co_firstlineno}): {getattr(function, '__qualname__', code.co_name)}"


def sample_location(dataset: Any) -> str | None:
    """Return the location of the code that makes a sample of ``dataset``; None without Python code.

    PyTorch's wrappers, such as ``Subset``, are replaced by the dataset inside them.
    """
    while type(dataset).__module__.startswith(PYTORCH_DATASETS) and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    methods = (getattr(type(dataset), name, None) for name in ("__getitems__", "__getitem__", "__iter__"))
    user_methods = (method for method in methods if not str(getattr(method, "__module__", "")).startswith(PYTORCH_DATASETS))
    return next((location for method in user_methods if (location := code_location(method))), None)


def _relative_path(path: str) -> str:
    """Return ``path`` relative to the longest matching entry of ``sys.path``, as torch.profiler does."""
    folders = [f"{Path(entry).resolve()}/" for entry in sys.path]
    longest = max((folder for folder in folders if path.startswith(folder)), key=len, default="")
    return path[len(longest) :]
