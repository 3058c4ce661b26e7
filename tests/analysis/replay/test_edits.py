"""Tests of the replay's edits: each changes the step by the amount in the arithmetic beside it."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from sawtooth.analysis.replay.edits import (
    AsGraph,
    Edit,
    FasterHost,
    MoreLaunches,
    ScaledOps,
    TimedOps,
    WithoutCalls,
    WithoutHostCause,
    WithoutOps,
    WithoutWaits,
    apply,
)
from sawtooth.analysis.replay.simulation import ReplayProblem, replay, step_times
from tests.support.replay_traces import launch_bound, loading, problem_of, sync_every_step
from tests.support.tiny_trace import TinyTrace

FIRST, SECOND = (0, 2, 4), (1, 3, 5)  # The first and the second call of each of the three steps.


def step_us(problem: ReplayProblem, *edits: Edit) -> list[float]:
    edited = apply(problem, edits)
    return [ns / 1000 for ns in step_times(edited, replay(edited), 0, problem.steps).tolist()]


def test_a_removed_launch_removes_its_gap_and_its_kernel() -> None:
    problem = problem_of(launch_bound())
    assert step_us(problem) == [100, 100]
    # A step has a gap of 55 µs, a launch of 5, a gap of 35 and a launch of 5. Without the second launch and the gap before
    # it, 60 µs remain.
    assert step_us(problem, WithoutCalls(SECOND)) == [60, 60]
    # Without the first launch and its gap of 55 µs, 40 µs remain. The first step's first launch begins the replay and stays.
    assert step_us(problem, WithoutCalls(FIRST)) == [40, 40]
    assert step_us(problem, WithoutCalls(())) == [100, 100]
    # In the loop below, the loader takes 20 µs of the gap of 35 µs. The edit does not remove the call.
    assert step_us(problem_of(loading()), WithoutCalls(SECOND)) == [80, 80]


def test_long_python_before_a_removed_launch_can_stay() -> None:
    trace = TinyTrace()
    for t in trace.each_step(3, 700.0):
        trace.launch((t + 55, t + 60), (t + 62, t + 72))
        trace.launch((t + 695, t + 700), (t + 702, t + 712))  # This kernel is launched after 635 µs of Python.
    problem = problem_of(trace)
    assert step_us(problem, WithoutCalls(SECOND)) == [60, 60]
    # Up to 50 µs of Python before a call belong to it.
    assert step_us(problem, WithoutCalls(SECOND, python_stays=True)) == [60 + 635 - 50] * 2


def test_a_graph_is_launched_after_each_wait() -> None:
    trace = TinyTrace()
    for t in trace.each_step(3, 120.0):
        trace.launch((t + 20, t + 25), (t + 27, t + 37))
        trace.call("cudaDeviceSynchronize", t + 30, t + 40)  # The call returns 3 µs after the kernel ends.
        trace.launch((t + 80, t + 85), (t + 87, t + 97))
        trace.launch((t + 110, t + 115), (t + 117, t + 127))
    problem = problem_of(trace)
    # With one graph, the host needs 25 µs between the steps and a launch of 10 µs. The kernels' 30.2 µs overlap with this time.
    assert step_us(problem, AsGraph())[0] == pytest.approx(35)
    # With two graphs, a step takes 25 µs, a launch of 10, 2 until a kernel of 10 starts, 3 until the host returns, its 40
    # between the graphs, and another launch of 10 µs.
    assert step_us(problem, AsGraph(waits_stay=True))[0] == pytest.approx(100)


def test_removed_wait_costs_neither_wait_nor_gap() -> None:
    # A step has a launch of 5 µs, a gap of 5, the wait for a kernel of 60, and a gap of 30. Without the wait the host needs 5
    # + 30 µs, so the kernel's 60 µs determine the step.
    problem = problem_of(sync_every_step())
    assert step_us(problem, WithoutCalls(SECOND)) == [60, 60]
    assert step_us(problem, WithoutWaits(SECOND)) == [60, 60]
    # If only the first wait is removed, the second step's kernel follows at once. The others wait as before.
    assert step_us(problem, WithoutWaits((1,))) == [60, 100]


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (WithoutHostCause("data_wait"), 50),  # 100 − 30 − 20
        (WithoutHostCause("data_wait", keep_share=0.5), 75),  # 100 − 15 − 10
        (WithoutHostCause("data_wait", calls=FIRST), 70),  # 100 − 30: the wait before the second launch stays
        (WithoutHostCause("data_wait", calls=SECOND), 80),  # 100 − 20
        (WithoutHostCause("data_wait", keep_share=0.5, calls=SECOND), 90),  # 100 − 10
        (WithoutHostCause("data_wait", calls=()), 100),
        (WithoutHostCause("python_host"), 60),  # 100 − 25 − 15: the rest of the gaps of 55 and 35 without the loader
    ],
)
def test_a_host_cause_is_removed_only_before_the_selected_calls(edit: Edit, expected: float) -> None:
    assert step_us(problem_of(loading()), edit) == [expected, expected]


def test_edits_are_applied_together_with_removals_last() -> None:
    # Without the second launches and the loader: gap 55 − 30 of the loader's before the first launch remains, and its 5: 30.
    problem = problem_of(loading())
    both = (WithoutCalls(SECOND), WithoutHostCause("data_wait"))
    assert step_us(problem, *both) == step_us(problem, *reversed(both)) == [30, 30]


def test_graph_contains_no_python_between_graphs() -> None:
    # Before the first launch of a step there are the loader's 30 µs and 25 of Python, which are not in the graph. The launch of 5 becomes one
    # graph launch of 10. The gap of 35 before the second launch disappears, except for the loader's 20: 30 + 25 + 10 + 20.
    assert step_us(problem_of(loading()), AsGraph()) == [85, 85]


def test_a_removed_kernel_removes_only_its_own_launch() -> None:
    trace = TinyTrace()
    for t in trace.each_step(3, 1000.0):
        trace.launch((t + 5, t + 10), (t + 12, t + 20))
        # 920 µs of Python, in which an environment makes a step, then an operator of 30 µs
        trace.op("aten::add", t + 930, t + 960)
        trace.launch((t + 940, t + 945), (t + 947, t + 950))
    problem = problem_of(trace)
    assert step_us(problem) == [1000, 1000]
    # Of the gap of 930 the operator's 10 and 50 of the Python before it go, and the call's 5.
    assert step_us(problem, WithoutOps(SECOND)) == [935, 935]
    # As a graph each launch saves its call of 5 and its operator's 10; the Python beyond 50 before the second stays, as between steps.
    assert step_us(problem, AsGraph())[0] >= 870


def test_additional_launches_take_as_long_as_the_recorded_ones() -> None:
    # A step: gap 55, launch 5, gap 35, launch 5. Of 40, 60, 40, 60 and 40, at most 50 each count: the mean is 44; two more are 88.
    problem = problem_of(launch_bound())
    second = tuple(int(op) for op in problem.ops.op[1::2])
    assert step_us(problem, MoreLaunches(second, (2,) * len(second))) == [188, 188]
    assert step_us(problem, MoreLaunches(second, (0,) * len(second))) == [100, 100]


def decoding() -> ReplayProblem:
    """Add steps of 140 µs with four kernels and a wait for the last one.

    Two kernels stay as they are (5 µs apart on their stream), and a graph may hold the other two. The wait takes 3 µs
    to return.
    """
    trace = TinyTrace()
    for t in trace.each_step(3, 140.0):
        trace.launch((t + 10, t + 15), (t + 17, t + 37))
        trace.launch((t + 20, t + 25), (t + 42, t + 45))
        trace.launch((t + 60, t + 65), (t + 67, t + 70))
        trace.launch((t + 100, t + 105), (t + 107, t + 127))
        trace.call("cudaStreamSynchronize", t + 110, t + 130)
    return problem_of(trace)


def test_operations_outside_a_graph_are_launched_as_before() -> None:
    problem = decoding()
    # 20 to the first launch, and 10 for the graph of three operations. The last operation keeps its gap of 35 and its launch of 5.
    assert step_us(problem, AsGraph(outside_ops=(3, 7, 11))) == [20 + 10 + 35 + 5] * 2


def test_graph_from_an_operation_keeps_earlier_launches_and_waits() -> None:
    problem = decoding()
    assert step_us(problem) == [140, 140]
    # As before: 20 to the first launch, 5, 5 and 5; 35 to the graph, whose launch takes 10. Its kernels follow 2 later: 3, 0.1 apart, 20. 3 to return.
    edited = apply(problem, [AsGraph(first_ops=(2, 6, 10))])
    assert step_us(edited) == pytest.approx([20 + 5 + 5 + 5 + 35 + 10 + 2 + 3 + 0.1 + 20 + 3] * 2)
    run = replay(edited)
    assert (run.op_start[5] - run.op_end[4]) == 5_000  # Operations outside the graph keep their distance on the stream.
    # From the last kernel of a step on: all before it stays, and its own launch takes 10 instead of 5.
    assert step_us(problem, AsGraph(first_ops=(3, 7, 11))) == [145, 145]


def test_additional_launches_do_not_move_earlier_work() -> None:
    trace = launch_bound()
    trace.kernel(-50, 4)  # Operation 0: launched before.
    problem = problem_of(trace)
    typical = replay(problem)
    assert (replay(apply(problem, [MoreLaunches((0, 1), (5, 5))])).host_start == typical.host_start).all()
    # Launches took 40, 60, 40, 60 and 40, of which at most 50 each count. Their mean is 44: two more before the third.
    more = replay(apply(problem, [MoreLaunches((3,), (2,))]))
    assert (more.host_start - typical.host_start).tolist() == [0, 0, 88_000, 88_000, 88_000, 88_000]


def test_a_removed_kernel_keeps_calls_without_launches() -> None:
    # A step of 100: launch 5, gap 5, the wait, gap 30. Without the kernel there is no wait, and the call's own 5 stay: 5 + 5 + 5 + 30,
    # minus the launch's 5 and the gap of 30 before it.
    assert host_us(apply(problem_of(sync_every_step()), [WithoutOps((0, 1, 2))])) == [10, 10]


def host_us(problem: ReplayProblem) -> list[float]:
    """Return from one step's synchronization to the next's (its second call), in µs."""
    return [ns / 1000 for ns in (replay(problem).host_end[1::2][1:] - replay(problem).host_end[1::2][:-1]).tolist()]


def test_the_faster_of_two_edits_of_a_kernel_counts() -> None:
    problem, fast, slow = problem_of(launch_bound()), ScaledOps((0,), 0.5), ScaledOps((0, 1), 0.8)
    for edits in ((fast, slow), (slow, fast)):
        assert apply(problem, edits).ops.dur[:3].tolist() == [1_500, 2_400, 3_000]


def test_an_operation_that_takes_over_other_work_is_shortened_by_the_same_factor() -> None:
    # Operation 0 takes 3 µs. After the edit, it does the work of four operations in half the time.
    problem = problem_of(launch_bound())
    joined, half = TimedOps((0,), (12_000,)), ScaledOps((0, 1), 0.5)
    for edits in ((joined, half), (half, joined)):
        assert apply(problem, edits).ops.dur[:3].tolist() == [6_000, 1_500, 3_000]


EVERY_EDIT: tuple[Edit, ...] = (
    WithoutHostCause("data_wait"),
    WithoutCalls(SECOND),
    WithoutWaits(),
    ScaledOps((0, 1), 0.5),
    TimedOps((0,), (1000,)),
    WithoutOps(SECOND),
    AsGraph(),
    AsGraph(waits_stay=True),
    AsGraph(first_ops=FIRST),
    FasterHost(0.5),
    MoreLaunches(SECOND, (2, 2, 2)),
)


@pytest.mark.parametrize("edit", EVERY_EDIT, ids=lambda edit: type(edit).__name__)
def test_parts_of_a_gap_sum_to_it_after_every_edit(edit: Edit) -> None:
    assert {type(item) for item in EVERY_EDIT} == set(get_args(Edit))
    host = apply(problem_of(loading()), [edit]).host
    assert (host.gap_parts.sum(axis=1) == host.gap)[host.pred >= 0].all()


@pytest.mark.parametrize("edit", EVERY_EDIT, ids=lambda edit: type(edit).__name__)
def test_edit_can_be_stored_in_a_file_and_hashed(edit: Edit) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(edit), type=Edit) == edit
    assert {edit: 1}[edit] == 1


def test_the_first_step_and_its_first_call_are_changed_like_the_others() -> None:
    problem = problem_of(launch_bound())
    assert problem.host.own.tolist() == [5_000] * 6
    for edit in (AsGraph(), AsGraph(waits_stay=True)):
        assert apply(problem, [edit]).host.own.tolist() == [10_000, 0] * 3
    assert apply(problem, [WithoutCalls(FIRST)]).ops.op.tolist() == list(SECOND)
    assert apply(problem, [WithoutOps(FIRST)]).host.own.tolist() == [0, 5_000] * 3
    assert apply(problem, [WithoutWaits()]).host.own.tolist() == [5_000] * 6
    assert (apply(problem, [MoreLaunches((1,), (1,))]).host.gap - problem.host.gap).tolist() == [0, 44_000, 0, 0, 0, 0]


def test_removed_kernel_takes_some_host_time_with_it() -> None:
    trace = TinyTrace()
    for t in trace.each_step(3, 1000.0):
        trace.launch((t + 5, t + 10), (t + 12, t + 20))
        trace.op("aten::view", t + 900, t + 930)  # This call begins after 890 µs of Python.
        trace.op("aten::add", t + 930, t + 960)
        trace.launch((t + 940, t + 945), (t + 947, t + 950))
    # The operator's own 10 before the call and the call's 5; then 50 in all: the other operator's 30 and 20 of the Python.
    assert step_us(problem_of(trace), WithoutOps(SECOND)) == [935, 935]


def test_a_removed_cause_removes_only_its_own_waits() -> None:
    trace = TinyTrace()
    for t in trace.each_step(3, 150.0):
        trace.launch((t + 0, t + 5), (t + 7, t + 67))
        trace.call("cudaFree", t + 10, t + 70)  # This call waits for the kernel and returns 3 µs after its end.
        trace.launch((t + 75, t + 80), (t + 82, t + 112))
        trace.call("cudaStreamSynchronize", t + 85, t + 115)
    problem = problem_of(trace)
    assert step_us(problem) == [150, 150]
    # The second kernel follows the first at once: 7 + 60 + 30. The host returns 3 later, and 35 after that the next step begins: 135.
    assert step_us(problem, WithoutHostCause("allocator")) == [135, 135]
    # This call is in the first step, which no span contains.
    assert step_us(problem, WithoutHostCause("allocator", calls=(1,))) == [150, 150]
    assert step_us(problem, WithoutHostCause("allocator", calls=(5,))) == [135, 150]


def test_a_waiting_copy_cuts_the_graph_in_every_step() -> None:
    trace = TinyTrace()
    for t in trace.each_step(3, 100.0):
        trace.launch((t + 10, t + 15), (t + 17, t + 20))
        trace.copy((t + 25, t + 45), (t + 27, t + 42), "Memcpy HtoD (Pageable -> Device)")
        trace.launch((t + 50, t + 55), (t + 57, t + 60))
        trace.launch((t + 70, t + 75), (t + 77, t + 80))
    problem = problem_of(trace)
    copies = problem.host.own[1::4].tolist()
    cut = apply(problem, [AsGraph(waits_stay=True)]).host
    assert [cut.own[i::4].tolist() for i in range(4)] == [[10_000] * 3, copies, [10_000] * 3, [0] * 3]
    assert cut.wait_op.tolist() == problem.host.wait_op.tolist() == [1, 5, 9]
    assert apply(problem, [AsGraph()]).host.wait_op.tolist() == []
