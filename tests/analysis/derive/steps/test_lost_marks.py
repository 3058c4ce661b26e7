"""Steps whose marks are not in the trace are rebuilt if one is missing, else they are a doubt."""

from __future__ import annotations

import pytest

from sawtooth.analysis.run.model import RunResult
from tests.incomplete.claims import analysed
from tests.support.chrome_trace import ChromeTrace


def loop(steps: int = 10) -> ChromeTrace:
    """Return a loop of 1,000 µs a step, with 12 kernels of 50 µs each: busy for 60 %."""
    trace = ChromeTrace()
    for k in range(steps):
        trace.step(k, 1000 * k, 1000 * k + 1000)
        for n in range(12):
            at = 1000 * k + 60 * n
            trace.launch((at + 5, at + 8), (at + 10, at + 60), "k")
    return trace


def without(trace: ChromeTrace, *steps: int) -> RunResult:
    names = {f"ProfilerStep#{k}" for k in steps}
    trace.events = [e for e in trace.events if e["name"] not in names]
    result = analysed([("t.json", trace.json())])
    assert result is not None and result.lead is not None
    return result


@pytest.mark.parametrize("lost", [(4,), (2, 7), (1, 3, 5)])
def test_one_lost_mark_is_the_time_between_its_neighbours(lost: tuple[int, ...]) -> None:
    result = without(loop(), *lost)
    assert result.lead.steps["counted"].sum() == 9  # all but the first
    assert result.metrics["step_time_ms"].value == pytest.approx(1.0, abs=0.001)
    busy = result.metrics["gpu_busy_share"]
    assert busy.value == pytest.approx(0.6, abs=0.001) and busy.trust == "ok"
    (note,) = (d for d in result.diagnostics if d.key == "marks_lost")
    assert note.count == len(lost)


@pytest.mark.parametrize("lost", [(4, 5), (0,), (9,), (0, 1, 2)])
def test_several_lost_marks_and_those_at_the_ends_are_a_doubt(lost: tuple[int, ...]) -> None:
    result = without(loop(), *lost)
    assert result.metrics["gpu_busy_share"].trust == "caution"
    assert "steps_without_marks" in {d.key for d in result.diagnostics}


@pytest.mark.parametrize("calls", [0, 3])
def test_a_schedule_that_waits_has_lost_no_marks(calls: int) -> None:
    trace = loop()
    recorded = [e for e in trace.events if not 4000 <= e["ts"] < 5000]
    trace.events = recorded
    for n in range(calls):  # the profiler's own, as it stops
        trace.host("cuda_runtime", "cudaDeviceSynchronize", 4010 + n, 4011 + n, correlation=9000 + n)
    result = without(trace)
    assert not {d.key for d in result.diagnostics} & {"marks_lost", "steps_without_marks"}
    assert result.metrics["gpu_busy_share"].trust == "ok"


@pytest.mark.parametrize(("by_us", "doubted"), [(1000, True), (0, False)])
def test_a_mark_over_two_steps_is_a_doubt(by_us: int, doubted: bool) -> None:
    trace = loop()
    for event in trace.events:
        if event["name"] in ("ProfilerStep#2", "ProfilerStep#6"):
            event["dur"] += by_us
    result = without(trace, 3, 7) if doubted else without(trace)
    assert (result.metrics["kernel_launches_per_step"].trust == "caution") == doubted
