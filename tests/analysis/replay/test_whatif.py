"""Tests of the gain of edits: the replay's change applied to the run's step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sawtooth.analysis.metrics.loader_rate import Feeding
from sawtooth.analysis.metrics.reading import Reading, missing
from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.replay.edits import (
    AsGraph,
    Edit,
    FasterHost,
    ScaledOps,
    WithoutCalls,
    WithoutHostCause,
    WithoutWaits,
    apply,
)
from sawtooth.analysis.replay.simulation import replay, step_times
from sawtooth.analysis.replay.whatif import WhatIf
from sawtooth.ingest.loop.step_parts import STALL, StepParts
from tests.support.replay_traces import best_step_time, loading, never_waiting, problem_of, queueing_ahead, waiting_in_each_step
from tests.support.tiny_trace import TinyTrace

SECOND = (1, 3, 5)  # The second call of each of the three steps.
TWO_HOSTS = 0.14 * 2**0.5  # The drift of a host's speed in this run and, independently, in the next one.


@pytest.mark.parametrize("edit", [AsGraph(), FasterHost(0.0)])
def test_a_step_launched_earlier_is_not_shorter_than_its_gpu_work(edit: Edit) -> None:
    # A step of 100 µs has a kernel of 20 µs on each of two streams. The recording shows no wait between them,
    # so both would run at once if they were launched together. The GPU works 40 µs per step.
    trace = TinyTrace()
    for t in trace.each_step(3, 100.0):
        trace.op("aten::slow", t + 1, t + 45)
        trace.op("aten::slow", t + 50, t + 99)
        trace.launch((t + 5, t + 10), (t + 20, t + 40), stream=7)
        trace.launch((t + 90, t + 95), (t + 97, t + 117), stream=8)
    problem = problem_of(trace)
    edited = apply(problem, [edit])
    assert step_times(edited, replay(edited), 0, problem.steps).max() < 40_000
    assert WhatIf(problem, 0, problem.steps).step_ms((edit,)) == pytest.approx(0.040)


@pytest.mark.parametrize(
    ("source", "best_us", "edit", "expected_us"),
    [
        # In a step of 100 µs, two kernels of 3 µs end 5 µs after their launches and wait only for these. The GPU works 6 µs and
        # needs at least 0.1 µs to start each kernel.
        ("user", 100, FasterHost(0.0), 6.2),
        ("user", 50, FasterHost(0.0), 6.2),  # The run's step is half of the replay's: half of its waits and all of its work.
        ("user", 200, FasterHost(0.0), 6.2),  # The run's step is 100 µs longer than the replay's. These 100 µs are waits too.
        (
            "user",
            147,
            FasterHost(0.5),
            72,
        ),  # 44 of 94 µs of waits remain: 50 µs, and the same share of the 47 µs beyond the replay.
        ("user", 6, FasterHost(0.0), 6),
        ("user", 3, FasterHost(0.0), 3),  # The step is shorter than the recorded GPU work, so it is all work.
        ("user", 50, WithoutCalls(SECOND), 40),  # 80 of 100
        ("telemetry", 90, FasterHost(0.0), 6.2),  # 90 − 94 µs would be negative.
        ("telemetry", 150, FasterHost(0.0), 56),
        ("telemetry", 150, WithoutCalls(SECOND), 130),  # 20 of the profiled 100 µs are removed.
        ("telemetry", 150, WithoutCalls(SECOND, slower_in_run=True), 80),  # The 50 µs beyond the replay are removed, too.
        ("user", 3, ScaledOps((0, 1, 2, 3, 4, 5), 0.5), 3),  # The host limits the step.
    ],
)
def test_prediction_is_at_least_the_remaining_gpu_work(source: str, best_us: float, edit: Edit, expected_us: float) -> None:
    whatif = WhatIf(problem_of(loading()), 0, problem_of(loading()).steps)
    assert whatif.predict_ms(best_step_time(best_us / 1000, source), [edit]) == pytest.approx(expected_us / 1000, rel=1e-3)


def test_a_run_shorter_than_its_replay_has_a_faster_host() -> None:
    # The run takes 70 of 100 µs, so the host takes half of its 60 µs. Without the wait, the kernel's 40 µs remain, not 70 % of the slow host's 60 µs.
    assert waiting_in_each_step().predict_ms(best_step_time(0.070, "user"), [WithoutWaits()]) == pytest.approx(0.040, rel=0.01)
    # 70 − 40 µs is less than the GPU's work with its dispatch, which is the least.
    assert waiting_in_each_step().predict_ms(best_step_time(0.070, "telemetry"), [WithoutWaits()]) == pytest.approx(0.0401)


def test_rare_stalls_of_one_rank_stay() -> None:
    # The run takes 100 µs as in the replay, and 30 µs per step in rare stalls. Without the wait, the host's 60 µs and the stalls remain.
    best = best_step_time(0.130, "user")
    stalled = replace(best, parts=StepParts(None, 0.0, 0.0, 0, 4, apart_ms=((STALL, 0.030),)))
    unstalled = best_step_time(0.100, "user")
    predicted, without = (waiting_in_each_step().predict_ms(step, [WithoutWaits()]) for step in (stalled, unstalled))
    assert predicted is not None and without is not None and without < 0.070
    assert predicted == pytest.approx(without + 0.030)
    between, rest = (waiting_in_each_step().predict_range_ms(step, [WithoutWaits()]) for step in (stalled, unstalled))
    assert between is not None and rest is not None
    assert between == pytest.approx((rest[0] + 0.030, rest[1] + 0.030))


def test_a_stage_waits_for_the_passes_of_its_pipeline() -> None:
    # The stage's kernel takes 40 of 100 µs. All stages together need 60 µs, and with kernels twice as fast 30 µs.
    piped = replace(best_step_time(0.100, "user"), pipeline_ms=0.060)
    assert waiting_in_each_step().predict_ms(piped, [WithoutWaits()]) == pytest.approx(0.060)
    assert waiting_in_each_step().least_ms(piped, [ScaledOps((0, 1, 2, 3), 0.5, 0.5, 0.5)]) == pytest.approx(0.030)


def test_host_of_a_gpu_bound_step_has_a_range_of_speeds() -> None:
    # The run takes 40 of 100 µs, as long as the kernel, so the host takes 25 (a quarter) to 40 µs. With half the kernel, a step takes 25 to 40 µs.
    step, half = best_step_time(0.040, "user"), [ScaledOps((0, 1, 2, 3), 0.5, 0.5, 0.5)]
    assert never_waiting().predict_ms(step, half) == pytest.approx(0.025, rel=0.01)
    between = never_waiting().predict_range_ms(step, half)
    # A fifth of the gain of 15 µs is 3 µs, less than 15 % of the remaining 25 µs.
    assert between is not None and between == pytest.approx((0.025 - 0.003, 0.040 + 0.003), rel=0.02)


def test_a_hidden_host_may_limit_the_step_of_a_faster_gpu() -> None:
    # The GPU takes 100 µs, then 30 µs. The host's 50 µs were hidden and are known only within a factor of 1.6: 31 to 80 µs.
    step, fast = best_step_time(0.100, "user"), [ScaledOps((0, 1, 2, 3), 0.3, 0.3, 0.3)]
    assert queueing_ahead().predict_ms(step, fast) == pytest.approx(0.050, rel=0.02)
    between = queueing_ahead().predict_range_ms(step, fast)
    off = 0.15 * 0.050
    assert between is not None and between == pytest.approx((0.030, 0.050 * 1.6 + off), rel=0.05), "the GPU's work is 30 µs"


def test_a_run_slightly_shorter_than_its_replay_is_still_gpu_bound() -> None:
    # A run of 99.5 µs with a replay of 100 µs does not show a host that is four times as fast. If the GPU takes 30 instead of
    # 100 µs, the host's 50 to 80 µs remain.
    step, fast = best_step_time(0.0995, "user"), [ScaledOps((0, 1, 2, 3), 0.3, 0.3, 0.3)]
    assert queueing_ahead().predict_ms(step, fast) == pytest.approx(0.050, rel=0.02)
    between = queueing_ahead().predict_range_ms(step, fast)
    assert between is not None and between[1] > 0.075


def test_hidden_host_has_a_lower_speed_limit() -> None:
    # The GPU takes 100 µs and hides a host of 80 µs, so the host is at most 1.25 times as slow. If the GPU takes 30 µs, the step takes
    # 80 / 1.6 to 100 µs. The ratio 1.6 is halved three times, which gives an error of 6 %.
    whatif = queueing_ahead(80)
    fast = [ScaledOps((0, 1, 2, 3), 0.3, 0.3, 0.3)]
    between = whatif.predict_range_ms(best_step_time(0.100, "user"), fast)
    middle = whatif.predict_ms(best_step_time(0.100, "user"), fast)
    assert between is not None and middle == pytest.approx(0.080, rel=0.02)
    off = min(0.2 * 0.020, 0.15 * 0.080)
    assert between[0] == pytest.approx(0.050 - off, rel=0.03)
    assert 0.094 <= between[1] - off <= 0.1015


def test_additional_waiting_is_not_scaled_to_the_run() -> None:
    # Kernels take 20 instead of 40 µs, and the host takes 100 µs: the GPU waits 80 instead of 60 µs. The run's 30 µs beyond the replay stay.
    assert never_waiting().step_ms() == pytest.approx(0.100)
    assert never_waiting().predict_ms(best_step_time(0.130, "user"), [ScaledOps((0, 1, 2, 3), 0.5)]) == pytest.approx(0.130)


def test_faster_selected_calls_do_not_change_the_others() -> None:
    loop = WhatIf(problem_of(loading()), 0, problem_of(loading()).steps)
    none, every = (loop.step_ms([FasterHost(0.5, calls)]) for calls in ((), tuple(loop.problem.host.call.tolist())))
    assert none == loop.step_ms() and every == loop.step_ms([FasterHost(0.5)]) and every < none


def test_only_loader_changes_gain_if_workers_limit_the_run() -> None:
    # The run takes 150 µs and the profile 100 µs, in which the workers' queue was full. Without the host's 50 µs, the run may still take 150 µs.
    loop = WhatIf(problem_of(loading()), 0, problem_of(loading()).steps)
    queueing_ahead = best_step_time(0.150, "telemetry")
    between = loop.predict_range_ms(queueing_ahead, [FasterHost(0.5)])
    assert between is not None and between[0] < 0.110 and between[1] == 0.150
    ranged = replace(queueing_ahead, estimate=Reading(0.1, low=0.06, high=0.16))
    assert (loop.predict_range_ms(ranged, [FasterHost(0.5)]) or (0, 0))[1] < 0.150
    assert (loop.predict_range_ms(queueing_ahead, [WithoutHostCause("data_wait")]) or (0, 0))[1] < 0.150


def test_step_is_at_least_the_loader_time() -> None:
    # Without the wait, 60 of 100 µs would remain. The workers need 75 µs: at least 70 µs, and at most more than the step.
    step = replace(best_step_time(0.100, "user"), feeding=Feeding(ms=0.075, low_ms=0.070, high_ms=0.130, workers=4))
    assert waiting_in_each_step().predict_ms(step, [WithoutWaits()]) == pytest.approx(0.075)
    # They can feed the current step of 100 µs.
    assert waiting_in_each_step().predict_range_ms(step, [WithoutWaits()]) == pytest.approx((0.070, 0.100))
    fast = replace(best_step_time(0.100, "user"), feeding=Feeding(ms=0.010, low_ms=0.005, high_ms=0.020, workers=4))
    assert waiting_in_each_step().predict_ms(fast, [WithoutWaits()]) == pytest.approx(0.060), (
        "workers that are fast enough change nothing"
    )


def test_loader_edit_changes_the_loader_time() -> None:
    # The loader's 50 of 100 µs are removed, with or without another change. A host twice as fast also leaves 50 µs, but its loader still needs 75 µs.
    step = replace(best_step_time(0.100, "user"), feeding=Feeding(ms=0.075, low_ms=0.070, high_ms=0.080, workers=4))
    loop = WhatIf(problem_of(loading()), 0, problem_of(loading()).steps)
    for edits in ([WithoutHostCause("data_wait")], [WithoutHostCause("data_wait"), WithoutWaits()]):
        assert loop.predict_ms(step, edits) == pytest.approx(0.050)
    for edit in (FasterHost(0.5), WithoutHostCause("python_host")):
        assert loop.predict_ms(step, [edit]) >= 0.075


def test_gpu_without_waits_gains_only_from_kernels() -> None:
    # Kernels take 120 µs and the host 100 µs. The replay never waits, so the run's 130 µs are work, too.
    whatif = queueing_ahead(100, 120)
    assert whatif.step_ms() == pytest.approx(0.120)
    assert whatif.predict_ms(best_step_time(0.130, "user"), [ScaledOps((0, 1, 2, 3), 0.9)]) == pytest.approx(0.130 * 108 / 120)


def test_kernels_too_short_to_predict_leave_the_host_prediction() -> None:
    trace = TinyTrace()
    for k in range(4):
        trace.step(100.0 * k, 100.0 * k + 100)
        trace.launch((100.0 * k + 90, 100.0 * k + 95), (100.0 * k + 97, 100.0 * k + 97))
    whatif = WhatIf(problem_of(trace), 0, problem_of(trace).steps)
    assert whatif.predict_ms(best_step_time(0.100, "user"), [FasterHost(0.5)]) == pytest.approx(0.050, rel=0.1)


def test_no_prediction_without_a_step_time_or_counted_steps() -> None:
    unknown = BestStepTime("profile", *[missing("Not known.")] * 3, None)
    assert waiting_in_each_step().predict_ms(unknown, [WithoutWaits()]) is None
    assert waiting_in_each_step().predict_range_ms(unknown, [WithoutWaits()]) is None
    none = WhatIf(waiting_in_each_step().problem, 0, waiting_in_each_step().counted[:0])
    assert none.step_ms() is None and none.predict_ms(best_step_time(0.100, "user"), [WithoutWaits()]) is None
    # Then only the difference between two runs is known. Without a current step, there is no upper limit.
    assert none.range_of_another_run_ms(best_step_time(0.100, "user"), [], (0.050, 0.060)) == pytest.approx(
        (0.050 * 0.97, 0.060 * 1.03)
    )
    assert waiting_in_each_step().range_of_another_run_ms(unknown, [], (0.050, 0.060)) == pytest.approx(
        (0.050 * (1 - TWO_HOSTS), 0.060 * 1.03)
    )
