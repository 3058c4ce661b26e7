"""Tests of the step estimate without the profiler, and of the replay that it is based on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from sawtooth.analysis.derive.lost.estimate import estimate_unprofiled, replayed_schedule
from sawtooth.analysis.derive.unprofiled.cost import (
    RecordingCost,
    without_cause,
    without_profiler,
)
from sawtooth.analysis.derive.unprofiled.problem import build_problem, host_view, recorded_waits
from sawtooth.analysis.knowledge.causes import CAUSE_KEYS
from sawtooth.analysis.replay.simulation import replay, step_times
from tests.support.replay_traces import codes_of, problem_of
from tests.support.replay_traces import pieces as traces
from tests.support.tiny_trace import TinyTrace


def steps_of_one_launch(count: int) -> TinyTrace:
    """Return ``count`` steps of one launch, its kernel and a wait for it."""
    trace = TinyTrace()
    for t in trace.each_step(count, 100.0):
        trace.launch((t + 10, t + 15), (t + 20, t + 60))
        trace.call("cudaDeviceSynchronize", t + 15, t + 62)
    return trace


@pytest.mark.parametrize(
    ("usual", "most", "covered"),
    [(1_000, 1_000, 12), (16, 1_000, 9), (3, 1_000, 6), (3, 3, 3)],
    ids=["all steps", "the usual number", "six large steps", "three huge steps"],
)
def test_a_long_recording_is_replayed_in_part_and_notes_it(
    usual: int, most: int, covered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sawtooth.analysis.derive.unprofiled.problem.USUAL_EVENTS", usual)
    trace = steps_of_one_launch(12)
    events, facts = trace.events(), trace.facts()
    problem = build_problem(events, trace.step_table(), facts, host_view(events, facts), max_events=most)
    # Launches and operations after the first step count, 2 per step. So 16 of them are 8 + 1 steps, and 3 are 1 + 1 steps.
    assert len(problem.steps) == covered
    assert problem.notes == (() if covered == 12 else (f"the replay covers the first {covered} of 12 steps",))


def test_the_ledger_has_the_waits_of_every_step() -> None:
    trace = steps_of_one_launch(12)
    events, facts = trace.events(), trace.facts()
    view = host_view(events, facts)
    complete = build_problem(events, trace.step_table(), facts, view, max_events=None)
    found = recorded_waits(events, trace.step_table(), facts, view)
    assert len(found.host) == 24 and len(found.host.wait_op) == 12  # The second call of each step waits for its kernel.
    for name in ("call", "thread", "start", "wait_ptr", "wait_op", "wait_cause"):
        assert np.array_equal(getattr(found.host, name), getattr(complete.host, name)), name
    assert np.array_equal(found.ops.op, complete.ops.op)


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
    for t in trace.each_step(4, 100.0):
        trace.launch((t, t + 2.5), (t + 5, t + 65))
        trace.call("cudaStreamSynchronize", t + 8, t + 68)
    events, facts = trace.events(), trace.facts()
    view = host_view(events, facts)
    problem = build_problem(events, trace.step_table(), facts, view)
    estimate = estimate_unprofiled(events, view, problem, 0, problem.steps, codes_of(trace))
    # A launch call of 2.5 µs costs 4.5 × (2.5 − 1.5) µs, 1 µs of it within the call. A step has the launch 1.5, the latency 2.5, the kernel 60,
    # 3 until the sync returns, and 32 − 3.5 to the next launch: 95.5 µs. Without the waits, the kernels of 60 µs follow each other.
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
    assert problem.host.is_slowed.all()  # The launching thread and the marking thread work in turn.


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


def test_streams_of_one_operator_wait_for_each_other() -> None:
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
    # Operations of a step: caller 0, layers 1 to 5, caller 6 and 7.
    assert problem_of(trace).ops.dep[8:].tolist() == [-1, 8, -1, 10, -1, -1, 13, -1]
    # With longer kernels, every operation that has to wait starts later.
    problem = problem_of(trace)
    longer = replace(problem, ops=replace(problem.ops, dur=10 * problem.ops.dur))
    run = replay(longer)
    assert run.op_start[11] >= run.op_end[10] and run.op_start[14] >= run.op_end[13]
