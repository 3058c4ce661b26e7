"""Tests of the step estimate without the profiler: what it removes and what it leaves.

It is also compared with the stopwatch of the shared recordings, if these are available.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from sawtooth.analysis.derive.lost.estimate import estimate_unprofiled, replayed_schedule
from sawtooth.analysis.derive.unprofiled.cost import (
    DEFAULT_LAUNCH_NS,
    DEFAULT_WRAPPER_NS,
    FEWEST_WRAPPERS,
    LAUNCH_PER_EXCESS,
    LEAST_SHARE,
    MOST_LAUNCH_NS,
    NATIVE_LAUNCH_NS,
    OPERATOR_PER_WRAPPER,
    RecordingCost,
    recording_cost,
    without_cause,
    without_profiler,
)
from sawtooth.analysis.derive.unprofiled.problem import build_problem, host_view, recorded_waits
from sawtooth.analysis.knowledge.causes import CAUSE_KEYS, HOST_CAUSES
from sawtooth.analysis.replay.simulation import ReplayProblem, replay, step_times
from tests.support.replay_traces import codes_of
from tests.support.replay_traces import pieces as traces
from tests.support.tiny_trace import TinyTrace


def host_bound(operators: int, launch_us: float = 5, spaced: float = 4) -> TinyTrace:
    """Return three steps of one launch each, with ``operators`` operators before it.

    They begin ``spaced`` µs apart.
    """
    trace, now = TinyTrace(), 0.0
    for _ in range(3):
        begin = now
        for _ in range(operators):
            trace.op("aten::view", now, now + spaced / 2)
            now += spaced
        trace.launch((now, now + launch_us), (now + launch_us + 2, now + launch_us + 3))
        now += launch_us
        trace.step(begin, now)
    return trace


def problem_of(trace: TinyTrace) -> ReplayProblem:
    events, facts = trace.events(), trace.facts()
    return build_problem(events, trace.step_table(), facts, host_view(events, facts))


def steps_of_one_launch(count: int) -> TinyTrace:
    """Return ``count`` steps of one launch, its kernel and a wait for it."""
    trace = TinyTrace()
    for k in range(count):
        t = 100.0 * k
        trace.step(t, t + 100)
        trace.launch((t + 10, t + 15), (t + 20, t + 60))
        trace.call("cudaDeviceSynchronize", t + 15, t + 62)
    return trace


@pytest.mark.parametrize(
    ("usual", "most", "covered"),
    [(1_000, 1_000, 12), (16, 1_000, 9), (3, 1_000, 6), (3, 3, 3)],
    ids=["all where they fit", "as many as usual", "six of large steps", "three of huge ones"],
)
def test_a_long_recording_is_replayed_in_part_and_says_so(
    usual: int, most: int, covered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sawtooth.analysis.derive.unprofiled.problem.USUAL_EVENTS", usual)
    trace = steps_of_one_launch(12)
    events, facts = trace.events(), trace.facts()
    problem = build_problem(events, trace.step_table(), facts, host_view(events, facts), max_events=most)
    # Sizes count launches and operations behind the first step: 2 a step, so 16 hold 8 + 1 steps and 3 only 1 + 1.
    assert len(problem.steps) == covered
    assert problem.notes == (() if covered == 12 else (f"the replay covers the first {covered} of 12 steps",))


def test_the_ledger_has_the_waits_of_every_step() -> None:
    trace = steps_of_one_launch(12)
    events, facts = trace.events(), trace.facts()
    view = host_view(events, facts)
    whole = build_problem(events, trace.step_table(), facts, view, max_events=None)
    found = recorded_waits(events, trace.step_table(), facts, view)
    assert len(found.host) == 24 and len(found.host.wait_op) == 12  # each step's second call waits for its kernel
    for name in ("call", "thread", "start", "wait_ptr", "wait_op", "wait_cause"):
        assert np.array_equal(getattr(found.host, name), getattr(whole.host, name)), name
    assert np.array_equal(found.ops.op, whole.ops.op)


def wrappers(trace: TinyTrace, count: int, own: float) -> None:
    """Add ``count`` transposes of 2 µs, each inside a ``t`` that takes ``own`` µs more."""
    for k in range(count):
        begin = 1000 + 100.0 * k
        trace.op("aten::t", begin, begin + 2 + own)
        trace.op("aten::transpose", begin + own / 2, begin + own / 2 + 2)


def test_cost_follows_the_wrappers_and_the_launch_calls_of_the_trace() -> None:
    trace = host_bound(2)
    wrappers(trace, 10, own=2)
    cost = recording_cost(trace.events())
    assert cost.calibrated
    assert cost.operator_ns == OPERATOR_PER_WRAPPER * 2_000
    # All launch calls last 5 µs: 4.5 × (5 − 1.5), of it 0.4 × 5 within the call; other calls half of 5.
    assert (cost.launch_ns, cost.inside_ns, cost.call_ns) == (15_750, 2_000, 2_500)


def test_an_operator_that_calls_two_operators_or_launches_is_not_a_wrapper() -> None:
    trace = host_bound(2)
    wrappers(trace, 10, own=2)
    for k in range(50):
        begin = 5000 + 100.0 * k
        trace.op("aten::t", begin, begin + 60)
        trace.op("aten::transpose", begin + 5, begin + 10)
        if k % 2:
            trace.op("aten::transpose", begin + 12, begin + 20)
        else:
            trace.launch((begin + 12, begin + 20), (begin + 22, begin + 23))
    assert recording_cost(trace.events()).operator_ns == OPERATOR_PER_WRAPPER * 2_000


def test_default_costs_are_used_for_too_few_calls() -> None:
    assert not recording_cost(host_bound(2).events()).calibrated  # no wrappers
    few = host_bound(2)
    wrappers(few, FEWEST_WRAPPERS - 1, own=2)
    assert recording_cost(few.events()).operator_ns == OPERATOR_PER_WRAPPER * DEFAULT_WRAPPER_NS
    copies = TinyTrace()
    copies.step(0, 10)
    copies.copy((0, 3), (5, 6), "Memcpy DtoD (Device -> Device)")
    cost = recording_cost(copies.events())
    assert cost.launch_ns == LAUNCH_PER_EXCESS * (DEFAULT_LAUNCH_NS - NATIVE_LAUNCH_NS)
    assert recording_cost(host_bound(2, launch_us=50).events()).launch_ns == LAUNCH_PER_EXCESS * (
        MOST_LAUNCH_NS - NATIVE_LAUNCH_NS
    )


def test_the_cost_of_each_event_is_subtracted_from_its_gap() -> None:
    problem = problem_of(host_bound(10))
    # A step: 10 operators 4 µs apart, then a launch of 5: 45 µs. The gap of 40 loses 1 for each of 10 operators and the step's annotation
    # and 3 that the launch costs beside its call; the call loses 2: 29 µs.
    fast = without_profiler(problem, RecordingCost(1_000, launch_ns=5_000, inside_ns=2_000, call_ns=0))
    assert step_times(fast, replay(fast), 0, problem.steps).tolist() == [29_000, 29_000]


def test_profiler_cost_of_calls_without_launches_is_removed() -> None:
    trace = TinyTrace()
    for k in range(3):
        begin = 100.0 * k
        trace.step(begin, begin + 100)
        trace.call("cudaEventRecord", begin + 20, begin + 21)
        trace.launch((begin + 90, begin + 95), (begin + 97, begin + 98))
    problem = problem_of(trace)
    fast = without_profiler(problem, RecordingCost(0, launch_ns=0, inside_ns=0, call_ns=7_000, python_call_ns=0))
    assert step_times(fast, replay(fast), 0, problem.steps).tolist() == [93_000, 93_000]


def test_host_time_never_becomes_zero() -> None:
    problem = problem_of(host_bound(10))
    fast = without_profiler(problem, RecordingCost(1_000_000, 1_000_000, 1_000_000, 0))
    assert step_times(fast, replay(fast), 0, problem.steps).tolist() == [round(45_000 * LEAST_SHARE)] * 2


def test_waiting_for_the_loader_is_not_shortened_and_the_profilers_own_work_is_dropped() -> None:
    trace = TinyTrace()
    for k in range(3):
        t = 200.0 * k
        trace.step(t, t + 200)
        trace.op("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", t, t + 100, annotation=True)
        trace.overhead("Buffer Flush", t + 120, t + 160)
        trace.launch((t + 190, t + 195), (t + 197, t + 199))
    problem = problem_of(trace)
    fast = without_profiler(problem, RecordingCost(1_000, 0, 0, 0))
    parts = dict(zip(HOST_CAUSES, fast.host.gap_parts[1].tolist(), strict=True))
    # Gap from 195 to 390: 5 + loader 100 + 20 + flush 40 + 30; two events begin in it (the step, the loader), so 55 µs become 53.
    assert parts["data_wait"] == 100_000
    assert parts["profiler"] == 0
    assert parts["python_host"] == 53_000
    assert fast.host.gap[1] == 153_000


def test_a_device_bound_run_stays_as_it_is() -> None:
    trace = TinyTrace()
    for k in range(3):
        trace.step(10.0 * k, 10.0 * k + 10)
        trace.launch((10.0 * k + 1, 10.0 * k + 6), (8 + 101.0 * k, 108 + 101.0 * k))
    events, facts = trace.events(), trace.facts()
    view = host_view(events, facts)
    problem = build_problem(events, trace.step_table(), facts, view)
    estimate = estimate_unprofiled(events, view, problem, 0, problem.steps, codes_of(trace))
    assert estimate.step_ns == 101_000
    assert estimate.device_bound is True
    assert estimate.ledger == {("other_compute", None): 100_000, ("idle", "launch_latency"): 1_000}
    assert estimate.loses == {"launch_latency": 1_000}


def test_cost_of_syncs_is_the_gain_without_them() -> None:
    trace = TinyTrace()
    for k in range(4):
        t = 100.0 * k
        trace.step(t, t + 100)
        trace.launch((t, t + 2.5), (t + 5, t + 65))
        trace.call("cudaStreamSynchronize", t + 8, t + 68)
    events, facts = trace.events(), trace.facts()
    view = host_view(events, facts)
    problem = build_problem(events, trace.step_table(), facts, view)
    estimate = estimate_unprofiled(events, view, problem, 0, problem.steps, codes_of(trace))
    # Launch calls of 2.5 µs: one cost 4.5 × (2.5 − 1.5), 1 of it within the call. A step: launch 1.5, latency 2.5, kernel 60, 3 until the
    # sync returns, 32 − 3.5 to the next launch: 95.5 µs. Without the waits the kernels of 60 µs follow each other.
    assert estimate.step_ns == 95_500
    assert estimate.loses["host_sync"] == 35_500
    assert estimate.ledger["idle", "host_sync"] == 35_500


def test_without_steps_there_is_no_estimate() -> None:
    trace = TinyTrace()
    trace.launch((0, 5), (7, 20))
    events, facts = trace.events(), trace.facts()
    view = host_view(events, facts)
    problem = build_problem(events, trace.step_table(), facts, view)
    estimate = estimate_unprofiled(events, view, problem, 0, problem.steps, codes_of(trace))
    assert estimate.step_ns is None
    assert estimate.why_missing


def test_steps_of_zero_length_are_not_divisors() -> None:
    trace = TinyTrace()
    trace.launch((0, 1), (2, 50))
    for k in range(4):
        trace.step(10.0 * k, 10.0 * k + 10)
    events, facts = trace.events(), trace.facts()
    view = host_view(events, facts)
    problem = build_problem(events, trace.step_table(), facts, view)
    assert estimate_unprofiled(events, view, problem, 0, problem.steps, codes_of(trace)).step_ns is None


def test_steps_marked_on_a_thread_without_launches() -> None:
    trace = TinyTrace()
    for k in range(3):
        trace.step(100.0 * k, 100.0 * k + 100)
        trace.launch((100.0 * k, 100.0 * k + 5), (100.0 * k + 7, 100.0 * k + 20), thread=4)
    problem = problem_of(trace)
    assert step_times(problem, replay(problem), 0, problem.steps).tolist() == [100_000, 100_000]
    assert problem.host.paced.all()  # the launching thread works in turn with the marking one


@given(traces())
@settings(max_examples=40, deadline=None)
def test_replayed_ledger_sums_to_the_replayed_steps(trace: TinyTrace) -> None:
    events, facts = trace.events(), trace.facts()
    view = host_view(events, facts)
    problem = build_problem(events, trace.step_table(), facts, view)
    estimate = estimate_unprofiled(events, view, problem, 0, problem.steps, codes_of(trace))
    if estimate.step_ns:
        assert np.isclose(sum(estimate.ledger.values()), estimate.step_ns, rtol=1e-12)


@given(traces())
@settings(max_examples=40, deadline=None)
def test_parts_stay_whole_and_time_stays_in_order(trace: TinyTrace) -> None:
    problem = problem_of(trace)
    fast = without_profiler(problem, RecordingCost(2_345, 9_876, 1_234, 567))
    assert (fast.host.gap_parts >= 0).all()
    assert (fast.host.gap_parts.sum(axis=1) == np.where(fast.host.pred >= 0, fast.host.gap, 0)).all()
    assert (fast.host.gap <= problem.host.gap).all()
    events, facts = trace.events(), trace.facts()
    view = host_view(events, facts)
    for timeline in replayed_schedule(events, view, problem, fast, replay(fast)).timelines:
        assert (np.diff(timeline.start) > 0).all()


@given(traces())
@settings(max_examples=20, deadline=None)
def test_removing_a_cause_never_slows_the_run(trace: TinyTrace) -> None:
    problem = problem_of(trace)
    before = replay(problem).op_end.max()
    for cause in CAUSE_KEYS:
        changed = without_cause(problem, cause)
        assert replay(changed).op_end.max() <= before
    assert replay(replace(problem)).op_end.max() == before


def test_a_clipped_calibration_is_not_called_calibrated() -> None:
    slow = host_bound(2, launch_us=40)  # no host measured took 40 µs for its fastest launches
    wrappers(slow, 10, own=2)
    cost = recording_cost(slow.events())
    assert not cost.calibrated and cost.at_limit and "are outside it" in cost.sentence


def handed_over(sends: list[tuple[float, float]]) -> list[int]:
    """Return what each send of a trace waits for.

    The host is late, so nothing has to wait in the recording. Step k computes from 100 k + 12 to + 42 on stream 7, and
    sends on stream 17 at the given time.
    """
    trace = TinyTrace()
    for k, (start, end) in enumerate(sends):
        t = 100.0 * k
        trace.launch((t + 5, t + 10), (t + 12, t + 42))
        trace.launch((start - 7, start - 2), (start, end), stream=17, name="ncclDevKernel_SendRecv(ncclDevKernelArgs)")
        trace.step(t, t + 99)
    ops = problem_of(trace).ops
    return ops.dep[ops.stream == 1].tolist()


def test_send_waits_for_earlier_computation() -> None:
    # operations in launch order: compute 0, send 1, compute 2, send 3
    assert handed_over([(60, 70), (160, 170)]) == [0, 2]


def test_communication_that_can_begin_before_the_computation_ends_does_not_wait_for_it() -> None:
    assert handed_over([(60, 70), (130, 170)]) == [-1, -1]  # 130 is before 142


def test_the_streams_of_one_operator_wait_for_each_other_and_its_caller_for_them() -> None:
    # Two layers run on their own streams: the second continues after the first, which continues after the caller. None
    # had to wait in the recording, because the host was late.
    trace = TinyTrace()
    for k in range(2):
        t = 1000.0 * k
        trace.launch((t + 5, t + 10), (t + 12, t + 42))
        trace.op("aten::_cudnn_rnn", t + 50, t + 400)
        for place, stream in enumerate((21, 21, 22, 21, 22)):
            begin = t + 60 + 60 * place
            trace.launch((begin, begin + 5), (begin + 7, begin + 27), stream=stream, name="LSTM_elementWise")
        trace.launch((t + 410, t + 415), (t + 417, t + 427))
        trace.launch((t + 440, t + 445), (t + 447, t + 457))
        trace.step(t, t + 900)
    # operations of a step: caller 0, layers 1 to 5, caller 6 and 7
    assert problem_of(trace).ops.dep[8:].tolist() == [-1, 8, -1, 10, -1, -1, 13, -1]
    # Twice as long, the second layer's first kernel ends 20 µs later, and so does all that its caller launches, if it has to wait.
    problem = problem_of(trace)
    longer = replace(problem, ops=replace(problem.ops, dur=10 * problem.ops.dur))
    run = replay(longer)
    assert run.op_start[11] >= run.op_end[10] and run.op_start[14] >= run.op_end[13]


@pytest.mark.parametrize(
    ("loader", "slowed"), [("_SingleProcessDataLoaderIter", True), ("_MultiProcessingDataLoaderIter", False)]
)
def test_recording_slows_a_loader_that_works_in_the_training_process(loader: str, slowed: bool) -> None:
    """Recording slows a loader that works in the training process.

    Its operators are recorded like all others. A wait for worker processes is not shortened by the operators that
    happen to lie inside it.
    """
    trace = TinyTrace()
    for k in range(3):
        begin = 2000.0 * k
        trace.op(f"enumerate(DataLoader)#{loader}.__next__", begin, begin + 1000)
        for each in range(100):
            trace.op("aten::stack", begin + 10 * each, begin + 10 * each + 5)
        trace.launch((begin + 1010, begin + 1015), (begin + 1020, begin + 1030))
        trace.step(begin, begin + 1100)
    problem, cost = problem_of(trace), recording_cost(trace.events())
    waits = [
        parts[:, HOST_CAUSES.index("data_wait")].sum()
        for parts in (problem.host.gap_parts, without_profiler(problem, cost).host.gap_parts)
    ]
    assert cost.loads_inline is slowed
    assert waits[0] > 0 and bool(waits[1] < 0.95 * waits[0]) is slowed
