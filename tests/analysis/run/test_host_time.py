"""Tests of the parts of a step without GPU work, computed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.run.model import RunResult
from sawtooth.app.words.run import first_line
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace
from tests.support.host_loops import RECORDED_CALL_MS, analysed, loop, python_loop


@pytest.fixture
def result(tmp_path: Path) -> RunResult:
    return analysed(DataFolder(tmp_path / "data").create(), loop().write(tmp_path / "host.json"))


def test_the_parts_of_a_step_are_loading_operators_and_the_rest(result: RunResult) -> None:
    work = result.host
    assert work is not None and work.steps == 3  # The times between four ends.
    assert (work.loading_ms, work.operators_ms, work.rest_ms) == pytest.approx((0.6, 0.3, 0.1))
    assert result.metrics["best_step_time_ms"].value == pytest.approx(1.0)
    assert result.metrics["best_step_time_ms"].trust == "caution"  # profiled


def test_collectives_on_the_cpu_cover_time_outside_operators(tmp_path: Path) -> None:
    # Two threads of gloo reduce for 700 µs of each 1000 µs step, 600 of them at the same time. The loop multiplies for 200 µs before that.
    trace = ChromeTrace()
    for k in range(4):
        at = 1000 * k
        trace.thread = 1
        trace.step(k, at, at + 1000)
        trace.op("aten::mm", at + 10, at + 210)
        for trace.thread, begin in ((2, 250), (3, 300)):
            trace.host("user_annotation", "gloo:all_reduce", at + begin, at + begin + 650)
    result = analysed(DataFolder(tmp_path / "data").create(), trace.write(tmp_path / "gloo.json"))
    work = result.host
    assert work is not None
    assert (work.operators_ms, work.rest_ms, work.communication_ms) == pytest.approx((0.2, 0.8, 0.7))
    assert first_line(result).startswith(
        "70\u00a0% of each ≈\u00a01.00\u00a0ms step is communication on the CPU, mostly gloo:all_reduce"
    )


def test_time_between_profiler_cycles_is_in_no_step(tmp_path: Path) -> None:
    """The profiler's schedule waits 50 ms between steps 3 and 100.

    No part of this time counts for a step of 1 ms.
    An operator runs in that gap.
    """
    trace = python_loop()
    for k in range(4):
        at = 54_000 + 1000 * k
        trace.step(100 + k, at, at + 1000)
        trace.host("python_function", "data.py(4): features", at, at + 700, **{"Python id": 100 + k})
        trace.op("aten::sum", at + 150, at + 250)
        trace.op("aten::mm", at + 750, at + 950)
    trace.op("aten::mm", 30_000, 40_000)
    work = analysed(DataFolder(tmp_path / "data").create(), trace.write(tmp_path / "cycles.json")).host
    assert work is not None and work.steps == 6
    assert (work.operators_ms, work.rest_ms) == pytest.approx((0.3, 0.7))
    # Half of the steps call a library in the function.
    assert dict(work.functions)["data.py(4): features"] == pytest.approx(0.6 - 1.5 * RECORDED_CALL_MS)
    assert {operator.name: operator.calls for operator in work.operators} == pytest.approx({"aten::sum": 1, "aten::mm": 1})


def sparsely_marked(marks: dict[int, str], recorded: range, pause_after: int = -1) -> ChromeTrace:
    """Record steps of 10 ms, some of them with ``marks``; step 3 takes 40 ms, a pause 300 ms."""
    trace, at = ChromeTrace(), 0.0
    for k in range(12):
        ends = at + (40_000 if k == 3 else 10_000)
        if k in marks:
            trace.host("user_annotation", marks[k], at, ends)
        for place in range(24 if k in recorded else 0):
            trace.op(f"aten::op{place}", at + 100 + 300 * place, at + 350 + 300 * place)
        at = ends + (300_000 if k == pause_after else 0)
    return trace


def numbered(*steps: int) -> dict[int, str]:
    return {k: f"ProfilerStep#{k}" for k in steps}


@pytest.mark.parametrize(
    ("trace", "steps_ms", "unmarked"),
    [
        (sparsely_marked(numbered(0, 1, 2, 4, 5), range(6)), [10, 10, 40, 10, 10], False),  # The mark of the slow step is lost.
        (
            sparsely_marked(numbered(0, 1, 2, 5, 6, 7), range(8)),
            [10, 10, 10, 10],
            True,
        ),  # The mark of the next step is lost too.
        (sparsely_marked(numbered(0, 3, 6), range(0, 7, 3)), [10, 40, 10], False),  # The schedule has one active step a cycle.
        (sparsely_marked(numbered(*range(4)), range(4), pause_after=1), [10, 40], True),
        (
            sparsely_marked({0: "train", 4: "train", 8: "train"}, range(12)),
            [10, 10, 40, *[10] * 5],
            False,
        ),  # Ranges around every fourth step.
    ],
    ids=["one-lost", "two-lost", "one-a-cycle", "pause", "ranges"],
)
def test_steps_with_few_marks(tmp_path: Path, trace: ChromeTrace, steps_ms: list[float], unmarked: bool) -> None:
    work = analysed(DataFolder(tmp_path / "data").create(), trace.write(tmp_path / "sparse.json")).host
    assert work is not None and list(work.step_ms) == pytest.approx(steps_ms, rel=0.04)
    assert any("without a step mark" in note for note in work.step.notes) == unmarked


def test_operators_have_their_own_time_and_threads_their_names(result: RunResult) -> None:
    work = result.host
    assert work is not None
    own = {operator.name: (operator.ms, operator.calls) for operator in work.operators}
    assert own["aten::mm"] == pytest.approx((0.25, 1))
    assert own["aten::stack"] == pytest.approx((0.1, 1)) and own["aten::empty"] == pytest.approx((0.05, 1))
    assert sorted(thread.ms for thread in work.threads) == pytest.approx([0.04, 0.4])


def test_without_steps_times_refer_to_the_complete_recording(tmp_path: Path) -> None:
    trace = ChromeTrace()
    trace.op("aten::mm", 0, 300)
    trace.op("aten::mm", 500, 1000)
    work = analysed(DataFolder(tmp_path / "data").create(), trace.write(tmp_path / "t.json")).host
    assert work is not None and work.steps == 0 and work.step.value is None
    assert (work.operators_ms, work.rest_ms) == pytest.approx((0.8, 0.2))


def test_cost_of_padding_is_its_share_of_the_operators(tmp_path: Path) -> None:
    """Operators take 300 of each 1000 µs outside the loader, and half of their work is padding."""
    trace = loop().write(tmp_path / "trace.json")
    result = analysed(DataFolder(tmp_path / "data").create(), trace, loader_padding=0.5)
    (finding,) = [finding for finding in result.findings if finding.rule == "shapes-vary"]
    assert finding.ceiling_ms_per_step == pytest.approx(0.15)
    assert finding.title == "50 % of each batch is padding, and the operators compute on the padding"
    little = analysed(DataFolder(tmp_path / "other").create(), trace, loader_padding=0.19)
    assert "shapes-vary" not in {finding.rule for finding in little.findings}
