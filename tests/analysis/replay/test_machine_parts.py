"""Tests of the replay's parts by hand: small machines in which one rule of ``machine`` decides."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sawtooth.analysis.knowledge.causes import HOST_CAUSES
from sawtooth.analysis.replay.simulation import (
    NEVER,
    DeviceOps,
    HostNodes,
    ReplayProblem,
    queue_slots,
    replay,
    step_ends,
    step_spans,
    stepwise,
    with_median_latencies,
    without_ops,
)


@dataclass(frozen=True)
class Node:
    """A call of one thread: it begins ``gap`` after the node before, and waits for the ends of ``waits``."""

    gap: int = 0
    own: int = 0
    waits: tuple[int, ...] = ()
    resume: int = 0
    slot_resume: int = 0


@dataclass(frozen=True)
class Op:
    node: int
    dur: int
    step: int = 0
    stream: int = 0
    start: int = 0
    after_stream: int = 0
    after_launch: int = 0
    dep: int = -1
    after_dep: int = 0


def machine(nodes: list[Node], ops: list[Op], *, streams=((0, 7),), steps=(0,), new_cycle=None, depth=1021) -> ReplayProblem:
    def column(rows: list[Node] | list[Op], name: str) -> np.ndarray:
        return np.array([getattr(row, name) for row in rows], np.int64)

    zeros = np.zeros(len(nodes), np.int64)
    parts = np.zeros((len(nodes), len(HOST_CAUSES)), np.int64)
    host = HostNodes(
        call=np.arange(len(nodes)), thread=zeros.astype(np.int32), pred=np.arange(len(nodes)) - 1, gap=column(nodes, "gap"),
        gap_parts=parts, own=column(nodes, "own"), wait_ptr=np.cumsum([0, *(len(n.waits) for n in nodes)]),
        wait_op=np.array([op for n in nodes for op in n.waits], np.int64), resume=column(nodes, "resume"),
        slot_resume=column(nodes, "slot_resume"), queue_depth=zeros + depth, operators=zeros, calls=zeros, python_calls=zeros, launches=zeros.astype(bool),
        wait_cause=zeros.astype(np.int8), is_slowed=zeros.astype(bool), start=zeros, end=zeros, gap_of_operator=zeros.astype(float),
    )  # fmt: skip
    device = DeviceOps(
        op=np.arange(len(ops)), node=column(ops, "node"), stream=column(ops, "stream").astype(np.int32), dur=column(ops, "dur"),
        fixed_start=column(ops, "start"), after_stream=column(ops, "after_stream"), after_launch=column(ops, "after_launch"),
        dep=column(ops, "dep"), after_dep=column(ops, "after_dep"), step=column(ops, "step").astype(np.int32),
    )  # fmt: skip
    cycles = np.zeros(len(steps), bool) if new_cycle is None else np.array(new_cycle)
    return ReplayProblem(host, device, tuple(streams), np.array(steps, np.int32), cycles)


TWO_DEVICES = ((0, 7), (1, 7))


def test_a_step_ends_with_its_devices_last_operation_and_never_before_the_step_before() -> None:
    nodes = [Node(gap=10)] * 4
    ops = [
        Op(0, 100, step=3),  # This operation starts with its launch at 10 and ends at 110.
        Op(1, 500, step=3, stream=1),  # another device's
        Op(2, 1, step=-1),  # It belongs to no step and ends at 111, after the first on its stream.
        Op(3, 2, step=5),  # to 113
    ]
    problem = machine(nodes, ops, streams=TWO_DEVICES, steps=(3, 4, 5))
    run = replay(problem)
    assert run.op_end.tolist() == [110, 520, 111, 113]
    assert step_ends(problem, run, 0).tolist() == [110, 110, 113]  # Step 4 has no work on this device.
    assert step_ends(problem, run, 1).tolist() == [520, 520, 520]


def test_a_span_is_from_the_end_of_one_step_to_the_next_within_a_cycle() -> None:
    nodes = [Node(gap=10)] * 4
    ops = [Op(n, 4, step=n) for n in range(4)]  # The steps end at 14, 24, 34 and 44.
    problem = machine(nodes, ops, steps=(0, 1, 2, 3), new_cycle=(True, False, True, False))
    run = replay(problem)
    assert [ends.tolist() for ends in step_spans(problem, run, 0, np.array([0, 1, 2, 3], np.int32))] == [[14, 34], [24, 44]]
    assert [ends.tolist() for ends in step_spans(problem, run, 0, np.array([1], np.int32))] == [[14], [24]]
    # Alone, the third is timed from its own launch on, which begins at 30.
    assert [ends.tolist() for ends in step_spans(problem, run, 0, np.array([2], np.int32))] == [[30], [34]]


def test_a_step_after_one_without_work_has_no_start() -> None:
    # The other device works in steps 1 and 2 only: only step 2 lies between two ends.
    nodes = [Node(gap=10)] * 3
    ops = [Op(0, 4, step=0), Op(1, 4, step=1, stream=1), Op(2, 4, step=2, stream=1)]
    problem = machine(nodes, ops, streams=TWO_DEVICES, steps=(0, 1, 2))
    run = replay(problem)
    assert [ends.tolist() for ends in step_spans(problem, run, 1, problem.steps)] == [[24], [34]]


def test_single_step_begins_with_its_first_launch_or_running_work() -> None:
    # Operations launched before the replayed part: until 40 on this device, until 90 on the other.
    ops = [
        Op(-1, 30, step=-1, start=10),
        Op(-1, 30, step=-1, stream=1, start=60),
        Op(0, 5, step=0, after_launch=100),
        Op(1, 5, step=0, after_launch=100),
    ]
    problem = machine([Node(gap=20), Node(gap=10)], ops, streams=TWO_DEVICES)
    run = replay(problem)
    assert run.host_start.tolist() == [20, 30] and run.op_end.tolist() == [40, 90, 125, 135]
    assert [ends.tolist() for ends in step_spans(problem, run, 0, problem.steps)] == [[40], [135]]
    later = replace(problem, host=replace(problem.host, gap=np.array([50, 10])))
    assert step_spans(later, replay(later), 0, problem.steps)[0].tolist() == [50]


def test_a_single_step_without_launches_has_no_span() -> None:
    problem = machine([Node(gap=20)], [Op(-1, 30, step=0, start=10), Op(0, 5, step=-1)])
    assert [ends.tolist() for ends in step_spans(problem, replay(problem), 0, problem.steps)] == [[], []]


def test_a_queue_slot_is_freed_by_the_start_of_an_earlier_operation() -> None:
    # Stream 0 has operations 0, 1, 3, 4, stream 1 has 2 and 5; nodes launch 0–1, 2, none, 3, 4–5.
    problem = machine([], [Op(n, 1, stream=s) for n, s in ((0, 0), (0, 0), (1, 1), (3, 0), (4, 0), (4, 1))])
    bounds = np.array([0, 2, 3, 3, 4, 6])
    assert queue_slots(problem.ops, bounds, np.full(5, 2)).tolist() == [-1, -1, -1, 0, 1]
    assert queue_slots(problem.ops, bounds, np.full(5, 1)).tolist() == [-1, -1, -1, 1, 3]
    assert queue_slots(problem.ops, bounds, np.full(5, 4)).tolist() == [-1] * 5


def test_a_launch_into_a_full_queue_delays_all_later_ones() -> None:
    # One place: the second launch (at 10) returns 3 after the first operation starts at 50; its kernel follows the first's end at 150.
    nodes = [Node(), Node(gap=10, slot_resume=3), Node(gap=10, slot_resume=3)]
    problem = machine(nodes, [Op(0, 100, after_launch=50), Op(1, 100), Op(2, 100)], depth=1)
    run = replay(problem)
    assert run.host_submit.tolist() == [0, 53, 153] and run.queued.tolist() == [0, 43, 90]
    assert run.op_start.tolist() == [50, 150, 250]


def test_collective_blocks_its_stream_until_its_end() -> None:
    ops = [Op(0, 10), Op(1, 10), Op(2, 10, stream=1), Op(2, 10)]
    problem = machine([Node(), Node(gap=5), Node(gap=5)], ops, streams=((0, 7), (0, 20)))
    running = stepwise(problem, {1: 42})
    assert next(running) == (42, 10)  # The operation's stream is free at 10.
    try:
        running.send(70)
    except StopIteration as done:
        run = done.value
    assert run.op_start.tolist() == [0, 10, 10, 70] and run.op_end.tolist() == [10, 70, 20, 80]


def test_median_latencies_are_those_of_a_streams_launched_operations() -> None:
    ops = [
        # This operation was launched before the step, so it is neither counted nor changed.
        Op(-1, 1, after_stream=900, after_launch=900),
        Op(0, 1, after_stream=NEVER, after_launch=10),  # The first launched operation waits for nothing on its stream.
        Op(1, 1, after_stream=2, after_launch=20, dep=0, after_dep=50),
        Op(2, 1, after_stream=4, after_launch=60, dep=1, after_dep=70),
        # This operation depends on nothing, so its latency is not known.
        Op(3, 1, after_stream=12, after_launch=61, after_dep=999),
        Op(4, 1, stream=1, after_stream=100, after_launch=100),
        Op(5, 1, stream=2, after_stream=300, after_launch=300),
    ]
    typical = with_median_latencies(machine([Node()] * 6, ops, streams=((0, 7), (0, 20), (0, 21)))).ops
    assert typical.after_stream.tolist() == [900, NEVER, 4, 4, 4, 100, 300]
    assert typical.after_launch.tolist() == [900, 40, 40, 40, 40, 100, 300]
    assert typical.after_dep.tolist() == [0, 0, 60, 60, 999, 0, 0]


def test_waits_for_a_dropped_operation_move_to_the_previous_one() -> None:
    nodes = [Node(), Node(), Node(waits=(1, 0)), Node(waits=(4, 3)), Node(waits=(2,))]
    ops = [
        Op(0, 1, stream=1),
        Op(0, 2),
        Op(1, 3),
        Op(1, 4, stream=1, dep=2),
        Op(1, 5, dep=0),
        Op(1, 6, dep=3),
        Op(1, 7, dep=1),
        Op(1, 8, stream=2, dep=4),
    ]
    problem = machine(nodes, ops, streams=((0, 7), (0, 20), (0, 21)))
    left = without_ops(problem, np.array([True, False, True, False, True, False, False, False]))
    assert left.ops.dur.tolist() == [2, 4, 6, 7, 8]  # Operations 1, 3, 5, 6 and 7.
    # Operation 0 has none before it on its stream, so its waiter waits for nothing. 2 and 4 follow 1, which is now the first. 3 runs on another stream.
    assert left.ops.dep.tolist() == [-1, 0, 1, 0, 0]
    assert left.host.wait_op.tolist() == [0, 0, 1, 0] and left.host.wait_ptr.tolist() == [0, 0, 0, 1, 3, 4]


def test_no_wait_without_remaining_work() -> None:
    left = without_ops(machine([Node(), Node(waits=(0,))], [Op(0, 9)]), np.array([True]))
    assert len(left.ops) == 0 and left.host.wait_op.tolist() == [] and left.host.wait_ptr.tolist() == [0, 0, 0]
    assert replay(left).host_end.tolist() == [0, 0]
