"""Where this copy of Sawtooth lies, where it keeps its data, and which version it is."""

import os
import sys
from pathlib import Path

# With this folder on its path, any Python finds the same ``sawtooth`` as this one.
IMPORT_ROOT = Path(__file__).resolve().parents[1]


def default_data_folder() -> Path:
    """Return ``SAWTOOTH_DATA``, or the platform's folder for application data.

    Written out, and not platformdirs', because the recorder beside a training job brings no library for it.
    """
    if folder := os.environ.get("SAWTOOTH_DATA"):
        return Path(folder)
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "sawtooth"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local")) / "sawtooth"
    return Path(os.environ.get("XDG_DATA_HOME", home / ".local" / "share")) / "sawtooth"


def recorder_version() -> str:
    """Return the version of the distribution that records: the whole product's, or the recorder's alone; "" from a checkout."""
    from importlib import metadata  # not above: a training process loads this module, and is told its recorder's version

    for distribution in ("sawtooth", "sawtooth-recorder"):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return ""
