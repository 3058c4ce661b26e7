"""Location of this copy of Sawtooth, of its data, and its version."""

import os
import sys
from pathlib import Path

# With this folder on its path, any Python finds the same ``sawtooth`` as this one.
IMPORT_ROOT = Path(__file__).resolve().parents[1]


def default_data_folder() -> Path:
    """Return ``SAWTOOTH_DATA``, or the platform's folder for application data.

    The code does not use platformdirs, because the recorder in a training job must not need this library.
    """
    if folder := os.environ.get("SAWTOOTH_DATA"):
        return Path(folder)
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "sawtooth"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local")) / "sawtooth"
    return (
        Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "sawtooth"
    )  # The XDG specification: empty counts as unset.


def recorder_version() -> str:
    """Return the version of the installed distribution that records, or "" in a checkout.

    The distribution is the whole product or the recorder alone.
    """
    from importlib import metadata  # not above: a training process loads this module, and is told its recorder's version

    for distribution in ("sawtooth", "sawtooth-recorder"):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return ""
