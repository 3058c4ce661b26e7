"""Tests of the step time of runs without GPU work: stopwatch, step marks, profiled steps."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry.step_marks import Mark, by_marks
from sawtooth.app.cli import cli
from sawtooth.app.words.headline import headline
from sawtooth.ingest.capture.marks import MarkWriter
from sawtooth.ingest.runs.manifests import register_run
from sawtooth.ingest.schema import DataFolder
from tests.support.host_loops import analysed, loop, marked
from tests.support.prepared import prepared


def test_stopwatch_and_marks_come_before_the_profiled_steps(tmp_path: Path) -> None:
    trace = loop().write(tmp_path / "host.json")
    data = DataFolder(tmp_path / "data").create()
    assert analysed(data, trace, step_time_ms=0.7).metrics["best_step_time_ms"].value == 0.7
    marks = marked(tmp_path / "marks.jsonl", 0.8)
    found = CliRunner().invoke(cli, ["report", str(trace), str(marks), "--format", "json", "--data", str(tmp_path / "other")])
    report = json.loads(found.stdout)
    assert report["metrics"]["best_step_time_ms"]["value"] == pytest.approx(0.8)
    assert report["host"]["loading_ms"] == pytest.approx(0.6)


def test_marks_without_a_trace_give_the_step_time(tmp_path: Path) -> None:
    result = analysed(DataFolder(tmp_path / "data").create(), marked(tmp_path / "marks.jsonl", 0.8))
    assert result.metrics["best_step_time_ms"].value == pytest.approx(0.8)
    assert headline(result).startswith("A step takes 800\xa0µs. Neither a profile nor telemetry was recorded")


def test_evaluation_is_separated_without_a_trace(tmp_path: Path) -> None:
    # The evaluation takes 20 ms after every 20th step of 0.8 ms. No GPU is named beside the marks, and none was sampled.
    ends = iter([0, *np.cumsum([800_000 + 20_000_000 * (step % 20 == 0) for step in range(400)]).tolist()])
    writer = MarkWriter(tmp_path / "marks.jsonl", wall_ns=lambda: 10**18, monotonic_ns=lambda: next(ends))
    for step in range(400):
        writer.mark(step, phase="train" if step % 20 else "eval")
    writer.close()
    step = analysed(DataFolder(tmp_path / "data").create(), tmp_path / "marks.jsonl").metrics["best_step_time_ms"]
    assert step.value == pytest.approx(0.8)
    assert "evaluated 19 times (20 ms each)" in step.notes[0].replace("\xa0", " ")


def test_a_busy_host_after_the_profile_is_part_of_the_run(tmp_path: Path) -> None:
    """39 steps take 0.8 ms, six are profiled, and 197 take 1.2 ms while others use the host.

    No GPU profiler stays attached, so both parts count.
    """
    ends = iter([0, *np.cumsum([*[800_000] * 40, *[5_000_000] * 6, *[1_200_000] * 200]).tolist()])
    writer = MarkWriter(tmp_path / "marks.jsonl", wall_ns=lambda: 10**18, monotonic_ns=lambda: next(ends))
    for step in range(246):
        writer.mark(step, phase="profile" if 40 <= step < 46 else "train")
    writer.close()
    data = DataFolder(tmp_path / "data").create()
    recordings = [
        prepared(data, path, name="x").recordings[0]
        for path in (loop().write(tmp_path / "host.json"), tmp_path / "marks.jsonl")
    ]
    manifest = register_run(data, recordings, "on the host", {})
    with Library(data) as library:
        step = result_of(manifest, library).metrics["best_step_time_ms"]
    assert step.value == pytest.approx(1.134, rel=0.001) and not any("left out" in note for note in step.notes)


def test_batches_in_bursts_are_not_warm_up() -> None:
    # Three batches come at once: 70 rounds of 28, 1 and 2 ms, then 30 of 20, 1 and 1.5 ms, whose middle one is the later
    # half's median: (70 × 31 + 30 × 22.5) ÷ 300 = 9.48 ms a step, and not the 7.5 ms of the last 30 rounds.
    ends = np.cumsum([28.0, 1.0, 2.0] * 70 + [20.0, 1.0, 1.5] * 30) * 1e6
    seen = by_marks([Mark(i, int(end), "train") for i, end in enumerate(ends)])
    assert seen is not None and seen.ms == pytest.approx(9.48, rel=0.02)


def test_a_second_loop_of_another_optimizer_is_reported(tmp_path: Path) -> None:
    # 100 steps of 10 ms by one optimizer contain the profile; 300 steps of 45 ms by another follow. All numbers are of
    # the first loop.
    ends = iter([0, *np.cumsum([*[10_000_000] * 100, *[45_000_000] * 300]).tolist()])
    writer = MarkWriter(tmp_path / "marks.jsonl", wall_ns=lambda: 10**18, monotonic_ns=lambda: next(ends))
    for step in range(400):
        writer.mark(
            step if step < 100 else step - 100, phase="profile" if 50 <= step < 56 else "train", optimizer=step // 100 and 1
        )
    writer.close()
    step = analysed(DataFolder(tmp_path / "data").create(), tmp_path / "marks.jsonl").metrics["best_step_time_ms"]
    assert step.value == pytest.approx(10.0)
    assert step.notes[1].startswith("Another loop made 300 steps of 45 ms after these")
