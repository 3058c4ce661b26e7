"""Tests of the gain of edits: the replay's change applied to the run's step, with its interval."""

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
    TimedOps,
    WithoutCalls,
    WithoutHostCause,
    WithoutWaits,
    apply,
)
from sawtooth.analysis.replay.simulation import replay, step_times
from sawtooth.analysis.replay.whatif import WhatIf
from tests.support.replay_traces import loading, problem_of
from tests.support.tiny_trace import TinyTrace

SECOND = (1, 3, 5)  # the second call of each of the three steps


@pytest.mark.parametrize("edit", [AsGraph(), FasterHost(0.0)])
def test_a_step_launched_earlier_is_not_shorter_than_its_gpu_work(edit: Edit) -> None:
    # A step of 100 µs: a kernel of 20 µs on one stream, later one of 20 µs on another. Nothing recorded says that the second waits for the first,
    # so launched together both would run at once. The GPU works 40 µs a step.
    trace = TinyTrace()
    for k in range(3):
        t = 100.0 * k
        trace.step(t, t + 100)
        trace.op("aten::slow", t + 1, t + 45)
        trace.op("aten::slow", t + 50, t + 99)
        trace.launch((t + 5, t + 10), (t + 20, t + 40), stream=7)
        trace.launch((t + 90, t + 95), (t + 97, t + 117), stream=8)
    problem = problem_of(trace)
    edited = apply(problem, [edit])
    assert step_times(edited, replay(edited), 0, problem.steps).max() < 40_000
    assert WhatIf(problem, 0, problem.steps).step_ms((edit,)) == pytest.approx(0.040)


def of_step(ms: float, source: str) -> BestStepTime:
    return BestStepTime(source, Reading(ms), Reading(ms), Reading(0.1), ms, represented=source != "telemetry")


@pytest.mark.parametrize(
    ("source", "best_us", "edit", "expected_us"),
    [
        # A step of 100 µs: the kernels of 3 µs end 5 µs after their launches, which are all that holds them up. The GPU works 6, and takes 0.1
        # to begin each of the two at the least.
        ("user", 100, FasterHost(0.0), 6.2),
        ("user", 50, FasterHost(0.0), 6.2),  # half of the replay's step: half of its waits, all of its work
        ("user", 200, FasterHost(0.0), 6.2),  # the 100 µs beyond the replay are waits as well
        ("user", 147, FasterHost(0.5), 72),  # of 94 µs of waits 44 are left: 50, and as much of the 47 beyond the replay
        ("user", 6, FasterHost(0.0), 6),
        ("user", 3, FasterHost(0.0), 3),  # shorter than the GPU's work as recorded: the work fills it
        ("user", 50, WithoutCalls(SECOND), 40),  # 80 of 100
        ("telemetry", 90, FasterHost(0.0), 6.2),  # 90 − 94 is nothing that a step can take
        ("telemetry", 150, FasterHost(0.0), 56),
        ("telemetry", 150, WithoutCalls(SECOND), 130),  # 20 of the profiled 100 go
        ("telemetry", 150, WithoutCalls(SECOND, slower_in_run=True), 80),  # and the 50 beyond the replay with them
        ("user", 3, ScaledOps((0, 1, 2, 3, 4, 5), 0.5), 3),  # the host sets the pace
    ],
)
def test_prediction_is_at_least_the_remaining_gpu_work(source: str, best_us: float, edit: Edit, expected_us: float) -> None:
    whatif = WhatIf(problem_of(loading()), 0, problem_of(loading()).steps)
    assert whatif.predict_ms(of_step(best_us / 1000, source), [edit]) == pytest.approx(expected_us / 1000, rel=1e-3)


def test_interval_includes_time_beyond_the_replay() -> None:
    # A step of 100 µs in the replay, 6 of them the GPU's: of a run of 150 a quick host leaves 6, or 56 if the other 50 are no launching.
    whatif = WhatIf(problem_of(loading()), 0, problem_of(loading()).steps)
    between = whatif.predict_range_ms(of_step(0.150, "user"), [FasterHost(0.0)])
    assert between is not None and between[0] <= 0.006 and between[1] >= 0.056
    close = whatif.predict_range_ms(of_step(0.120, "user"), [FasterHost(0.0)])  # 6, or 26 with the other 20
    assert close is not None and close[1] == pytest.approx(0.026 + 0.15 * 0.0062)
    none = whatif.predict_range_ms(of_step(0.100, "user"), [FasterHost(0.0)])
    assert none is not None and none[1] == pytest.approx(0.0062 * 1.15)


def waiting(kernel_us: float = 40) -> WhatIf:
    """Return steps of 60 µs of the host, each followed by a kernel of 100 µs that the host waits for."""
    trace = TinyTrace()
    for k in range(4):
        t = (60 + kernel_us) * k
        trace.step(t, t + 60 + kernel_us)
        trace.launch((t + 50, t + 55), (t + 55, t + 55 + kernel_us))
        trace.call("cudaStreamSynchronize", t + 55, t + 55 + kernel_us)
    problem = problem_of(trace)
    return WhatIf(problem, 0, problem.steps)


def hiding() -> WhatIf:
    """Return steps of 100 µs on a host that never waits, with a kernel of 40 µs in each."""
    trace = TinyTrace()
    for k in range(4):
        t = 100.0 * k
        trace.step(t, t + 100)
        trace.launch((t + 90, t + 95), (t + 97, t + 137))
    problem = problem_of(trace)
    return WhatIf(problem, 0, problem.steps)


def test_a_run_shorter_than_its_replay_has_a_faster_host() -> None:
    # 70 of 100 µs: the host takes half of its 60. Without the wait the kernel's 40 are left, and not 70 % of the slow host's 60.
    assert waiting().predict_ms(of_step(0.070, "user"), [WithoutWaits()]) == pytest.approx(0.040, rel=0.01)
    assert waiting().predict_ms(of_step(0.070, "telemetry"), [WithoutWaits()]) == pytest.approx(
        0.0401
    )  # 70 − 40, the GPU's work at least and its dispatch


def test_a_stage_waits_for_the_passes_of_its_pipeline() -> None:
    # 40 of 100 µs are the stage's kernel; all stages together need 60. With half of the kernels' time they need 30.
    piped = replace(of_step(0.100, "user"), pipeline_ms=0.060)
    assert waiting().predict_ms(piped, [WithoutWaits()]) == pytest.approx(0.060)
    assert waiting().least_ms(piped, [ScaledOps((0, 1, 2, 3), 0.5, 0.5, 0.5)]) == pytest.approx(0.030)


def test_host_of_a_gpu_bound_step_has_a_range_of_speeds() -> None:
    # 40 of 100 µs, the kernel's own: the host takes 25 µs (a quarter) to 40. With half the kernel a step takes 25 then, or 40 as before.
    step, half = of_step(0.040, "user"), [ScaledOps((0, 1, 2, 3), 0.5, 0.5, 0.5)]
    assert hiding().predict_ms(step, half) == pytest.approx(0.025, rel=0.01)
    between = hiding().predict_range_ms(step, half)
    # A fifth of the 15 gained is 3, less than 15 % of the 25 that are left.
    assert between is not None and between == pytest.approx((0.025 - 0.003, 0.040 + 0.003), rel=0.02)


def hidden(host_us: float = 50, kernel_us: float = 100) -> WhatIf:
    """Return a host that queues a longer kernel every ``host_us``, so a step takes ``kernel_us``."""
    trace = TinyTrace()
    for k in range(4):
        queued, ready = host_us * (k + 1), host_us - 3 + kernel_us * k
        trace.step(queued - host_us, queued)
        trace.launch((queued - 10, queued - 5), (ready, ready + kernel_us))
    problem = problem_of(trace)
    return WhatIf(problem, 0, problem.steps)


def test_a_hidden_host_may_limit_the_step_of_a_faster_gpu() -> None:
    # The GPU takes 100 µs, then 30. The host's 50 were hidden, and are known within a factor of 1.6 only: 50 of 31 to 80.
    step, quick = of_step(0.100, "user"), [ScaledOps((0, 1, 2, 3), 0.3, 0.3, 0.3)]
    assert hidden().predict_ms(step, quick) == pytest.approx(0.050, rel=0.02)
    between = hidden().predict_range_ms(step, quick)
    off = 0.15 * 0.050
    assert between is not None and between == pytest.approx((0.030, 0.050 * 1.6 + off), rel=0.05), "its work is 30"


def test_a_run_slightly_shorter_than_its_replay_is_still_gpu_bound() -> None:
    # 99.5 of 100 µs: no host four times as quick is known by that. With the GPU's 100 gone to 30 the host's 50 are left, or up to 80 of them.
    step, quick = of_step(0.0995, "user"), [ScaledOps((0, 1, 2, 3), 0.3, 0.3, 0.3)]
    assert hidden().predict_ms(step, quick) == pytest.approx(0.050, rel=0.02)
    between = hidden().predict_range_ms(step, quick)
    assert between is not None and between[1] > 0.075


def test_hidden_host_has_a_lower_speed_limit() -> None:
    # A host of 80 µs behind a GPU of 100: at most 1.25 times as slow, or the GPU would not hide it. With the GPU's 100 gone to 30, between
    # 80 / 1.6 and 100 µs, to within a halving of the ratio 1.6 three times (6 %).
    whatif = hidden(80)
    quick = [ScaledOps((0, 1, 2, 3), 0.3, 0.3, 0.3)]
    between = whatif.predict_range_ms(of_step(0.100, "user"), quick)
    middle = whatif.predict_ms(of_step(0.100, "user"), quick)
    assert between is not None and middle == pytest.approx(0.080, rel=0.02)
    off = min(0.2 * 0.020, 0.15 * 0.080)
    assert between[0] == pytest.approx(0.050 - off, rel=0.03)
    assert 0.094 <= between[1] - off <= 0.1015


def test_uncertainty_of_another_run_grows_with_gpu_waits() -> None:
    step, none, quick = of_step(0.100, "user"), (0.050, 0.060), [ScaledOps((0, 1, 2, 3), 0.3)]
    assert hidden().range_of_another_run_ms(step, quick, none) == pytest.approx(
        (0.050 * 0.88, 0.060 * 1.12)
    )  # it waits 20 of 50 µs
    assert hidden().range_of_another_run_ms(step, quick, (0.050, 0.095)) == pytest.approx(
        (0.044, 0.100)
    )  # no further than the step now
    assert hidden().range_of_another_run_ms(step, quick, (0.050, 0.110)) == pytest.approx(
        (0.044, 0.110 * 1.03)
    )  # two runs differ by that much anyway
    longer = (0.105, 0.110)
    assert hidden().range_of_another_run_ms(step, [], longer) == pytest.approx(
        (0.105 * 0.97, 0.110 * 1.03)
    )  # it waits for nothing
    assert hidden().range_of_another_run_ms(step, [], none)[0] == pytest.approx(
        0.96 * 0.100
    )  # its work, in a run with quicker kernels


@pytest.mark.parametrize(
    ("edit", "low_us", "high_us"),
    [
        # Of 100 µs 40 are kernels, which take 20: 80, a gain of 20, a fifth of which is 4. Kernels without an interval take 16 to 25.
        (ScaledOps((0, 1, 2, 3), 0.5), 76 - 4, 85 + 4),
        (TimedOps((0, 1, 2, 3), (20_000,) * 4), 76 - 4, 85 + 4),
        (ScaledOps((0, 1, 2, 3), 0.5, 0.45, 0.55), 78 - 4, 82 + 4),
        (TimedOps((0, 1, 2, 3), (20_000,) * 4, (18_000,) * 4, (22_000,) * 4), 78 - 4, 82 + 4),
        # Without waits 60: reads may have cost as much again as the 40 gained, but the GPU works 40. A fifth of 40 is 8, less than 15 % of 60.
        (WithoutWaits(), 40, 60 + 8),
    ],
)
def test_interval_includes_errors_of_kernel_times_and_replay(edit: Edit, low_us: float, high_us: float) -> None:
    assert waiting().predict_range_ms(of_step(0.100, "user"), [edit]) == pytest.approx((low_us / 1000, high_us / 1000))


def test_cost_of_reads_may_double_the_gain() -> None:
    # Of 80 µs 60 are left: 20 gained, 20 more perhaps; a fifth of 20 is 4. A further edit beside it changes nothing of that.
    for edits in ([WithoutWaits()], [WithoutWaits(), FasterHost(1.0)]):
        assert waiting(20).predict_range_ms(of_step(0.080, "user"), edits) == pytest.approx((0.036, 0.064))


def test_additional_waiting_is_not_scaled_to_the_run() -> None:
    # Kernels of 20 instead of 40 µs under a host of 100: the GPU waits 80 instead of 60, and the run's 30 beyond the replay stay 30.
    assert hiding().step_ms() == pytest.approx(0.100)
    assert hiding().predict_ms(of_step(0.130, "user"), [ScaledOps((0, 1, 2, 3), 0.5)]) == pytest.approx(0.130)


def test_partly_remaining_causes_and_cut_graphs_widen_the_upper_end() -> None:
    # The loader's 50 of 100 µs go, or half of them: 50 to 75, ± 15 % of 50.
    loop = WhatIf(problem_of(loading()), 0, problem_of(loading()).steps)
    between = loop.predict_range_ms(of_step(0.100, "user"), [WithoutHostCause("data_wait", keep_at_most=0.5)])
    assert between == pytest.approx((0.0425, 0.0825))
    graph = waiting().predict_range_ms(of_step(0.100, "user"), [AsGraph()])
    whole, cut = (waiting().predict_ms(of_step(0.100, "user"), [AsGraph(waits_stay=stay)]) for stay in (False, True))
    assert graph is not None and whole is not None and cut is not None and whole < cut < graph[1]


def test_completely_removed_causes_and_faster_hosts_widen_the_lower_end() -> None:
    # Of the loader's 50 of 100 µs all stay as it is likely, none at the best: 50 less the 7.5 that 15 % of the step are.
    loop = WhatIf(problem_of(loading()), 0, problem_of(loading()).steps)
    edit = WithoutHostCause("data_wait", keep_share=1.0, keep_at_least=0.0)
    low, high = loop.predict_range_ms(of_step(0.100, "user"), [edit]) or (0, 0)
    assert (loop.predict_ms(of_step(0.100, "user"), [edit]), low, high) == pytest.approx((0.100, 0.050, 0.100))
    host = loop.predict_range_ms(of_step(0.100, "user"), [FasterHost(1.0, low=0.5)])
    quick = loop.predict_ms(of_step(0.100, "user"), [FasterHost(0.5)])
    assert host is not None and quick is not None and host == pytest.approx((quick, 0.100))


def test_faster_selected_calls_do_not_change_the_others() -> None:
    loop = WhatIf(problem_of(loading()), 0, problem_of(loading()).steps)
    none, every = (loop.step_ms([FasterHost(0.5, calls)]) for calls in ((), tuple(loop.problem.host.call.tolist())))
    assert none == loop.step_ms() and every == loop.step_ms([FasterHost(0.5)]) and every < none


def test_only_loader_changes_gain_if_workers_limit_the_run() -> None:
    # 150 µs where the profile shows 100, in which the workers' queue was full: without the host's 50 it may take 150 still.
    loop = WhatIf(problem_of(loading()), 0, problem_of(loading()).steps)
    hidden = of_step(0.150, "telemetry")
    between = loop.predict_range_ms(hidden, [FasterHost(0.5)])
    assert between is not None and between[0] < 0.110 and between[1] == 0.150
    told = replace(hidden, estimate=Reading(0.1, low=0.06, high=0.16))
    assert (loop.predict_range_ms(told, [FasterHost(0.5)]) or (0, 0))[1] < 0.150
    assert (loop.predict_range_ms(hidden, [WithoutHostCause("data_wait")]) or (0, 0))[1] < 0.150


def test_step_is_at_least_the_loader_time() -> None:
    # Without the wait 60 of 100 µs would be left. The workers need 75 of them, 70 at the least and more than the step at the most.
    step = replace(of_step(0.100, "user"), feeding=Feeding(ms=0.075, low_ms=0.070, high_ms=0.130, workers=4))
    assert waiting().predict_ms(step, [WithoutWaits()]) == pytest.approx(0.075)
    assert waiting().predict_range_ms(step, [WithoutWaits()]) == pytest.approx((0.070, 0.100))  # they feed a step of 100 now
    quick = replace(of_step(0.100, "user"), feeding=Feeding(ms=0.010, low_ms=0.005, high_ms=0.020, workers=4))
    assert waiting().predict_ms(quick, [WithoutWaits()]) == pytest.approx(0.060), "and workers that keep up change nothing"


def test_loader_edit_changes_the_loader_time() -> None:
    # The loader's 50 of 100 µs go, whatever else is changed beside. A host twice as quick leaves 50 as well, but its loader still needs 75.
    step = replace(of_step(0.100, "user"), feeding=Feeding(ms=0.075, low_ms=0.070, high_ms=0.080, workers=4))
    loop = WhatIf(problem_of(loading()), 0, problem_of(loading()).steps)
    for edits in ([WithoutHostCause("data_wait")], [WithoutHostCause("data_wait"), WithoutWaits()]):
        assert loop.predict_ms(step, edits) == pytest.approx(0.050)
    for edit in (FasterHost(0.5), WithoutHostCause("python_host")):
        assert loop.predict_ms(step, [edit]) >= 0.075


def test_time_beyond_the_replay_may_stay_or_disappear_completely() -> None:
    # Of 100 µs in the replay 40 are the kernel's, which then takes 20: 80. A run of 150 would take 130, by what the GPU waits in it; 80 where the 50
    # beyond the replay were the kernel's, and 130 where they stay. A fifth of the 20 gained is 4.
    half = [ScaledOps((0, 1, 2, 3), 0.5, 0.5, 0.5)]
    assert waiting().predict_range_ms(of_step(0.150, "user"), half) == pytest.approx((0.076, 0.134))
    # A call and its kernel of 3 µs go from steps of 100, in which the GPU works 6, and take 20 with them: by the 77 it waits then, 80 + 50 × 77/94 are left of 150, or 130.
    # They may have cost as much again, which is less than the 50.
    gone = WhatIf(problem_of(loading()), 0, problem_of(loading()).steps)
    off = 0.2 * (0.150 - (0.080 + 0.050 * 77 / 94))
    assert gone.predict_range_ms(of_step(0.150, "user"), [WithoutCalls(SECOND)]) == pytest.approx((0.080 - off, 0.130 + off))


def test_the_remaining_step_shrinks_with_the_waits() -> None:
    # Of 100 µs in the replay 80 are left, and 80 of a run of 150 where the other 50 are these calls' too. Where they are not, 77/94 of them stay,
    # as the GPU then waits 77 µs instead of 94. They may have cost as much
    # again as the 70 they take, but the GPU works 3. A fifth of 70 is 14, more than 15 % of 80.
    loop, off = WhatIf(problem_of(loading()), 0, problem_of(loading()).steps), 0.15 * 0.080
    for source in ("user", "telemetry"):
        between = loop.predict_range_ms(of_step(0.150, source), [WithoutCalls(SECOND, slower_in_run=True)])
        assert between == pytest.approx((0.003, 0.080 + 0.050 * 77 / 94 + off))


def test_the_interval_starts_at_the_remaining_gpu_work() -> None:
    # The GPU works 6 of 100 µs; a call and its kernel of 3 go, or the host becomes as quick as can be.
    loop = WhatIf(problem_of(loading()), 0, problem_of(loading()).steps)
    for edit, least_us in (
        (FasterHost(0.0), 6.0),
        (WithoutCalls(SECOND), 3.0),
        (WithoutCalls(SECOND, slower_in_run=True), 3.0),
    ):
        for step_us in (7, 10, 100, 150):
            step = of_step(step_us / 1000, "user")
            low, high = loop.predict_range_ms(step, [edit]) or (0, 0)
            middle, another = loop.predict_ms(step, [edit]) or 0, loop.range_of_another_run_ms(step, [edit], (low, high))
            assert 0.96 * least_us / 1000 <= another[0] <= 0.97 * low <= low <= middle <= high <= another[1]
    half = ScaledOps((0, 1, 2, 3), 0.5, 0.25, 0.75)
    assert waiting().least_ms(of_step(0.100, "user"), [half]) == pytest.approx(0.010), "40 µs of kernels, at their quickest"
    assert waiting().least_ms(of_step(0.020, "user"), [half]) == pytest.approx(0.005), "of half of the work that was recorded"


def test_gpu_without_waits_gains_only_from_kernels() -> None:
    # Kernels of 120 µs under a host of 100: the replay never waits, so that the run's 130 are its work too.
    whatif = hidden(100, 120)
    assert whatif.step_ms() == pytest.approx(0.120)
    assert whatif.predict_ms(of_step(0.130, "user"), [ScaledOps((0, 1, 2, 3), 0.9)]) == pytest.approx(0.130 * 108 / 120)


def test_kernels_too_short_to_predict_leave_the_host_prediction() -> None:
    trace = TinyTrace()
    for k in range(4):
        trace.step(100.0 * k, 100.0 * k + 100)
        trace.launch((100.0 * k + 90, 100.0 * k + 95), (100.0 * k + 97, 100.0 * k + 97))
    whatif = WhatIf(problem_of(trace), 0, problem_of(trace).steps)
    assert whatif.predict_ms(of_step(0.100, "user"), [FasterHost(0.5)]) == pytest.approx(0.050, rel=0.1)


def test_no_prediction_without_a_step_time_or_counted_steps() -> None:
    unknown = BestStepTime("profile", *[missing("Not known.")] * 3, None)
    assert waiting().predict_ms(unknown, [WithoutWaits()]) is None
    assert waiting().predict_range_ms(unknown, [WithoutWaits()]) is None
    none = WhatIf(waiting().problem, 0, waiting().counted[:0])
    assert none.step_ms() is None and none.predict_ms(of_step(0.100, "user"), [WithoutWaits()]) is None
    # What two runs differ by is all that is known of another one then; and without a step to be no longer than, no more above.
    assert none.range_of_another_run_ms(of_step(0.100, "user"), [], (0.050, 0.060)) == pytest.approx(
        (0.050 * 0.97, 0.060 * 1.03)
    )
    assert waiting().range_of_another_run_ms(unknown, [], (0.050, 0.060)) == pytest.approx((0.050 * 0.88, 0.060 * 1.03))
