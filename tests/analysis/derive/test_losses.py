"""Tests of the derived file: gaps, causes, estimate, phases and the stored replay of a trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sawtooth.analysis.derive.build import ensure_derived
from sawtooth.analysis.replay import store as replay_store
from sawtooth.analysis.replay.simulation import replay
from sawtooth.analysis.store.library import Library
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace, matmul_loop


def opened(trace: ChromeTrace, tmp_path: Path) -> tuple[Library, str]:
    folder = DataFolder(tmp_path / "data").create()
    recording = ingest_file(trace.write(tmp_path / "t.json"), folder).id
    ensure_derived(folder, recording)
    return Library(folder), recording


def test_gaps_and_causes_share_the_ledgers_sums(tmp_path: Path) -> None:
    library, recording = opened(matmul_loop(), tmp_path)
    with library.open(recording) as rows:
        causes = rows.rows("SELECT owner, cause, ns FROM causes ORDER BY ALL")
        assert sum(ns for _, _, ns in causes) == rows.rows("SELECT sum(end_ns - start_ns)::BIGINT FROM windows")[0][0]
        gaps = rows.rows("SELECT owner, cause, sum(end_ns - start_ns)::BIGINT AS ns FROM gaps GROUP BY ALL ORDER BY ALL")
        assert gaps == [row for row in causes if row[1] is not None]
        bounds = rows.rows("SELECT count(*) FROM gaps g, windows w WHERE g.start_ns >= w.start_ns AND g.end_ns <= w.end_ns")
        assert bounds == rows.rows("SELECT count(*) FROM gaps")
        assert rows.rows("SELECT count(*) FROM gaps WHERE evidence IS NULL OR step IS NULL OR next_gpu_op_id < 0")[0][0] == 0
        # 300 µs of each 1000 are idle, and the host is slower than the device throughout.
        assert sum(ns for owner, _, ns in causes if owner == "idle") == 3 * 300_000


def test_estimate_and_replay_are_stored(tmp_path: Path) -> None:
    library, recording = opened(matmul_loop(), tmp_path)
    with library.open(recording) as rows:
        facts = dict(rows.rows("SELECT key, value FROM facts"))
        estimate = json.loads(facts["device_0"])["estimate"]
        assert estimate["why_missing"] is None
        assert 700_000 <= estimate["step_ns"] <= 1_000_000  # The estimate is between the device's work and the profiled step.
        stored = rows.rows("SELECT problem FROM replays WHERE kind = 'unprofiled'")
    problem = replay_store.load(stored[0][0])
    assert (replay(problem).op_end > replay(problem).op_start).all()


def test_a_trace_without_gpu_work_has_no_losses(tmp_path: Path) -> None:
    trace = ChromeTrace()
    trace.step(1, 0, 100)
    trace.op("aten::add", 10, 20)
    library, recording = opened(trace, tmp_path)
    with library.open(recording) as rows:
        for table in ("gaps", "causes", "replays"):
            assert rows.rows(f"SELECT count(*) FROM {table}")[0][0] == 0


def test_each_device_has_its_own_phases(tmp_path: Path) -> None:
    """The mark covers the whole step on the host.

    Device 0 works for 700 µs of it, device 1 only for 50.
    """
    trace = matmul_loop()
    for k in range(4):
        at = k * 1000
        trace.host("user_annotation", "train", at + 5, at + 110)
        trace.launch((at + 102, at + 105), (at + 200, at + 250), "void at::native::vectorized_elementwise_kernel<4, Add>(int)")
        trace.events[-1] |= {"pid": 1, "args": {**trace.events[-1]["args"], "device": 1}}
    library, recording = opened(trace, tmp_path)
    with library.open(recording) as rows:
        facts = {key: json.loads(value) for key, value in rows.rows("SELECT key, value FROM facts")}
    device_ms = [{p["name"]: p["device_ms_per_step"] for p in facts[f"device_{d}"]["phases"]}["train"] for d in (0, 1)]
    assert device_ms == pytest.approx([0.7, 0.05])
