"""Runs without GPU work: where the host's time goes, by hand, and one sentence for all that cannot be known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sawtooth.analysis.kept import result_of
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.store.library import Library
from sawtooth.app.cli import cli
from sawtooth.app.reports import html, text
from sawtooth.app.reports.brief import lines
from sawtooth.app.words.headline import headline
from sawtooth.ingest.capture.marks import MarkWriter
from sawtooth.ingest.runs.manifests import register_run
from sawtooth.ingest.schema import DataFolder, UserFacts
from tests.support.chrome_trace import ChromeTrace
from tests.support.prepared import prepared

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def loop(steps: int = 4) -> ChromeTrace:
    """Steps of 1000 µs: 600 in the loader (of which 100 in an operator), 300 in mm (of which 50 in its child), 100 in neither."""
    trace = ChromeTrace()
    for k in range(steps):
        at = 1000 * k
        trace.thread = 1
        trace.step(k, at, at + 1000)
        trace.host("user_annotation", LOADER, at, at + 600)
        trace.op("aten::stack", at + 100, at + 200)
        trace.op("aten::mm", at + 620, at + 920)
        trace.op("aten::empty", at + 630, at + 680)
        trace.thread = 2
        trace.op("aten::copy_", at + 10, at + 50)
    return trace


def analysed(data: DataFolder, path: Path, **facts: float) -> RunResult:
    manifest = prepared(data, path, name="on the host")
    if facts:
        manifest = register_run(data, manifest.recordings, "on the host", {}, facts=UserFacts(**facts))
    library = Library(data)
    try:
        return result_of(manifest, library)
    finally:
        library.close()


@pytest.fixture
def result(tmp_path: Path) -> RunResult:
    return analysed(DataFolder(tmp_path / "data").create(), loop().write(tmp_path / "host.json"))


def test_the_parts_of_a_step_are_loading_operators_and_the_rest(result: RunResult) -> None:
    work = result.host
    assert work is not None and work.steps == 3  # the times between four ends
    assert (work.loading_ms, work.operators_ms, work.rest_ms) == pytest.approx((0.6, 0.3, 0.1))
    assert result.metrics["best_step_time_ms"].value == pytest.approx(1.0)
    assert result.metrics["best_step_time_ms"].trust == "caution"  # profiled


def test_operators_have_their_own_time_and_threads_their_names(result: RunResult) -> None:
    work = result.host
    assert work is not None
    own = {operator.name: (operator.ms, operator.calls) for operator in work.operators}
    assert own["aten::mm"] == pytest.approx((0.25, 1))
    assert own["aten::stack"] == pytest.approx((0.1, 1)) and own["aten::empty"] == pytest.approx((0.05, 1))
    assert sorted(thread.ms for thread in work.threads) == pytest.approx([0.04, 0.4])


def test_one_sentence_stands_for_all_that_cannot_be_known(result: RunResult) -> None:
    reason = "No GPU work is recorded in this run"
    for form in (text.text, text.markdown, html.run_html):
        content = form(result)
        assert content.count(reason) == 1 and "24 more are not known" in content
        assert "Waiting for batches" in content and "aten" in content
    assert headline(result).startswith("The host waits for batches 60\xa0% of each 1.00\xa0ms step")
    assert "waits for batches" in lines(result)[0]


def test_a_stopwatch_and_the_loop_s_marks_stand_before_the_profiled_steps(tmp_path: Path) -> None:
    trace = loop().write(tmp_path / "host.json")
    data = DataFolder(tmp_path / "data").create()
    assert analysed(data, trace, step_time_ms=0.7).metrics["best_step_time_ms"].value == 0.7
    clock = iter(range(0, 10**12, 800_000))  # each mark 0.8 ms after the one before
    writer = MarkWriter(tmp_path / "marks.jsonl", wall_ns=lambda: 10**18, monotonic_ns=lambda: next(clock))
    for step in range(100):
        writer.mark(step)
    writer.close()
    found = CliRunner().invoke(
        cli, ["report", str(trace), str(tmp_path / "marks.jsonl"), "--format", "json", "--data", str(tmp_path / "other")]
    )
    report = json.loads(found.stdout)
    assert report["metrics"]["best_step_time_ms"]["value"] == pytest.approx(0.8)
    assert report["host"]["loading_ms"] == pytest.approx(0.6)


def test_marks_alone_tell_how_long_a_step_takes(tmp_path: Path) -> None:
    clock = iter(range(0, 10**12, 800_000))
    writer = MarkWriter(tmp_path / "marks.jsonl", wall_ns=lambda: 10**18, monotonic_ns=lambda: next(clock))
    for step in range(100):
        writer.mark(step)
    writer.close()
    result = analysed(DataFolder(tmp_path / "data").create(), tmp_path / "marks.jsonl")
    assert result.metrics["best_step_time_ms"].value == pytest.approx(0.8)
    assert headline(result).startswith("A step takes 800\xa0µs. Neither a profile nor telemetry was recorded")


def test_runs_without_gpu_work_are_compared_by_their_marks(tmp_path: Path) -> None:
    files = []
    for name, step_ns in (("slow", 800_000), ("quick", 400_000)):
        (tmp_path / name).mkdir()
        clock = iter(range(0, 10**12, step_ns))
        writer = MarkWriter(
            tmp_path / name / "marks.jsonl", wall_ns=lambda: 10**18, monotonic_ns=lambda clock=clock: next(clock)
        )
        for step in range(100):
            writer.mark(step)
        writer.close()
        files.append(str(tmp_path / name / "marks.jsonl"))
    asked = ["compare", *files, "--format", "json", "--data", str(tmp_path / "data")]
    said = json.loads(CliRunner().invoke(cli, asked).stdout)
    best = said["best_step_time_ms"]
    assert (best["verdict"], best["confidence"], best["source"]) == ("faster", "high", {"a": "marks", "b": "marks"})
    assert best["change_ms"] == pytest.approx(-0.4)


def test_without_steps_times_are_of_the_whole_recording(tmp_path: Path) -> None:
    trace = ChromeTrace()
    trace.op("aten::mm", 0, 300)
    trace.op("aten::mm", 500, 1000)
    work = analysed(DataFolder(tmp_path / "data").create(), trace.write(tmp_path / "t.json")).host
    assert work is not None and work.steps == 0 and work.step.value is None
    assert (work.operators_ms, work.rest_ms) == pytest.approx((0.8, 0.2))


def test_a_truncated_trace_of_the_host_says_so_in_its_headline(tmp_path: Path) -> None:
    whole = loop(40).json()
    (tmp_path / "cut.json").write_bytes(whole[: len(whole) * 3 // 4])
    result = analysed(DataFolder(tmp_path / "data").create(), tmp_path / "cut.json")
    assert headline(result).endswith("The trace file is cut off.")
