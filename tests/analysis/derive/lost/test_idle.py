"""Tests of idle causes: one hand-made trace for each cause, and sums over generated traces.

The arithmetic stands beside each trace.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from sawtooth.analysis.derive.lost.estimate import replayed_ledger
from sawtooth.analysis.derive.lost.idle import explain
from sawtooth.analysis.derive.lost.ledger import segments
from sawtooth.analysis.derive.lost.schedule import lost_time, schedule_of, totals
from sawtooth.analysis.derive.unprofiled.problem import build_problem, host_view
from sawtooth.analysis.intervals import union
from sawtooth.analysis.replay.simulation import replay
from tests.support.lost_time import analyse
from tests.support.replay_traces import codes_of
from tests.support.replay_traces import pieces as traces
from tests.support.tiny_trace import TinyTrace


def causes(trace: TinyTrace, window: tuple[float, float] | None = None) -> dict[str, int]:
    lost, found, table = analyse(trace, window)
    sums = {cause: ns // 1000 for (owner, cause), ns in totals(found, lost).items() if owner == "idle"}
    assert sum((found.end - found.start).tolist()) == sum((lost.end - lost.start).tolist())
    assert table["evidence"].notna().all()
    return sums


def test_launch_latency_if_the_queue_has_the_next_kernel() -> None:
    trace = TinyTrace()
    trace.step(0, 50)
    trace.launch((0, 5), (7, 20))
    trace.launch((6, 10), (22, 30))  # queued at 10, before the gap [20, 22)
    assert causes(trace) == {"launch_latency": 2}


def test_launch_bound_inside_operators_and_python_between_them() -> None:
    trace = TinyTrace()
    trace.step(0, 200)
    trace.op("aten::a", 0, 6)
    trace.launch((1, 5), (7, 17))
    trace.op("aten::b", 40, 60)
    trace.launch((50, 58), (60, 70))
    # The gap is [17, 60); the launch returned at 58, 2 µs before, so the host's [15, 58) decides:
    # python [15, 40) = 25 µs, inside aten::b [40, 58) = 18 µs.
    assert causes(trace) == {"python_host": 25, "launch_bound": 18}


def test_operator_without_gpu_calls_computes_on_the_cpu() -> None:
    trace = TinyTrace()
    trace.step(0, 600)
    trace.op("aten::a", 0, 6)
    trace.launch((1, 5), (7, 17))
    trace.op("aten::stack", 20, 320)  # its parts too: the whole of it counts once
    trace.op("aten::cat", 60, 310)
    trace.op("aten::_unsafe_view", 330, 430)  # makes no more than another view, however long it took
    trace.op("aten::eq", 440, 470)  # too short to tell from an operator on the GPU that found nothing to do
    trace.op("aten::to", 480, 560)
    trace.launch((550, 558), (560, 570))
    # The gap is [17, 560); the launch returned at 558, so the host's [15, 558) decides: aten::stack 300, the other operators 100 + 30 + 78 = 208,
    # python [15, 20) 5 + 10 + 10 + 10.
    assert causes(trace) == {"host_compute": 300, "launch_bound": 208, "python_host": 35}


def test_a_kernel_launched_for_the_first_time_loads_its_code() -> None:
    trace = TinyTrace()
    trace.step(0, 4000)
    trace.launch((0, 10), (12, 20), name="known")
    trace.launch((20, 30), (32, 40), name="known")
    trace.launch((40, 1040), (1042, 1050), name="new")  # 1 ms, and launches take 10 µs
    trace.launch((1050, 1060), (1062, 1070), name="new")
    trace.launch((1070, 2070), (2072, 2080), name="known")  # as long, but its code was there: something else held the host
    # A kernel begins 2 µs after its launch returns, so the gaps [20, 32), [40, 1042), [1050, 1062) and [1070, 2072) are the host's time from 2 µs
    # before each launch to its end: 2 µs of Python four times, 10 + 10 + 1000 µs in launches, and 1000 µs in the one that loads.
    assert causes(trace) == {"compilation": 1000, "launch_bound": 1020, "python_host": 8}


def test_data_wait_inside_a_loader_call() -> None:
    trace = TinyTrace()
    trace.step(0, 400)
    trace.launch((0, 5), (7, 20))
    trace.op("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 30, 330, annotation=True)
    trace.launch((340, 345), (347, 350))
    # Gap [20, 347), host [18, 345): python [18, 30) 12 + [330, 340) 10, loader 300, launch call 5.
    assert causes(trace) == {"data_wait": 300, "python_host": 22, "launch_bound": 5}
    _, _, table = analyse(trace)
    waits = table[table["cause"] == "data_wait"]
    assert waits["phase"].tolist() == ["input"]
    # it was in the loader, not in the launch that follows
    assert "DataLoader" in waits["evidence"].iloc[0] and waits["call_id"].tolist() == [-1]


def test_host_sync_is_at_most_as_long_as_the_wait() -> None:
    trace = TinyTrace()
    trace.step(0, 500)
    trace.launch((0, 5), (7, 107))
    trace.call("cudaStreamSynchronize", 80, 110)  # waits from 80 to 107: W = 27 µs
    trace.launch((190, 195), (197, 200))
    # Gap [107, 197) = 90 µs of host work, of which the wait explains 27: without it the host had been 27 µs ahead.
    # Host [105, 195): sync call [105, 110) and launch [190, 195) are launch_bound 10, python 80. The first 27 µs go to the wait:
    # 5 of the call and 22 of python.
    assert causes(trace) == {"host_sync": 27, "python_host": 58, "launch_bound": 5}
    _, _, table = analyse(trace)
    row = table[table["cause"] == "host_sync"].iloc[0]
    assert "waited 27 µs" in row["evidence"]
    assert row["call_id"] == 1


def test_sync_with_an_idle_gpu_is_not_a_cause() -> None:
    trace = TinyTrace()
    trace.step(0, 500)
    trace.launch((0, 5), (7, 20))
    trace.call("cudaStreamSynchronize", 50, 56)
    trace.launch((60, 65), (67, 70))
    # Gap [20, 67), host [18, 65): python 32 + 4, calls 6 + 5.
    assert causes(trace) == {"python_host": 36, "launch_bound": 11}


def test_unused_waiting_explains_later_gaps_too() -> None:
    trace = TinyTrace()
    trace.step(0, 900)
    trace.launch((0, 5), (7, 107))
    trace.call("cudaStreamSynchronize", 7, 110)  # W = 100 µs
    trace.launch((120, 125), (127, 130))  # gap [107, 127) 20
    trace.launch((150, 155), (157, 160))  # gap [130, 157) 27
    trace.launch((300, 305), (307, 310))  # gap [160, 307) 147: 100 − 47 = 53 of it; the rest is the host's own
    found = causes(trace)
    assert found["host_sync"] == 100
    assert found["python_host"] + found["launch_bound"] == 94  # 147 − 53


def test_wait_before_the_window_is_not_a_cause() -> None:
    trace = TinyTrace()
    trace.step(0, 900)
    trace.launch((0, 5), (7, 107))
    trace.call("cudaStreamSynchronize", 7, 110)  # W = 100 µs, of which [107, 207) uses up all
    trace.launch((200, 205), (207, 307))
    trace.call("cudaStreamSynchronize", 290, 310)  # W = 17 µs
    trace.launch((340, 345), (347, 400))
    # The window begins when the second kernel ends, at 307: its wait ended there too and counts. Gap [307, 347) = 40 = 17 + 23.
    assert causes(trace, (307, 400))["host_sync"] == 17
    # In a window from 207 as well; the first wait's 100 µs belong to the time before it.
    assert causes(trace, (207, 400))["host_sync"] == 17
    assert causes(trace)["host_sync"] == 117


def test_blocking_copy_from_pageable_memory() -> None:
    trace = TinyTrace()
    trace.step(0, 900)
    trace.launch((0, 5), (7, 20))
    trace.op("aten::copy_", 30, 140)
    trace.copy((40, 130), (60, 128), "Memcpy HtoD (Pageable -> Device)")
    trace.launch((200, 205), (207, 210))
    lost, found, _ = analyse(trace)
    sums = totals(found, lost)
    assert sums["exposed_memcpy", "blocking_copy"] == 68_000  # 128 − 60
    # Gap [20, 60): the copy call began at 40 and its copy at 60, so the host spent [20, 60): python [20, 30), copy_ [30, 40), the call [40, 60).
    # Gap [128, 207): 68 µs after the copy are charged to the wait for it, what is left is python and the launch.
    assert sums["idle", "blocking_copy"] >= 68_000
    assert sum(sums.values()) == (60 - 20 + 68 + 207 - 128) * 1000


def test_location_of_a_copy_is_its_launch() -> None:
    trace = TinyTrace()
    trace.step(0, 900)
    trace.launch((0, 5), (7, 20))
    trace.op("aten::to", 10, 30)
    trace.copy((12, 16), (60, 200), "Memcpy HtoD (Pinned -> Device)")
    trace.op("aten::bmm", 100, 170)  # runs ahead: queued behind the copy
    trace.launch((110, 115), (202, 210))
    _, _, table = analyse(trace)
    copied = table[table["owner"] == "exposed_memcpy"]
    ops = trace.events().ops
    assert [trace.events().names[ops.name[op]] for op in copied["cpu_op_id"]] == ["aten::to"]
    assert "(aten::to)" in copied["evidence"].iloc[0]


def test_allocator_and_compilation() -> None:
    trace = TinyTrace()
    trace.step(0, 900)
    trace.launch((0, 5), (7, 20))
    trace.call("cudaMalloc", 30, 80)
    trace.launch((90, 95), (97, 100))
    trace.call("cuModuleLoadDataEx", 110, 310)
    trace.launch((320, 325), (327, 330))
    found = causes(trace)
    assert found["allocator"] == 50
    assert found["compilation"] == 200


def test_buffer_time_belongs_to_the_profiler_and_a_full_queue_does_not() -> None:
    trace = TinyTrace()
    trace.step(0, 900)
    trace.launch((0, 5), (7, 20))
    trace.overhead("Activity Buffer Request", 30, 130)
    trace.overhead("Command Buffer Full", 140, 150)
    trace.launch((160, 165), (167, 170))
    assert causes(trace) == {"profiler": 100, "python_host": 42, "launch_bound": 5}  # [18, 30) + [130, 160)


def test_a_wait_for_communication_on_another_stream() -> None:
    trace = TinyTrace()
    trace.step(0, 900)
    trace.launch((0, 4), (10, 110), name="ncclDevKernel_AllReduce", stream=20)
    trace.launch((5, 9), (113, 120))  # queued at 9, stream 7 free: starts 3 µs after the other stream's 110
    lost, found, _ = analyse(trace)
    assert totals(found, lost) == {("exposed_comm", "unattributed"): 100_000, ("idle", "comm_wait"): 3_000}


def test_communication_is_split_at_the_start_of_the_shortest_rank() -> None:
    trace = TinyTrace()
    trace.step(0, 900)
    trace.launch((0, 4), (10, 110), name="ncclDevKernel_AllReduce", stream=20)
    lost, found, _ = analyse(trace, transfer_ns={0: 30_000})
    assert totals(found, lost) == {("exposed_comm", "comm_wait"): 70_000, ("exposed_comm", "comm_transfer"): 30_000}


def test_a_graph_launch_and_its_nodes() -> None:
    trace = TinyTrace()
    trace.step(0, 900)
    trace.launch((0, 5), (7, 20))
    graph = trace.call("cudaGraphLaunch", 100, 150)
    trace.kernel(155, 165, graph)
    trace.kernel(166, 176, graph)
    # [20, 155): the call returned at 150; 5 µs latency, so the host's [15, 150): python 85, the call 50. [165, 166): between nodes.
    assert causes(trace) == {"python_host": 85, "launch_bound": 50, "launch_latency": 1}


def test_an_operation_without_its_launch_is_not_explained() -> None:
    trace = TinyTrace()
    trace.step(0, 900)
    trace.launch((0, 5), (7, 20))
    trace.kernel(70, 80)
    trace.launch((81, 82), (84, 90))
    assert causes(trace)["unattributed"] == 50


def test_phases_follow_the_marks() -> None:
    trace = TinyTrace()
    trace.step(0, 900)
    trace.launch((0, 5), (7, 20))
    trace.op("aten::forward_op", 30, 60)
    trace.launch((50, 55), (57, 60))
    trace.op("autograd::engine::evaluate_function: MulBackward0", 90, 120, thread=1)
    trace.launch((100, 105), (107, 110), thread=1)
    trace.op("Optimizer.step#Adam.step", 140, 190, annotation=True)
    trace.launch((160, 165), (167, 170))
    trace.op("save checkpoint", 200, 300, annotation=True)
    trace.launch((280, 285), (287, 290))
    _, _, table = analyse(trace)
    longest = table.sort_values("end").groupby("gap").last()
    assert longest["phase"].tolist() == ["forward", "backward", "optimizer", "checkpoint"]


def test_a_closure_that_the_optimizer_runs_is_not_its_phase() -> None:
    trace = TinyTrace()
    trace.step(0, 900)
    trace.launch((0, 5), (7, 20))
    trace.op("Optimizer.step#AdamW.step", 25, 290, annotation=True)
    trace.op("aten::forward_op", 30, 60)
    trace.launch((50, 55), (57, 60))
    trace.op("autograd::engine::evaluate_function: MulBackward0", 90, 120, thread=1)
    trace.launch((100, 105), (107, 110), thread=1)
    trace.op("aten::_fused_adamw_", 160, 180)
    trace.launch((170, 175), (177, 180))
    _, _, table = analyse(trace)
    longest = table.sort_values("end").groupby("gap").last()
    assert longest["phase"].tolist() == ["forward", "backward", "optimizer"]


def test_python_frames_name_the_line() -> None:
    trace = TinyTrace()
    trace.step(0, 900)
    trace.launch((0, 5), (7, 20))
    trace.python_call("train.py(12): step", 10, 200)
    trace.python_call("train.py(40): tokenize", 20, 90)
    trace.launch((100, 105), (107, 110))
    _, _, table = analyse(trace)
    first = table.iloc[0]
    assert first["cause"] == "python_host"
    assert first["confidence"] == "high"
    assert "train.py(40): tokenize" in first["evidence"]


def test_two_devices_of_one_process_each_have_their_gaps() -> None:
    trace = TinyTrace()
    trace.step(0, 900)
    trace.launch((0, 5), (7, 20), device=0)
    trace.launch((6, 10), (12, 62), device=1, stream=8)
    trace.call("cudaStreamSynchronize", 15, 65)  # for device 1: device 0 idles meanwhile
    trace.launch((70, 75), (77, 80), device=0)
    # Device 0: gap [20, 77). The wait lasted from 15 to 62, so all of the gap it can explain is 47 µs; the rest is the host's own.
    assert causes(trace, (7, 80)) == {"host_sync": 47, "python_host": 5, "launch_bound": 5}


def test_second_thread_has_its_own_time() -> None:
    trace = TinyTrace()
    trace.step(0, 900)
    for k in range(4):  # the main thread launches all the time, the other within its calls
        trace.op("aten::mm", 100.0 * k, 100.0 * k + 90)
        trace.launch((100.0 * k, 100.0 * k + 80), (100.0 * k + 82, 100.0 * k + 84))
        trace.launch((100.0 * k + 30, 100.0 * k + 40), (100.0 * k + 42, 100.0 * k + 44), thread=3, stream=9)
    found = causes(trace)
    # Before each of the other thread's kernels its own line was outside any call for most of the gap: python, whatever the main thread did.
    assert found["python_host"] > 0
    assert found["launch_bound"] > 0


@given(traces())
@settings(max_examples=60, deadline=None)
def test_causes_sum_to_lost_time_exactly(trace: TinyTrace) -> None:
    lost, found, _ = analyse(trace)
    assert (found.end > found.start).all()
    per_gap = np.zeros(len(lost.start), dtype=np.int64)
    np.add.at(per_gap, found.gap, found.end - found.start)
    assert (per_gap == lost.end - lost.start).all()
    ordered = np.lexsort((found.start, found.gap))
    same = np.diff(found.gap[ordered]) == 0
    assert (found.start[ordered][1:][same] == found.end[ordered][:-1][same]).all()


@given(traces())
@settings(max_examples=40, deadline=None)
def test_the_unchanged_replay_has_the_recorded_causes(trace: TinyTrace) -> None:
    events, facts = trace.events(), trace.facts()
    view = host_view(events, facts)
    problem = build_problem(events, trace.step_table(), facts, view)
    steps = trace.step_table()
    codes = codes_of(trace)
    replayed = replayed_ledger(
        events=events,
        view=view,
        recorded=problem,
        changed=problem,
        run=replay(problem),
        device=0,
        counted=steps.number,
        codes=codes,
    )
    begin, last = _end_of(problem, 0), _end_of(problem, len(steps.number) - 1)
    if last > begin:
        window = union([begin], [last])
        lost = lost_time(segments(events.gpu.start, events.gpu.end, codes, window), window)
        recorded = totals(explain(events, schedule_of(events, view, problem, None), 0, lost, codes), lost)
        assert {k: round(v * (len(steps.number) - 1)) for k, v in replayed.items() if k[1]} == recorded


def _end_of(problem: object, step: int) -> int:
    ops = problem.ops  # type: ignore[attr-defined]
    return int((ops.fixed_start + ops.dur)[(ops.step >= 0) & (ops.step <= step)].max())
