"""Python processes of ours: each finds the ``sawtooth`` that started it, whatever lies in the folder it runs in."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from sawtooth.place import IMPORT_ROOT

ADDED = "SAWTOOTH_PATH_ADDED"  # set where PYTHONPATH was changed, for a child that starts somebody else's program


def command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs ``module`` (its full name). ``-P`` keeps the current folder off the child's path."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return ``base`` (this process's environment where None) with our folder first on ``PYTHONPATH``."""
    variables = dict(os.environ if base is None else base)
    if variables.get(ADDED) != "1":
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, (str(IMPORT_ROOT), variables.get("PYTHONPATH"))))
        variables[ADDED] = "1"
    return variables


def environment_before(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Undo ``environment``: what a training command started by one of our children must see, or it might find our folders for its own."""
    variables = dict(os.environ if base is None else base)
    if variables.pop(ADDED, None) == "1":
        rest = variables.pop("PYTHONPATH", "").split(os.pathsep)[1:]
        if rest:
            variables["PYTHONPATH"] = os.pathsep.join(rest)
    return variables
