"""Tests of rotated logs: their pieces are one log, and logs of the same time stay separate."""

from __future__ import annotations

import gzip
from pathlib import Path

from sawtooth.app.jobs.ingest_files import files_of, ingest_into_runs
from sawtooth.ingest.database import first_row
from sawtooth.ingest.schema import DataFolder
from tests.support.sampled_hosts import host
from tests.support.smi_log import smi_log


def lines(folder: Path) -> list[str]:
    """Return the lines of a log of two GPUs over ten minutes: a header and 1,200 rows."""
    return smi_log(folder / "whole.csv", host(3, gpus=2, seconds=600), ("util_pct",)).read_text().splitlines(keepends=True)


def test_pieces_with_one_header_are_one_log(tmp_path: Path) -> None:
    rows = lines(tmp_path)
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "gpu.log.2.gz").write_bytes(gzip.compress("".join(rows[:400]).encode()))
    (logs / "gpu.log.1").write_text("".join(rows[400:801]))
    (logs / "gpu.log").write_text("".join(rows[801:]))
    folder = DataFolder(tmp_path / "data")
    ingested = ingest_into_runs(folder, [(logs / name, name) for name in ("gpu.log", "gpu.log.1", "gpu.log.2.gz")])
    assert ingested.notices[0] == "gpu.log: 3 pieces of this rotated log were read as one, the oldest first."
    (ref,) = ingested.runs[0].telemetry
    query = "SELECT count(*), count(DISTINCT device), count(DISTINCT time_ns) FROM samples"
    assert first_row(folder.recording_file(ref.id), query) == (1200, 2, 600) and ref.source_name == "gpu.log"
    assert not list(folder.root.glob(".*/*.log")), "the temporary joined log was not removed"


def test_logs_of_the_same_time_or_without_times_stay_separate(tmp_path: Path) -> None:
    rows = lines(tmp_path)
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "smi.csv").write_text("".join(rows))  # wget calls the second file smi.csv.1 if two hosts serve smi.csv.
    # The second host has equal rows in other bytes, because a copy of the first file would be skipped.
    (logs / "smi.csv.1").write_text("".join(rows).replace(" %", "  %"))
    (logs / "dmon.txt").write_text("# gpu sm\n 0 95\n 0 94\n")
    (logs / "dmon.txt.1").write_text("# gpu sm\n 0 91\n 0 90\n")
    files, _ = files_of(logs)
    assert len(ingest_into_runs(DataFolder(tmp_path / "data"), files).runs[0].telemetry) == 4
