"""Make the folder layout of an installed package from links to a checkout.

Tools that ignore ``__path__``, such as mypy and import-linter, read this layout. ``python -m tests.support.installed_layout FOLDER``
makes ``FOLDER/sawtooth``.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.support.paths import ROOT

ROOMS = ("app", "ingest", "analysis", "sample_traces")


def make(folder: Path) -> Path:
    """Make ``folder``/sawtooth anew and return ``folder``.

    Folders are real. Files are links, or copies where links are not allowed.
    """
    shutil.rmtree(folder / "sawtooth", ignore_errors=True)
    for source, target in (("sawtooth", "sawtooth"), *((room, f"sawtooth/{room}") for room in ROOMS)):
        for path in sorted((ROOT / source).rglob("*.py")):
            link = folder / target / path.relative_to(ROOT / source)
            link.parent.mkdir(parents=True, exist_ok=True)
            try:
                link.symlink_to(path)
            except OSError:
                shutil.copyfile(path, link)
    return folder


if __name__ == "__main__":
    make(Path(sys.argv[1]))
