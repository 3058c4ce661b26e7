"""Tests that a step in which nothing was recorded for some time is not counted.

A step that only does less is counted.
"""

from __future__ import annotations

import pytest

from sawtooth.analysis.run.model import RunResult
from tests.incomplete.claims import numbers_of
from tests.support.chrome_trace import ChromeTrace


def loop(steps: int = 10, every: int = 1) -> ChromeTrace:
    """Return a loop of 10 additions of 80 µs a step; each ``every``-th has 10 operators more."""
    trace, at = ChromeTrace(), 0
    for k in range(steps):
        launches = 20 if k % every == 0 else 10
        trace.step(k, at, at + 100 * launches)
        for n in range(launches):
            begin = at + 100 * n
            trace.op("aten::add" if n < 10 else "aten::mul", begin, begin + 90, [[64, 64]], ["float"])
            trace.launch((begin + 2, begin + 8), (begin + 10, begin + 90), "k")
        at += 100 * launches
    return trace


def result_of(trace: ChromeTrace) -> RunResult:
    result = numbers_of([("t.json", trace.json())])
    assert result is not None and result.lead is not None
    return result


@pytest.mark.parametrize(("begin", "end"), [(8_500, 9_500), (6_200, 7_000)])
def test_a_step_with_an_eventless_span_is_not_counted(begin: int, end: int) -> None:
    trace = loop()
    trace.events = [e for e in trace.events if e["name"].startswith("ProfilerStep") or not begin <= e["ts"] < end]
    result = result_of(trace)
    (check,) = result.failed
    assert check.sentence.startswith(f"1 of 10 steps lack records of the GPU for {(end - begin) // 100} launches.")
    assert result.metrics["gpu_busy_share"].value == pytest.approx(0.8, abs=0.01)
    assert result.metrics["kernel_launches_per_step"].value == 20


@pytest.mark.parametrize("every", [2, 3])
def test_steps_that_do_less_by_design_are_complete(every: int) -> None:
    assert result_of(loop(every=every)).failed == ()


def test_wait_in_a_complete_step_is_not_a_loss() -> None:
    trace = loop()
    for event in trace.events:
        if event["name"] == "ProfilerStep#4":
            event["dur"] += 1_500
        elif event["ts"] >= 9_000:
            event["ts"] += 1_500
    assert result_of(trace).failed == ()


@pytest.mark.parametrize(("lost", "headline_lost"), [(1, True), (2, False)])  # the end of a recording may cut the last step off
def test_a_step_without_launches_between_equal_steps_lost_them(lost: int, headline_lost: bool) -> None:
    trace = loop(3)
    within = range(2000 * lost, 2000 * lost + 2000)
    trace.events = [e for e in trace.events if e["name"].startswith("ProfilerStep") or int(e["ts"]) not in within]
    result = result_of(trace)
    assert any(check.headline for check in result.failed) == headline_lost


@pytest.mark.parametrize(("longer", "trust"), [(1_500, "caution"), (0, "ok")])
def test_complete_steps_of_another_length_than_incomplete_ones_cause_a_doubt(longer: int, trust: str) -> None:
    trace = loop(12)
    for event in trace.events:  # Step 5 waits, and lacks records.
        if event["name"] == "ProfilerStep#5":
            event["dur"] += longer
        elif event["ts"] >= 12_000:
            event["ts"] += longer
    trace.events = [e for e in trace.events if not (e["cat"] == "kernel" and 10_500 <= e["ts"] < 11_000)]
    result = result_of(trace)
    assert result.failed[0].sentence.startswith("1 of 12 steps lack records")
    assert result.metrics["gpu_busy_share"].trust == trust
