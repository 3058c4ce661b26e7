"""The committed recordings, analysed once a test session: real runs on an H200, each with one planted trouble or none."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from analysis.recordings import Library
from analysis.results import RunResult, analyse
from app.intake import bring_in
from ingest.schema import DataFolder

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "tests" / "recordings", ROOT / "sample_traces")


@functools.cache
def analysed(name: str) -> RunResult:
    """Return the result of a committed recording, telemetry included."""
    folder = next(base / name for base in FOLDERS if (base / name).is_dir())
    files = [*sorted(folder.glob("*trace.json.gz")), *folder.glob("nvml.jsonl")]
    with tempfile.TemporaryDirectory() as data:
        library = Library(DataFolder(Path(data)))
        try:
            return analyse(bring_in(library.folder, [(f, f.name) for f in files], keep_source=False).runs[0], library)
        finally:
            library.close()
