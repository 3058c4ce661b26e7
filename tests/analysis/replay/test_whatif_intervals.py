"""Tests of the intervals of predicted gains."""

from __future__ import annotations

import pytest

from sawtooth.analysis.replay.edits import (
    AsGraph,
    Edit,
    FasterHost,
    ScaledOps,
    TimedOps,
    WithoutCalls,
    WithoutHostCause,
    WithoutWaits,
)
from sawtooth.analysis.replay.whatif import WhatIf
from tests.support.replay_traces import best_step_time, loading, problem_of, queueing_ahead, waiting_in_each_step

SECOND = (1, 3, 5)  # The second call of each of the three steps.

# The drift of a host's speed in this run and, independently, in the next one.
TWO_HOSTS = 0.14 * 2**0.5


def test_interval_includes_time_beyond_the_replay() -> None:
    # The replayed step takes 100 µs, with 6 µs of GPU work. In a run of 150 µs, a fast host leaves 6 µs, or 56 µs if the other 50 µs are not launches.
    whatif = WhatIf(problem_of(loading()), 0, problem_of(loading()).steps)
    between = whatif.predict_range_ms(best_step_time(0.150, "user"), [FasterHost(0.0)])
    assert between is not None and between[0] <= 0.006 and between[1] >= 0.056
    close = whatif.predict_range_ms(best_step_time(0.120, "user"), [FasterHost(0.0)])  # 6 µs, or 26 µs with the other 20 µs
    assert close is not None and close[1] == pytest.approx(0.026 + 0.15 * 0.0062)
    none = whatif.predict_range_ms(best_step_time(0.100, "user"), [FasterHost(0.0)])
    assert none is not None and none[1] == pytest.approx(0.0062 * 1.15)


def test_uncertainty_of_another_run_grows_with_gpu_waits() -> None:
    step, none, fast = best_step_time(0.100, "user"), (0.050, 0.060), [ScaledOps((0, 1, 2, 3), 0.3)]
    another = queueing_ahead().range_of_another_run_ms
    assert another(step, fast, none) == pytest.approx(
        (0.050 * (1 - TWO_HOSTS), 0.060 * (1 + TWO_HOSTS))
    )  # The GPU waits 20 of 50 µs.
    assert another(step, fast, (0.050, 0.095)) == pytest.approx(
        (0.050 * (1 - TWO_HOSTS), 0.098)
    )  # The high end is below 0.98 of the current step.
    assert another(step, fast, (0.050, 0.110)) == pytest.approx(
        (0.050 * (1 - TWO_HOSTS), 0.110 * 1.03)
    )  # Two runs differ by 3 % anyway.
    assert another(step, [], (0.105, 0.110)) == pytest.approx((0.105 * 0.97, 0.110 * 1.03))  # The GPU does not wait.
    # The lower limit is the GPU's work, in a run with faster kernels.
    assert another(step, [], none)[0] == pytest.approx(0.96 * 0.100)


@pytest.mark.parametrize(
    ("edit", "low_us", "high_us"),
    [
        # Kernels take 40 of 100 µs and then 20 µs: 80 µs remain. A fifth of the gain of 20 µs is 4 µs. Kernels without an interval take 16 to 25 µs.
        (ScaledOps((0, 1, 2, 3), 0.5), 76 - 4, 85 + 4),
        (TimedOps((0, 1, 2, 3), (20_000,) * 4), 76 - 4, 85 + 4),
        (ScaledOps((0, 1, 2, 3), 0.5, 0.45, 0.55), 78 - 4, 82 + 4),
        (TimedOps((0, 1, 2, 3), (20_000,) * 4, (18_000,) * 4, (22_000,) * 4), 78 - 4, 82 + 4),
        # Without waits, 60 µs remain. Reads may have cost twice the gain of 40 µs, but the GPU works 40 µs. A fifth of 40 is 8 µs, less than 15 % of 60 µs.
        (WithoutWaits(), 40, 60 + 8),
    ],
)
def test_interval_includes_errors_of_kernel_times_and_replay(edit: Edit, low_us: float, high_us: float) -> None:
    assert waiting_in_each_step().predict_range_ms(best_step_time(0.100, "user"), [edit]) == pytest.approx(
        (low_us / 1000, high_us / 1000)
    )


def test_cost_of_reads_may_double_the_gain() -> None:
    # 60 of 80 µs remain: a gain of 20 µs, and possibly 20 µs more. A fifth of 20 is 4 µs. A second edit does not change this.
    for edits in ([WithoutWaits()], [WithoutWaits(), FasterHost(1.0)]):
        assert waiting_in_each_step(20).predict_range_ms(best_step_time(0.080, "user"), edits) == pytest.approx((0.036, 0.064))


def test_partly_remaining_causes_and_cut_graphs_widen_the_upper_end() -> None:
    # The loader's 50 of 100 µs are removed, or half of them: 50 to 75 µs, ± 15 % of 50 µs.
    loop = WhatIf(problem_of(loading()), 0, problem_of(loading()).steps)
    between = loop.predict_range_ms(best_step_time(0.100, "user"), [WithoutHostCause("data_wait", keep_at_most=0.5)])
    assert between == pytest.approx((0.0425, 0.0825))
    graph = waiting_in_each_step().predict_range_ms(best_step_time(0.100, "user"), [AsGraph()])
    complete, cut = (
        waiting_in_each_step().predict_ms(best_step_time(0.100, "user"), [AsGraph(waits_stay=stay)]) for stay in (False, True)
    )
    assert graph is not None and complete is not None and cut is not None and complete < cut < graph[1]


def test_completely_removed_causes_and_faster_hosts_widen_the_lower_end() -> None:
    # The loader takes 50 of 100 µs. Most likely all of it stays, and at best none.
    loop = WhatIf(problem_of(loading()), 0, problem_of(loading()).steps)
    edit = WithoutHostCause("data_wait", keep_share=1.0, keep_at_least=0.0)
    low, high = loop.predict_range_ms(best_step_time(0.100, "user"), [edit]) or (0, 0)
    assert (loop.predict_ms(best_step_time(0.100, "user"), [edit]), low, high) == pytest.approx((0.100, 0.050, 0.100))
    host = loop.predict_range_ms(best_step_time(0.100, "user"), [FasterHost(1.0, low=0.5)])
    fast = loop.predict_ms(best_step_time(0.100, "user"), [FasterHost(0.5)])
    assert host is not None and fast is not None and host == pytest.approx((fast, 0.100))


def test_time_beyond_the_replay_may_stay_or_disappear_completely() -> None:
    # In the replay, the kernel takes 40 of 100 µs and then 20 µs: 80 µs remain. A run of 150 µs would take 130 µs by the time that the
    # GPU waits in it. It takes 80 µs if the 50 µs beyond the replay were the kernel's, and 130 µs if they stay. A fifth of the gain is 4 µs.
    half = [ScaledOps((0, 1, 2, 3), 0.5, 0.5, 0.5)]
    assert waiting_in_each_step().predict_range_ms(best_step_time(0.150, "user"), half) == pytest.approx((0.076, 0.134))
    # A call and its kernel of 3 µs are removed from steps of 100 µs with 6 µs of GPU work. This saves 20 µs. The GPU then waits 77 µs, so
    # 80 + 50 × 77/94 of 150 µs remain, or 130 µs. The calls may have cost twice as much, which is less than the 50 µs.
    gone = WhatIf(problem_of(loading()), 0, problem_of(loading()).steps)
    off = 0.2 * (0.150 - (0.080 + 0.050 * 77 / 94))
    assert gone.predict_range_ms(best_step_time(0.150, "user"), [WithoutCalls(SECOND)]) == pytest.approx(
        (0.080 - off, 0.130 + off)
    )


def test_the_remaining_step_shrinks_with_the_waits() -> None:
    # In the replay, 80 of 100 µs remain. In a run of 150 µs, also 80 µs remain if the other 50 µs are these calls'. Otherwise 77/94 of
    # them stay, because the GPU then waits 77 instead of 94 µs. The calls may have cost twice the gain of 70 µs, but the GPU works 3 µs.
    # A fifth of 70 is 14 µs, more than 15 % of 80 µs.
    loop, off = WhatIf(problem_of(loading()), 0, problem_of(loading()).steps), 0.15 * 0.080
    for source in ("user", "telemetry"):
        between = loop.predict_range_ms(best_step_time(0.150, source), [WithoutCalls(SECOND, slower_in_run=True)])
        assert between == pytest.approx((0.003, 0.080 + 0.050 * 77 / 94 + off))


def test_the_interval_starts_at_the_remaining_gpu_work() -> None:
    # The GPU works 6 of 100 µs. A call and its kernel of 3 µs are removed, or the host takes no time.
    loop = WhatIf(problem_of(loading()), 0, problem_of(loading()).steps)
    for edit, least_us in (
        (FasterHost(0.0), 6.0),
        (WithoutCalls(SECOND), 3.0),
        (WithoutCalls(SECOND, slower_in_run=True), 3.0),
    ):
        for step_us in (7, 10, 100, 150):
            step = best_step_time(step_us / 1000, "user")
            low, high = loop.predict_range_ms(step, [edit]) or (0, 0)
            middle, another = loop.predict_ms(step, [edit]) or 0, loop.range_of_another_run_ms(step, [edit], (low, high))
            assert 0.96 * least_us / 1000 <= another[0] <= 0.97 * low <= low <= middle <= high <= another[1]
    half = ScaledOps((0, 1, 2, 3), 0.5, 0.25, 0.75)
    assert waiting_in_each_step().least_ms(best_step_time(0.100, "user"), [half]) == pytest.approx(0.010), (
        "40 µs of kernels at their fastest"
    )
    assert waiting_in_each_step().least_ms(best_step_time(0.020, "user"), [half]) == pytest.approx(0.005), (
        "for half of the recorded work"
    )
