"""How torch.profiler writes a Python call, and which calls are the user's own code: neither PyTorch's, nor a library's, nor Python's."""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from pathlib import Path

RECORDER = re.compile(r"^(.*/)?(sawtooth/)?ingest/(capture|loop)/")  # Sawtooth's own hook in the training
# A line that nobody knows is left out: train.py: main
FRAME = re.compile(r"^(?P<file>[^<>]+?\.pyx?)(?:\((?P<line>\d+)\))?: (?P<function>.+)$")
MODULE = "<module>"  # what a script does outside functions
# PyTorch leaves out what is on Python's path: a library's file begins with its package. Deeper a folder of that name is the user's own
LIBRARY = re.compile(
    r"(^|/)(site-packages|dist-packages|lib/python[\d.]+)/|"
    r"^(torch|torchvision|torchaudio|triton|lightning|lightning_fabric|pytorch_lightning|"
    r"transformers|accelerate|deepspeed|apex|numpy|pandas|PIL|tqdm|datasets)/|^<frozen "
)
# Modules of Python that a training does not call, and names that people give their scripts
OWN_SCRIPTS = ("profile", "code", "trace")


def without_line(name: str) -> str:
    """Return a frame without its line, and whatever else as it is: train.py(96): main is train.py: main."""
    match = FRAME.match(name)
    return f"{match['file']}: {match['function']}" if match is not None else name


def spoken(name: str) -> str:
    """Return a frame as people say it, train.py:96 in step, without a line that nobody knows, and whatever else as it is."""
    match = FRAME.match(name)
    if match is None:
        return name
    at = f"{match['file']}:{match['line']}" if match["line"] else match["file"]
    return at if match["function"] == MODULE else f"{at} in {match['function']}"


def is_user_line(name: str) -> bool:
    """Tell whether a frame such as ``train.py(12): step`` is the user's own code."""
    match = FRAME.match(name)
    if match is None or LIBRARY.search(name) or RECORDER.match(name):
        return False
    top, _, below = match["file"].partition("/")
    if below:
        return top not in _standard_packages()
    module = top.removesuffix(".py")
    return module not in sys.stdlib_module_names or module in OWN_SCRIPTS


@cache
def _standard_packages() -> frozenset[str]:
    """Return the modules of Python's standard library that are folders: ``code/train.py`` is none of ``code.py``."""
    library = Path(os.__file__).parent
    return frozenset(name for name in sys.stdlib_module_names if (library / name).is_dir())
