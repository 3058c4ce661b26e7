"""Start our own Python processes so that each imports the ``sawtooth`` that started it.

Files in the working folder do not change that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from sawtooth.installation import IMPORT_ROOT

ADDED = "SAWTOOTH_PATH_ADDED"  # set if PYTHONPATH was changed, for a child that starts another program
SECRETS = ("SAWTOOTH_TOKEN", "SAWTOOTH_PUSH_TOKEN")
# Environment variables that a server's children may get: paths, language, time zone, libraries and GPUs. A service's
# environment also has all kinds of credentials.
HANDED_DOWN = (
    "APPDATA", "COMSPEC", "HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LOCALAPPDATA", "LOGNAME", "PATH", "PATHEXT", "SYSTEMROOT",
    "TEMP", "TMP", "TMPDIR", "TZ", "USER", "USERPROFILE", "VIRTUAL_ENV",
)  # fmt: skip
HANDED_DOWN_FAMILIES = ("CUDA_", "DYLD_", "LC_", "NVIDIA_", "OMP_", "PYTHON", "SAWTOOTH_", "XDG_")


def why_not_started(word: str, error: OSError | None = None) -> str:
    """Return the sentence that the user's command ``word`` does not exist, or why it cannot be run."""
    if error is None or isinstance(error, FileNotFoundError):
        return f"There is no command {word!r}."
    return f"{word!r} cannot be run ({error.strerror})."


def command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs ``module`` (its full name).

    ``-P`` keeps the current folder off the child's path.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return ``base`` (by default this process's environment) with our folder first on ``PYTHONPATH``."""
    variables = dict(os.environ if base is None else base)
    if variables.get(ADDED) != "1":
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, (str(IMPORT_ROOT), variables.get("PYTHONPATH"))))
        variables[ADDED] = "1"
    return variables


def handed_down() -> dict[str, str]:
    """Return the part of this process's environment that a child of the server needs.

    Our folder is on its path.
    """
    known = {name: value for name, value in os.environ.items() if name in HANDED_DOWN or name.startswith(HANDED_DOWN_FAMILIES)}
    return environment({name: value for name, value in known.items() if name not in SECRETS})


def environment_before() -> dict[str, str]:
    """Return this process's environment without the changes of ``environment``.

    A training command started by one of our children must see it, or the training might import from our folder. Our own secrets
    are removed too.
    """
    variables = {name: value for name, value in os.environ.items() if name not in SECRETS}
    if variables.pop(ADDED, None) == "1":
        rest = variables.pop("PYTHONPATH", "").split(os.pathsep)[1:]
        if rest:
            variables["PYTHONPATH"] = os.pathsep.join(rest)
    return variables
