"""Where this copy of Sawtooth lies, and where it keeps its data."""

import os
import sys
from pathlib import Path

IMPORT_ROOT = (
    Path(__file__).resolve().parents[1]
)  # with this folder on its path, any Python finds the same ``sawtooth`` as this one


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
