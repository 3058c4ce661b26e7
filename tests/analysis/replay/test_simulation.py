"""Tests of the replay: without edits it reproduces the recording.

With edits it changes by amounts that are computed by hand.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sawtooth.analysis.knowledge.causes import HOST_CAUSES
from sawtooth.analysis.replay.simulation import (
    QUEUE_DEPTH,
    ReplayProblem,
    replay,
    step_ends,
    step_times,
    with_median_latencies,
    without_ops,
)
from tests.support.replay_traces import launch_bound, pieces, problem_of, sync_every_step
from tests.support.tiny_trace import TinyTrace


def assert_reproduces(problem: ReplayProblem) -> None:
    run = replay(problem)
    launched = problem.ops.node >= 0
    assert (run.op_start[launched] == problem.ops.fixed_start[launched]).all()
    assert (run.host_start == problem.host.start).all()
    assert (run.host_end == problem.host.end).all()


def test_host_gaps_determine_a_launch_bound_run() -> None:
    problem = problem_of(launch_bound())
    assert_reproduces(problem)
    assert step_times(problem, replay(problem), 0, problem.steps).tolist() == [100_000, 100_000]
    # Each step has gaps of 55 (between steps) and 35 µs and two launches of 5. Without gaps a step is two launches: 10 µs.
    host = problem.host
    bare = replace(problem, host=replace(host, gap=np.where(host.pred >= 0, 0, host.gap)))
    assert step_times(bare, replay(bare), 0, problem.steps).tolist() == [10_000, 10_000]


def test_a_device_bound_run_ignores_the_host_until_the_kernels_shrink() -> None:
    trace = TinyTrace()
    for k in range(3):
        trace.step(10.0 * k, 10.0 * k + 10)
        trace.launch((10.0 * k + 1, 10.0 * k + 4), (6 + 101.0 * k, 106 + 101.0 * k))  # Kernels of 100 µs, 1 µs apart.
    problem = problem_of(trace)
    assert_reproduces(problem)
    assert step_times(problem, replay(problem), 0, problem.steps).tolist() == [101_000, 101_000]
    half = replace(problem, ops=replace(problem.ops, dur=problem.ops.dur // 2))
    assert step_times(half, replay(half), 0, problem.steps).tolist() == [51_000, 51_000]
    # With kernels of 1 µs, the host is slower: it makes one launch every 10 µs.
    tiny = replace(problem, ops=replace(problem.ops, dur=problem.ops.dur // 100))
    assert step_times(tiny, replay(tiny), 0, problem.steps).tolist() == [10_000, 10_000]


def test_removing_a_wait_lets_the_host_run_ahead() -> None:
    problem = problem_of(sync_every_step())
    assert_reproduces(problem)
    host = problem.host
    assert problem.host.wait_op.tolist() == [0, 1, 2]
    assert step_times(problem, replay(problem), 0, problem.steps).tolist() == [100_000, 100_000]
    none = replace(problem, host=replace(host, wait_ptr=np.zeros_like(host.wait_ptr), wait_op=host.wait_op[:0]))
    # Without the wait, the sync call takes its own time, which no call here shows, because the 60 µs include waiting. So it takes
    # the default of 5 µs. The host then needs 5 + 5 + 5 + 30 = 45 µs per step and the device 60 µs, so kernels follow without gaps.
    assert step_times(none, replay(none), 0, problem.steps).tolist() == [60_000, 60_000]


def test_an_operation_waits_for_another_stream() -> None:
    trace = TinyTrace()
    for k in range(2):
        t = 200.0 * k
        trace.step(t, t + 100)
        trace.launch((t + 0, t + 5), (t + 7, t + 107), stream=7)
        # free and launched at 10, starts at 109: 2 µs after stream 7
        trace.launch((t + 6, t + 10), (t + 109, t + 119), stream=20)
    problem = problem_of(trace)
    assert_reproduces(problem)
    assert problem.ops.dep.tolist() == [-1, 0, -1, 2]
    ops = problem.ops
    longer = replace(problem, ops=replace(ops, dur=np.where(ops.stream == 0, ops.dur + 50_000, ops.dur)))
    assert step_ends(longer, replay(longer), 0).tolist() == [169_000, 369_000]  # 119 + 50 and 319 + 50


def test_work_launched_before_the_capture_blocks_its_stream() -> None:
    trace = TinyTrace()
    trace.kernel(-50, 30)  # carried over
    for k in range(2):
        trace.step(40.0 * k, 40.0 * k + 40)
        trace.launch((40.0 * k, 40.0 * k + 5), (31 + 40.0 * k, 51 + 40.0 * k))
    problem = problem_of(trace)
    assert problem.ops.node.tolist() == [-1, 0, 1]
    assert_reproduces(problem)
    assert problem.ops.after_stream[1] == 1_000  # 31 − 30


def test_an_operation_without_launch_that_opens_its_stream_stays_in_place() -> None:
    trace = TinyTrace()
    for t in trace.each_step(2, 100.0):
        trace.launch((t, t + 5), (t + 7, t + 20))
        trace.kernel(t + 30, t + 40, stream=20)  # The operation's launch was lost, and nothing runs before it on its stream.
        trace.launch((t + 50, t + 55), (t + 57, t + 60), stream=20)
    assert_reproduces(problem_of(trace))


def test_a_full_queue_blocks_the_launch() -> None:
    trace = TinyTrace()
    trace.step(0, 20_000)
    extra = 3
    for k in range(QUEUE_DEPTH + extra):
        start = 3.0 * k if k < QUEUE_DEPTH else 20.0 * (k - QUEUE_DEPTH) + 3_070
        freed = 5 + 20.0 * max(k - QUEUE_DEPTH, 0)  # Kernels of 20 µs back to back from 5 µs on: number j starts at 5 + 20 j.
        end = start + 2 if k < QUEUE_DEPTH else max(start + 2, freed + 4)
        trace.launch((start, end), (5 + 20.0 * k, 25 + 20.0 * k))
    problem = problem_of(trace)
    assert_reproduces(problem)
    assert replay(problem).queued.sum() == 0  # kernel number 1021 − 1021 = 0 has long started when the queue would be full
    slow = replace(
        problem,
        ops=replace(problem.ops, after_launch=np.where(np.arange(len(problem.ops)) == 0, 5_000_000, problem.ops.after_launch)),
    )
    # The first kernel now starts 5 ms after its launch returned at 2 µs: launch 1021 (begun at 3070, own 2 µs) waits for that start.
    run = replay(slow)
    assert run.op_start[0] == 5_002_000
    assert run.queued[QUEUE_DEPTH] == 5_002_000 + slow.host.slot_resume[QUEUE_DEPTH] - 3_072_000


def test_a_queue_with_other_work_blocks_earlier() -> None:
    trace, depth = TinyTrace(), 900
    trace.step(0, 110_000)
    for k in range(depth + 10):  # Kernels of 100 µs, number k from 5 + 100 k on; a launch returns 4 µs after its place is free.
        start = 3.0 * k if k < depth else 5 + 100.0 * (k - depth) + 2_810
        end = start + 2 if k < depth else 5 + 100.0 * (k - depth + 29) + 4
        trace.launch((start, end), (5 + 100.0 * k, 105 + 100.0 * k))
    problem = problem_of(trace)
    assert problem.host.queue_depth[depth:].tolist() == [depth - 29] * 10  # Launch 900 returns when kernel 29 starts.
    assert problem.host.own.max() == 2_000  # The time of a blocked launch does not count as host work.
    assert replay(problem).host_end[-1] == 3_809_000
    quarter = replace(problem, ops=replace(problem.ops, dur=problem.ops.dur // 4))
    assert replay(quarter).host_end[-1] < 3_000_000


def test_graph_launch_is_one_call_with_many_operations() -> None:
    trace = TinyTrace()
    for t in trace.each_step(2, 100.0):
        graph = trace.call("cudaGraphLaunch", t, t + 20)
        for j in range(4):
            trace.kernel(t + 25 + 11 * j, t + 35 + 11 * j, graph)
    problem = problem_of(trace)
    assert_reproduces(problem)
    assert (np.bincount(problem.ops.node) == 4).all()
    assert_reproduces(with_median_latencies(problem))  # Every latency is its stream's median here.


def test_waits_for_dropped_operations_move_to_earlier_ones() -> None:
    problem = problem_of(sync_every_step())
    drop = np.array([False, True, False])
    left = without_ops(problem, drop)
    assert left.host.wait_op.tolist() == [0, 0, 1]  # The second wait now waits for the first step's kernel.
    # A sync of 60 µs has 5 µs of its own and 55 µs of waiting. At the second sync, all work is done.
    assert replay(left).waited.tolist() == [0, 55_000, 0, 0, 0, 55_000]


@given(pieces())
@settings(max_examples=60, deadline=None)
def test_the_unchanged_replay_equals_the_recording(trace: TinyTrace) -> None:
    problem = problem_of(trace)
    assert_reproduces(problem)
    host = problem.host
    assert (host.gap_parts.sum(axis=1) == np.where(host.pred >= 0, host.gap, 0)).all()
    assert host.gap_parts.shape[1] == len(HOST_CAUSES)


@given(pieces(), st.integers(1, 1000))
@settings(max_examples=30, deadline=None)
def test_longer_kernels_never_end_a_step_sooner(trace: TinyTrace, more: int) -> None:
    problem = problem_of(trace)
    slower = replace(problem, ops=replace(problem.ops, dur=problem.ops.dur + more))
    before, after = step_ends(problem, replay(problem), 0), step_ends(slower, replay(slower), 0)
    assert (after >= before).all()


@given(pieces(), st.randoms())
@settings(max_examples=30, deadline=None)
def test_the_order_of_the_file_does_not_matter(trace: TinyTrace, random: object) -> None:
    expected = replay(problem_of(trace))
    for rows in (trace.ops, trace.calls, trace.gpu):
        random.shuffle(rows)  # type: ignore[attr-defined]
    shuffled = replay(problem_of(trace))
    assert sorted(expected.op_end.tolist()) == sorted(shuffled.op_end.tolist())
    assert sorted(expected.host_end.tolist()) == sorted(shuffled.host_end.tolist())
