"""Commands and environments of Python processes that import the ``sawtooth`` of their parent.

Files in the working folder do not change what a process imports.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from sawtooth.installation import IMPORT_ROOT

# ``environment`` sets this variable if it changes PYTHONPATH, so that ``original_environment`` can undo the change in a child.
PATH_ADDED = "SAWTOOTH_PATH_ADDED"
SECRETS = ("SAWTOOTH_TOKEN", "SAWTOOTH_PUSH_TOKEN")
# A server's children get only these environment variables, because the environment of a service may also contain credentials.
INHERITED_NAMES = (
    "APPDATA", "COMSPEC", "HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LOCALAPPDATA", "LOGNAME", "PATH", "PATHEXT", "SYSTEMROOT",
    "TEMP", "TMP", "TMPDIR", "TZ", "USER", "USERPROFILE", "VIRTUAL_ENV",
)  # fmt: skip
INHERITED_PREFIXES = ("CUDA_", "DYLD_", "LC_", "NVIDIA_", "OMP_", "PYTHON", "SAWTOOTH_", "XDG_")


def why_not_started(word: str, error: OSError | None = None) -> str:
    """Return a sentence that says why the user's command ``word`` cannot be started."""
    if error is None or isinstance(error, FileNotFoundError):
        return f"There is no command {word!r}."
    return f"{word!r} cannot be run ({error.strerror})."


def command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs the Python module ``module``.

    The option ``-P`` keeps the current folder off the child's import path.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return ``base`` (default: this process's environment) with Sawtooth's folder first on PYTHONPATH."""
    variables = dict(os.environ if base is None else base)
    if variables.get(PATH_ADDED) != "1":
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, (str(IMPORT_ROOT), variables.get("PYTHONPATH"))))
        variables[PATH_ADDED] = "1"
    return variables


def inherited_environment() -> dict[str, str]:
    """Return the part of this process's environment that a child of the server needs.

    PYTHONPATH includes Sawtooth's folder.
    """
    inherited = {
        name: value for name, value in os.environ.items() if name in INHERITED_NAMES or name.startswith(INHERITED_PREFIXES)
    }
    return environment({name: value for name, value in inherited.items() if name not in SECRETS})


def original_environment() -> dict[str, str]:
    """Return this process's environment without the changes of ``environment``.

    Otherwise, a training might import from Sawtooth's folder. Sawtooth's secrets are removed too.
    """
    variables = {name: value for name, value in os.environ.items() if name not in SECRETS}
    if variables.pop(PATH_ADDED, None) == "1":
        rest = variables.pop("PYTHONPATH", "").split(os.pathsep)[1:]
        if rest:
            variables["PYTHONPATH"] = os.pathsep.join(rest)
    return variables
