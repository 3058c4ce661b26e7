"""Tests of lost step marks: one missing mark is restored, several lower the trust."""

from __future__ import annotations

import pytest

from sawtooth.analysis.run.model import RunResult
from tests.incomplete.claims import numbers_of
from tests.support.chrome_trace import ChromeTrace


def loop(steps: int = 10, kernels: int = 12) -> ChromeTrace:
    """Return a loop of 1,000 µs a step, with kernels of 600 µs in total: busy for 60 %."""
    trace = ChromeTrace()
    for k in range(steps):
        trace.step(k, 1000 * k, 1000 * k + 1000)
        for n in range(kernels):
            at = 1000 * k + 720 // kernels * n
            trace.launch((at + 5, at + 8), (at + 10, at + 10 + 600 // kernels), "k")
    return trace


def without(trace: ChromeTrace, *steps: int) -> RunResult:
    names = {f"ProfilerStep#{k}" for k in steps}
    trace.events = [e for e in trace.events if e["name"] not in names]
    result = numbers_of([("t.json", trace.json())])
    assert result is not None and result.lead is not None
    return result


@pytest.mark.parametrize("lost", [(4,), (2, 7), (1, 3, 5)])
def test_one_lost_mark_is_replaced_from_its_neighbours(lost: tuple[int, ...]) -> None:
    result = without(loop(), *lost)
    assert result.lead.steps["counted"].sum() == 9  # All steps but the first.
    assert result.metrics["step_time_ms"].value == pytest.approx(1.0, abs=0.001)
    busy = result.metrics["gpu_busy_share"]
    assert busy.value == pytest.approx(0.6, abs=0.001) and busy.trust == "ok"
    (note,) = (d for d in result.diagnostics if d.key == "marks_lost")
    assert note.count == len(lost)


@pytest.mark.parametrize("lost", [(4, 5), (0,), (9,), (0, 1, 2)])
def test_several_lost_marks_or_one_at_an_end_cause_a_doubt(lost: tuple[int, ...]) -> None:
    result = without(loop(), *lost)
    assert result.metrics["gpu_busy_share"].trust == "caution"
    assert "steps_without_marks" in {d.key for d in result.diagnostics}


@pytest.mark.parametrize(("begin", "end"), [(3900, 4400), (4250, 5100)])
def test_a_mark_lost_together_with_calls_of_its_step_causes_a_doubt(begin: int, end: int) -> None:
    trace = loop(kernels=30)
    trace.events = [e for e in trace.events if not begin <= e["ts"] < end]
    result = without(trace, 4)
    assert {r.trust for r in result.metrics.values() if r.value is not None} <= {"caution", "unusable"}


@pytest.mark.parametrize("calls", [0, 3])
def test_waiting_steps_of_the_schedule_are_not_lost_marks(calls: int) -> None:
    trace = loop()
    recorded = [e for e in trace.events if not 4000 <= e["ts"] < 5000]
    trace.events = recorded
    for n in range(calls):  # The profiler makes these calls when it stops.
        trace.host("cuda_runtime", "cudaDeviceSynchronize", 4010 + n, 4011 + n, correlation=9000 + n)
    result = without(trace)
    assert not {d.key for d in result.diagnostics} & {"marks_lost", "steps_without_marks"}
    assert result.metrics["gpu_busy_share"].trust == "ok"


@pytest.mark.parametrize(("by_us", "doubted"), [(1000, True), (0, False)])
def test_a_mark_over_two_steps_causes_a_doubt(by_us: int, doubted: bool) -> None:
    trace = loop()
    for event in trace.events:
        if event["name"] in ("ProfilerStep#2", "ProfilerStep#6"):
            event["dur"] += by_us
    result = without(trace, 3, 7) if doubted else without(trace)
    assert (result.metrics["kernel_launches_per_step"].trust == "caution") == doubted


def training(updates: tuple[int, ...], *, additional_calls: int = 0) -> ChromeTrace:
    """Return a loop that updates ``updates[k]`` times under its k-th mark, after a backward pass each.

    Every second update makes ``additional_calls`` more calls, as a critic's does.
    """
    trace, number = ChromeTrace(), 0
    for k, count in enumerate(updates):
        trace.step(k, 1000 * number, 1000 * (number + count))
        for turn in range(count):
            at = 1000 * number
            trace.op("autograd::engine::evaluate_function: MmBackward0", at + 2, at + 4)
            for n in range(12 + additional_calls * (turn % 2)):
                trace.launch((at + 5 + 30 * n, at + 8 + 30 * n), (at + 10 + 30 * n, at + 30 + 30 * n), "k")
            trace.host("user_annotation", "Optimizer.step#Adam.step", at + 850, at + 900)
            number += 1
    return trace


@pytest.mark.parametrize(
    ("updates", "additional_calls", "doubted"),
    [
        ((3,), 0, True),  # All marks were joined into one.
        ((1, 1, 1, 2), 0, True),  # The last two marks were joined.
        ((1,), 0, False),
        ((2, 2, 2, 2), 0, False),  # A loop that updates twice in each step.
        ((2,), 8, False),  # A generator and its critic.
    ],
)
def test_a_mark_over_several_updates_causes_a_doubt(updates: tuple[int, ...], additional_calls: int, doubted: bool) -> None:
    result = without(training(updates, additional_calls=additional_calls))
    assert (result.metrics["kernel_launches_per_step"].trust == "caution") == doubted


@pytest.mark.parametrize("lost", [True, False])
def test_marks_only_on_the_gpu_cause_a_doubt(lost: bool) -> None:
    trace = loop(3)
    for k in range(3):
        trace.gpu((1000 * k + 10, 1000 * k + 720), f"ProfilerStep#{k}", "gpu_user_annotation")
    if lost:
        trace.events = [e for e in trace.events if e["cat"] != "user_annotation" or e["name"].endswith("#0")]
        trace.events[0]["dur"] = 3000
    result = numbers_of([("t.json", trace.json())])
    assert (result.metrics["kernel_launches_per_step"].trust == "caution") == lost


@pytest.mark.parametrize(("marks", "doubted"), [(1, True), (2, False)])
def test_a_single_step_that_may_have_begun_earlier_causes_a_doubt(marks: int, doubted: bool) -> None:
    trace = training((1,) * marks)
    result = without(trace, *range(marks))
    assert result.lead.step_source == "annotation"
    assert (result.metrics["kernel_launches_per_step"].trust == "caution") == doubted
