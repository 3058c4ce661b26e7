"""Choice of the Python that runs a script or module for `sawtooth run`.

Standard library only.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from sawtooth.ingest import children
from sawtooth.ingest.loop.command import PYTHON

IGNORES_RECORDER = "-{options} makes {python} ignore what `sawtooth run` adds to it, so no step is marked and no profile is taken. Leave the option out."
NOT_LOADED = (
    "No Python of this command loaded the recorder, so no step was marked. Python's options -I, -E and -S prevent this, and so does a PYTHONPATH "
    "set by the command. Leave them out, or record in the training's code (from sawtooth.capture import profile)."
)
# Options with which Python does not load the recorder: isolated (I), no environment variables (E), no module site (S).
IGNORING_OPTIONS = "IES"
REQUIRED_MODULE = "torch"  # A training always needs this module.
IMPORT_CHECK_SECONDS = 20.0  # A longer check is ended. Python starts in 0.1 s, or in some seconds on a shared file system.
# Exit code 1 means that a module is missing, or that this Python is too old for importlib.util.
_IMPORT_CHECK = (
    "import importlib.util, sys; sys.exit(int(any(importlib.util.find_spec(name) is None for name in sys.argv[1:])))"
)
OTHER_PYTHON = "{program} is run with {python}, because {first}, the first Python on the PATH, lacks {lacks}."


def command_with_python(command: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the command to start, and a message if an unexpected Python runs the command (else None).

    A script or module is run by the first Python that has PyTorch and the script's other imports. This process's Python is tried first,
    then the Pythons on the PATH. If none has all imports, PyTorch is enough. If none has PyTorch, the first Python on the PATH is used.
    """
    if not (command[0].endswith(".py") or command[0] == "-m"):
        return list(command), None
    needed = list(dict.fromkeys((REQUIRED_MODULE, *_top_level_imports(Path(command[0])))))
    own_folder = Path(sys.executable).parent
    on_path = list(_pythons_on_path())
    first_on_path = next(iter(on_path), sys.executable)
    other_pythons = [python for python in on_path if Path(python).parent != own_folder]
    suitable = (
        python for modules in (needed, needed[:1]) for python in (sys.executable, *other_pythons) if can_import(python, modules)
    )
    python = next(suitable, first_on_path)
    if python in (first_on_path, sys.executable):
        return [python, *command], None
    lacks = " and ".join(name for name in needed if not can_import(first_on_path, [name]))
    program = " ".join(command[:2] if command[0] == "-m" else command[:1])
    return [python, *command], OTHER_PYTHON.format(program=program, python=python, first=first_on_path, lacks=lacks)


def can_import(python: str, modules: Sequence[str]) -> bool | None:
    """Return whether ``python`` can import ``modules``; None if it cannot be run."""
    try:
        variables = children.original_environment()
        words = [python, "-c", _IMPORT_CHECK, *modules]
        check = subprocess.run(words, env=variables, timeout=IMPORT_CHECK_SECONDS, check=False, capture_output=True)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return {0: True, 1: False}.get(check.returncode)


def option_warnings(words: Sequence[str]) -> list[str]:
    """Return a sentence about a Python option that keeps the recorder from loading; [] without one."""
    for index, word in enumerate(words):
        if PYTHON.fullmatch(Path(word).name):
            ignoring = [option for option in _options(words[index + 1 :]) if option in IGNORING_OPTIONS]
            return [IGNORES_RECORDER.format(options=ignoring[0], python=Path(word).name)] if ignoring else []
    return []


def _options(words: Sequence[str]) -> Iterator[str]:
    """Yield the one-letter options of a Python that is started with ``words``, up to its program."""
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word in ("-", "--"):
            return
        if word.startswith("--"):
            if word == "--check-hash-based-pycs":
                next(rest, None)
            continue
        for position, letter in enumerate(word[1:], start=2):
            if letter in "cm":
                return
            yield letter
            if letter in "WX":  # The option's value is the rest of the word, or the next word.
                if position == len(word):
                    next(rest, None)
                break


def _pythons_on_path() -> Iterator[str]:
    """Yield the Pythons on the PATH, one per folder. `python` in a shell starts the first one."""
    for folder in os.get_exec_path():
        python = shutil.which("python", path=folder) or shutil.which("python3", path=folder)
        if python is not None:
            yield python


def _top_level_imports(script: Path) -> list[str]:
    """Return the modules that ``script`` imports at its top level, except those in its own folder.

    The list is empty if the file cannot be read or parsed as a script.
    """
    try:
        body = ast.parse(script.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return []
    names = [alias.name for line in body if isinstance(line, ast.Import) for alias in line.names]
    names += [line.module for line in body if isinstance(line, ast.ImportFrom) and line.module and not line.level]
    packages = dict.fromkeys(name.partition(".")[0] for name in names)
    return [name for name in packages if not any((script.parent / file).exists() for file in (name, f"{name}.py"))]
