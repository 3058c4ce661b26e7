"""Tests of the profiler's cost: how it is calibrated from a trace and removed from its host."""

from __future__ import annotations

import pytest

from sawtooth.analysis.derive.unprofiled.cost import (
    DEFAULT_LAUNCH_NS,
    DEFAULT_WRAPPER_NS,
    LAUNCH_PER_EXCESS,
    MAX_LAUNCH_NS,
    MIN_SHARE,
    MIN_WRAPPERS,
    NATIVE_LAUNCH_NS,
    OPERATOR_PER_WRAPPER,
    RecordingCost,
    recording_cost,
    without_profiler,
)
from sawtooth.analysis.knowledge.causes import HOST_CAUSES
from sawtooth.analysis.replay.simulation import replay, step_times
from tests.support.replay_traces import host_bound, problem_of
from tests.support.tiny_trace import TinyTrace


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
    # All launch calls take 5 µs. The cost is 4.5 × (5 − 1.5) µs, of which 0.4 × 5 µs are within the call. Other calls cost half of 5 µs.
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
    wrappers(few, MIN_WRAPPERS - 1, own=2)
    assert recording_cost(few.events()).operator_ns == OPERATOR_PER_WRAPPER * DEFAULT_WRAPPER_NS
    copies = TinyTrace()
    copies.step(0, 10)
    copies.copy((0, 3), (5, 6), "Memcpy DtoD (Device -> Device)")
    cost = recording_cost(copies.events())
    assert cost.launch_ns == LAUNCH_PER_EXCESS * (DEFAULT_LAUNCH_NS - NATIVE_LAUNCH_NS)
    assert recording_cost(host_bound(2, launch_us=50).events()).launch_ns == LAUNCH_PER_EXCESS * (
        MAX_LAUNCH_NS - NATIVE_LAUNCH_NS
    )


def test_the_cost_of_each_event_is_subtracted_from_its_gap() -> None:
    problem = problem_of(host_bound(10))
    # A step has 10 operators, one every 4 µs, and a launch of 5 µs: 45 µs. The gap of 40 µs loses 1 µs for each of 10 operators and the
    # step's annotation, and 3 µs that the launch costs outside its call. The call loses 2 µs: 29 µs remain.
    fast = without_profiler(problem, RecordingCost(1_000, launch_ns=5_000, inside_ns=2_000, call_ns=0))
    assert step_times(fast, replay(fast), 0, problem.steps).tolist() == [29_000, 29_000]


def test_profiler_cost_of_calls_without_launches_is_removed() -> None:
    trace = TinyTrace()
    for begin in trace.each_step(3, 100.0):
        trace.call("cudaEventRecord", begin + 20, begin + 21)
        trace.launch((begin + 90, begin + 95), (begin + 97, begin + 98))
    problem = problem_of(trace)
    fast = without_profiler(problem, RecordingCost(0, launch_ns=0, inside_ns=0, call_ns=7_000, python_call_ns=0))
    assert step_times(fast, replay(fast), 0, problem.steps).tolist() == [93_000, 93_000]


def test_host_time_never_becomes_zero() -> None:
    problem = problem_of(host_bound(10))
    fast = without_profiler(problem, RecordingCost(1_000_000, 1_000_000, 1_000_000, 0))
    assert step_times(fast, replay(fast), 0, problem.steps).tolist() == [round(45_000 * MIN_SHARE)] * 2


def test_waiting_for_the_loader_is_not_shortened_and_the_profilers_own_work_is_dropped() -> None:
    trace = TinyTrace()
    for t in trace.each_step(3, 200.0):
        trace.op("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", t, t + 100, annotation=True)
        trace.overhead("Buffer Flush", t + 120, t + 160)
        trace.launch((t + 190, t + 195), (t + 197, t + 199))
    problem = problem_of(trace)
    fast = without_profiler(problem, RecordingCost(1_000, 0, 0, 0))
    parts = dict(zip(HOST_CAUSES, fast.host.gap_parts[1].tolist(), strict=True))
    # The gap from 195 to 390 has 5 µs, the loader's 100, 20, the flush's 40 and 30 µs. Two events begin in it (the step and the loader),
    # so 55 µs become 53 µs.
    assert parts["data_wait"] == 100_000
    assert parts["profiler"] == 0
    assert parts["python_host"] == 53_000
    assert fast.host.gap[1] == 153_000


def test_a_clipped_calibration_is_not_called_calibrated() -> None:
    slow = host_bound(2, launch_us=40)  # On no measured host, the fastest launches took 40 µs.
    wrappers(slow, 10, own=2)
    cost = recording_cost(slow.events())
    assert not cost.calibrated and cost.at_limit and "are beyond them" in cost.sentence


@pytest.mark.parametrize(
    ("loader", "slowed"), [("_SingleProcessDataLoaderIter", True), ("_MultiProcessingDataLoaderIter", False)]
)
def test_recording_slows_a_loader_that_works_in_the_training_process(loader: str, slowed: bool) -> None:
    # Its operators are recorded like all others. A wait for worker processes is not shortened by the operators that
    # happen to lie inside it.
    trace = TinyTrace()
    for k in range(3):
        begin = 2000.0 * k
        trace.op(f"enumerate(DataLoader)#{loader}.__next__", begin, begin + 1000)
        for item in range(100):
            trace.op("aten::stack", begin + 10 * item, begin + 10 * item + 5)
        trace.launch((begin + 1010, begin + 1015), (begin + 1020, begin + 1030))
        trace.step(begin, begin + 1100)
    problem, cost = problem_of(trace), recording_cost(trace.events())
    waits = [
        parts[:, HOST_CAUSES.index("data_wait")].sum()
        for parts in (problem.host.gap_parts, without_profiler(problem, cost).host.gap_parts)
    ]
    assert cost.loads_inline is slowed
    assert waits[0] > 0 and bool(waits[1] < 0.95 * waits[0]) is slowed
