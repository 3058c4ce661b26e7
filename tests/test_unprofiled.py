"""The estimate without the profiler: what it takes off, what it leaves, and the stopwatch where the shared recordings are at hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings

from analysis.estimate import estimate_unprofiled, replayed_schedule
from analysis.replay import HOST_CAUSES, ReplayProblem, replay, step_times
from analysis.replay_build import build_problem, host_view
from analysis.unprofiled import (
    COST_PER_EXCESS,
    DEFAULT_COST_NS,
    LEAST_SHARE,
    MOST_COST_NS,
    NATIVE_LAUNCH_NS,
    WITHOUT_SHAPES,
    RecordingCost,
    recording_cost,
    without_cause,
    without_profiler,
)
from tests.test_idle import codes_of
from tests.test_replay import pieces as traces
from tests.tiny_trace import TinyTrace


def host_bound(operators: int, launch_us: float = 5, spaced: float = 4) -> TinyTrace:
    """Three steps of one launch each; before it ``operators`` operators begin, ``spaced`` µs apart."""
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


def test_cost_follows_the_launch_calls_of_the_trace() -> None:
    # All launch calls last 5 µs, no shapes: 1.8 × (5 − 2.6) × 0.7 = 3.024 µs.
    assert recording_cost(host_bound(2).events()).event_ns == int(COST_PER_EXCESS * (5_000 - NATIVE_LAUNCH_NS) * WITHOUT_SHAPES)
    assert recording_cost(host_bound(2, launch_us=50).events()).event_ns == MOST_COST_NS
    copies = TinyTrace()
    copies.step(0, 10)
    copies.copy((0, 3), (5, 6), "Memcpy DtoD (Device -> Device)")
    assert recording_cost(copies.events()).event_ns == DEFAULT_COST_NS


def test_each_event_in_a_gap_is_paid_back() -> None:
    problem = problem_of(host_bound(10))
    # A step: 10 operators 4 µs apart, then a launch of 5: 45 µs. At 1 µs an event: the gap of 40 loses 11 (10 operators and the step's
    # annotation), the launch 1: 33 µs.
    fast = without_profiler(problem, RecordingCost(1_000))
    assert step_times(fast, replay(fast), 0, problem.steps).tolist() == [33_000, 33_000]


def test_host_time_never_vanishes() -> None:
    problem = problem_of(host_bound(10))
    fast = without_profiler(problem, RecordingCost(1_000_000))
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
    fast = without_profiler(problem, RecordingCost(1_000))
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


def test_syncs_cost_what_the_run_gains_without_them() -> None:
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
    # Launch calls of 2.5 µs: an event costs the least, 0.5 µs, and none begins in a gap. A step: launch 2, latency 2.5, kernel 60, 3 until the
    # sync returns, 32 to the next launch: 99.5 µs. Without the waits the kernels of 60 µs follow each other.
    assert estimate.step_ns == 99_500
    assert estimate.loses["host_sync"] == 39_500
    assert estimate.ledger["idle", "host_sync"] == 39_500


def test_no_steps_no_estimate() -> None:
    trace = TinyTrace()
    trace.launch((0, 5), (7, 20))
    events, facts = trace.events(), trace.facts()
    view = host_view(events, facts)
    problem = build_problem(events, trace.step_table(), facts, view)
    estimate = estimate_unprofiled(events, view, problem, 0, problem.steps, codes_of(trace))
    assert estimate.step_ns is None
    assert estimate.why_missing


def test_steps_without_length_are_not_divided_by() -> None:
    trace = TinyTrace()
    trace.launch((0, 1), (2, 50))
    for k in range(4):
        trace.step(10.0 * k, 10.0 * k + 10)
    events, facts = trace.events(), trace.facts()
    view = host_view(events, facts)
    problem = build_problem(events, trace.step_table(), facts, view)
    assert estimate_unprofiled(events, view, problem, 0, problem.steps, codes_of(trace)).step_ns is None


def test_steps_marked_on_a_thread_that_launches_nothing() -> None:
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
    fast = without_profiler(problem, RecordingCost(2_345))
    assert (fast.host.gap_parts >= 0).all()
    assert (fast.host.gap_parts.sum(axis=1) == np.where(fast.host.pred >= 0, fast.host.gap, 0)).all()
    assert (fast.host.gap <= problem.host.gap).all()
    events, facts = trace.events(), trace.facts()
    view = host_view(events, facts)
    for paint in replayed_schedule(events, view, problem, fast, replay(fast)).paints:
        assert (np.diff(paint.start) > 0).all()


@given(traces())
@settings(max_examples=20, deadline=None)
def test_removing_a_cause_never_slows_the_run(trace: TinyTrace) -> None:
    problem = problem_of(trace)
    before = replay(problem).op_end.max()
    for cause in (*HOST_CAUSES, "host_sync", "launch_latency"):
        changed = without_cause(problem, cause)
        assert replay(changed).op_end.max() <= before
    assert replay(replace(problem)).op_end.max() == before
