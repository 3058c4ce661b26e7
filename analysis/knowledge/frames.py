"""Python calls as torch.profiler writes them, and which calls are the user's own code.

User code is not part of PyTorch, of a library or of Python.
"""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from pathlib import Path

RECORDER = re.compile(r"^(.*/)?(sawtooth/)?ingest/(capture|loop)/")  # Matches the file of Sawtooth's own hook in the training.
# A line number that is not known is left out, as in train.py: main.
FRAME = re.compile(r"^(?P<file>[^<>]+?\.pyx?)(?:\((?P<line>\d+)\))?: (?P<function>.+)$")
MODULE = "<module>"  # Python gives this name to a script's code outside functions.
# PyTorch removes the part that is on Python's path, so a library's file begins with its package. A folder of that name deeper
# in a path is the user's own.
LIBRARY = re.compile(
    r"(^|/)(site-packages|dist-packages|lib/python[\d.]+)/|"
    r"^(torch|torchvision|torchaudio|triton|lightning|lightning_fabric|pytorch_lightning|"
    r"transformers|accelerate|deepspeed|apex|numpy|pandas|PIL|tqdm|datasets)/|^<frozen "
)
# Names of Python modules that are common names of scripts. A training does not call these modules.
SCRIPT_NAMES = ("profile", "code", "trace")


def without_line(name: str) -> str:
    """Return a frame without its line number: train.py(96): main becomes train.py: main.

    Other names are returned unchanged.
    """
    match = FRAME.match(name)
    return f"{match['file']}: {match['function']}" if match is not None else name


def readable_frame(name: str) -> str:
    """Return a frame in readable form: train.py(96): step becomes train.py:96 in step.

    An unknown line number is omitted. Names that are not frames are returned unchanged.
    """
    match = FRAME.match(name)
    if match is None:
        return name
    at = f"{match['file']}:{match['line']}" if match["line"] else match["file"]
    return at if match["function"] == MODULE else f"{at} in {match['function']}"


def is_user_line(name: str) -> bool:
    """Return whether a frame such as ``train.py(12): step`` is the user's own code."""
    match = FRAME.match(name)
    if match is None or LIBRARY.search(name) or RECORDER.match(name):
        return False
    top, _, below = match["file"].partition("/")
    if below:
        return top not in _standard_packages()
    module = top.removesuffix(".py")
    return module not in sys.stdlib_module_names or module in SCRIPT_NAMES


@cache
def _standard_packages() -> frozenset[str]:
    """Return the modules of Python's standard library that are folders.

    A file such as ``code/train.py`` is not part of the module ``code.py``.
    """
    library = Path(os.__file__).parent
    return frozenset(name for name in sys.stdlib_module_names if (library / name).is_dir())
