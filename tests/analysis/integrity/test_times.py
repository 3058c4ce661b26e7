"""Tests of impossible times, which become the headline.

A GPU works before it is asked to, kernels are shorter than hardware allows, or all durations overlap.
"""

from __future__ import annotations

import pytest

from sawtooth.app.words.headline import headline
from tests.incomplete.claims import result_of
from tests.support.chrome_trace import ChromeTrace, matmul_loop


def kernels(trace: ChromeTrace) -> list[dict]:
    return [event for event in trace.events if event["cat"] == "kernel"]


@pytest.mark.parametrize(
    ("shift_us", "factor", "says"),
    [
        (-200, 1, "The clocks of GPU and host do not agree. Record again."),
        (0, 0.001, "The GPU's durations are impossibly short. Record again."),
        (0, 1000, "The GPU's durations are impossibly long. Record again."),
    ],
)
def test_impossible_times_are_the_headline_and_give_no_numbers(shift_us, factor, says) -> None:
    trace = matmul_loop(12)
    for event in kernels(trace):
        event["ts"] += shift_us
        event["dur"] *= factor
    result = result_of(trace)
    assert headline(result) == says
    for key in ("best_step_time_ms", "step_time_ms", "gpu_busy_share", "mfu", "tensor_core_time_share"):
        assert result.metrics[key].value is None, key
    assert not result.findings


@pytest.mark.parametrize(("since", "shift_us", "late"), [(6, 2000, True), (11, 500, True), (0, 15, False)])
def test_no_operation_begins_after_the_call_that_waited_for_it(since: int, shift_us: float, late: bool) -> None:
    # 12 steps of 1,000 µs: step k's kernels begin at 1,000 k + 40 and 640. The wait returns 10 µs after the last has ended, at
    # 11,740. From the jump on, all kernels begin later: of the last step's two, one begins 500 µs later at 11,540 and one at 12,140.
    trace = matmul_loop(12)
    trace.host("cuda_runtime", "cudaDeviceSynchronize", 11_200, 11_750, correlation=9000)
    for event in kernels(trace):
        event["ts"] += shift_us if event["ts"] >= 1000 * since else 0
    result = result_of(trace)
    assert ("clocks_disagree" in {check.key for check in result.failed}) == late
    if late:
        assert headline(result) == "The clocks of GPU and host do not agree. Record again."


def test_a_wrong_duration_of_the_last_operation_is_not_a_wrong_clock() -> None:
    trace = matmul_loop(12)
    trace.host("cuda_runtime", "cudaDeviceSynchronize", 11_200, 11_750, correlation=9000)
    kernels(trace)[-1]["dur"] += 400
    assert result_of(trace).failed == ()


def test_one_early_and_one_long_operation_are_not_a_fault() -> None:
    trace = matmul_loop(12)
    first, *others = kernels(trace)
    first["ts"] -= 100
    others[5]["dur"] += 400
    assert result_of(trace).failed == ()


@pytest.mark.parametrize(
    ("steps", "factor", "withheld"),
    [
        (40, 1000, "long"),
        (3, 1000, "long"),
        (40, 10, None),
        (40, 0.1, None),
        (40, 0.001, "short"),
        (6, 0.001, "short"),
        (6, 1, None),
    ],
)
def test_times_in_another_unit_are_the_headline(steps: int, factor: float, withheld: str | None) -> None:
    trace = matmul_loop(steps)
    for event in trace.events:
        event["ts"] *= factor
        event["dur"] *= factor
    result = result_of(trace)
    failed = {check.key for check in result.failed}
    for sign in ("long", "short"):
        assert (f"times_too_{sign}" in failed) == (sign == withheld)
        assert (headline(result) == f"The times are impossibly {sign}. Probably, their unit is not microseconds.") == (
            sign == withheld
        )


@pytest.mark.parametrize(("first_dur", "bounded"), [(600.5, True), (600, False)])  # Whole microseconds: the rest was cut off.
def test_kernels_without_duration_make_the_busy_share_a_lower_bound(first_dur: float, bounded: bool) -> None:
    trace = matmul_loop(12)
    first, *others = kernels(trace)
    first["dur"] = first_dur
    others[7]["dur"] = others[12]["dur"] = 0
    result = result_of(trace)
    assert ("durations_missing" in {check.key for check in result.failed}) == bounded
    assert result.metrics["gpu_busy_share"].bound == ("least" if bounded else None)


@pytest.mark.parametrize(("linked", "doubted"), [(False, True), (True, False)])
def test_work_on_streams_without_a_launch_causes_a_doubt(linked: bool, doubted: bool) -> None:
    trace = matmul_loop(12)
    for event in kernels(trace):
        other = {**event, "ts": event["ts"] + 3, "args": {**event["args"], "stream": 99}, "tid": 99}
        if not linked:
            del other["args"]["correlation"]
        trace.events.append(other)
    result = result_of(trace)
    assert ("foreign_streams" in {check.key for check in result.failed}) == doubted
    assert (result.metrics["gpu_busy_share"].trust == "ok") != doubted


def test_thousands_of_short_event_queries_are_no_wrong_unit() -> None:
    # Each step of 1,000 µs ends with 300 queries of 0.3 µs.
    trace = matmul_loop(12)
    for step in range(12):
        for query in range(300):
            at = 1000 * step + 700 + 0.5 * query
            trace.host("cuda_runtime", "cudaEventQuery", at, at + 0.3)
    assert result_of(trace).failed == ()
