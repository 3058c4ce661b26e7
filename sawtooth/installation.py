"""Location of this copy of Sawtooth, of its data, and its version."""

import os
import sys
from pathlib import Path

# Python imports this copy of ``sawtooth`` if this folder is on the path.
IMPORT_ROOT = Path(__file__).resolve().parents[1]


def default_data_folder() -> Path:
    """Return ``SAWTOOTH_DATA``, or the platform's folder for application data.

    The library platformdirs does this too, but it would be a third dependency of the recorder in a training job.
    """
    if folder := os.environ.get("SAWTOOTH_DATA"):
        return Path(folder)
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "sawtooth"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local")) / "sawtooth"
    # By the XDG specification, an empty variable counts as unset.
    return Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "sawtooth"


def recorder_version() -> str:
    """Return the version of the installed product, or else of the recorder alone; "" in a checkout."""
    from importlib import metadata  # Imported only here, because a training process loads this module without needing it.

    for distribution in ("sawtooth", "sawtooth-recorder"):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return ""
