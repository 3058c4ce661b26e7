"""Versions of the tool and of the analysis; derived files of another version are rebuilt."""

import hashlib
from functools import lru_cache
from importlib import metadata
from pathlib import Path

# Increase it when the content of derived files changes, including sentences stored in them.
ANALYSIS_VERSION = 67

try:
    TOOL_VERSION = metadata.version("sawtooth")
except metadata.PackageNotFoundError:  # A checkout that is not installed has no metadata.
    TOOL_VERSION = "0+unknown"


@lru_cache(maxsize=1)
def analysis_code() -> str:
    """Return a digest of this package's files; cached results are valid until one of them changes."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*")):
        if path.suffix in (".py", ".toml", ".sql"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
