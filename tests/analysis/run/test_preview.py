"""Tests of the preview of a recording by itself."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from sawtooth.analysis.run.preview import TracePreview, first_look
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace, matmul_loop


def looked_at(trace: ChromeTrace, folder: Path) -> TracePreview | None:
    data = DataFolder(folder / "data")
    ref = ingest_file(trace.write(folder / "trace.json"), data)
    return first_look(data.recording_file(ref.id))


def test_steps_and_busy_share_are_those_of_the_whole_trace(tmp_path: Path) -> None:
    look = looked_at(matmul_loop(), tmp_path)
    assert look is not None and look.steps == 4
    assert look.busy_share == pytest.approx(4 * 700 / 3700)  # 700 µs of each 1000, from 40 µs to 3740


def test_time_in_which_two_streams_work_counts_once(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for stream, times in ((7, (300, 400)), (13, (190, 260)), (7, (100, 200)), (13, (150, 180))):
        trace.launch((times[0] - 20, times[0] - 10), times, "k", stream=stream)
    look = looked_at(trace, tmp_path)
    assert look == TracePreview(look.gpu if look else None, 0, pytest.approx((160 + 100) / 300))


def test_damaged_file_has_no_preview(tmp_path: Path) -> None:
    (tmp_path / "file.duckdb").write_bytes(b"no recording" * 1000)
    assert first_look(tmp_path / "file.duckdb") is None


def test_preview_of_millions_of_operations_needs_little_memory(tmp_path: Path) -> None:
    file = tmp_path / "file.duckdb"
    with duckdb.connect(str(file)) as made:
        made.execute("CREATE TABLE names (name VARCHAR); CREATE TABLE devices (device INTEGER, name VARCHAR)")
        made.execute(
            "CREATE TABLE gpu_ops AS SELECT (i % 2)::INTEGER AS device, i * 100 AS start_ns, 50::BIGINT AS dur_ns FROM range(4000000) t(i)"
        )
    look = first_look(file)
    assert look is not None
    assert look.busy_share == pytest.approx(50 / 200, abs=1e-6)  # Each GPU works 50 ns of every 200.
