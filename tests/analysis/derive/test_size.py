"""Tests of the disk space of a recording and its derived file."""

from __future__ import annotations

from pathlib import Path

from sawtooth.analysis.derive.build import ensure_derived
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import SAMPLES

MOST = 3.2  # Factor on the compressed trace of 50,000 events. 2.8 was measured, and 6.9 with DuckDB's own blocks of 256 kB.


def test_files_of_a_small_rank_are_small(tmp_path: Path) -> None:
    trace = SAMPLES / "gpt" / "trace.json.gz"
    folder = DataFolder(tmp_path).create()
    ref = ingest_file(trace, folder, keep_source=False)
    files = (folder.recording_file(ref.id), ensure_derived(folder, ref.id))
    assert sum(file.stat().st_size for file in files) < MOST * trace.stat().st_size
