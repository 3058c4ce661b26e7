"""Tests of idle causes: one hand-made trace for each cause, and sums over generated traces.

The arithmetic is in a comment of each test.
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
from tests.support.lost_time import analyse, causes
from tests.support.replay_traces import codes_of
from tests.support.replay_traces import pieces as traces
from tests.support.tiny_trace import TinyTrace


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
    # The gap is [17, 60). The launch returned at 58, 2 µs earlier, so the host's [15, 58) counts:
    # Python [15, 40) = 25 µs, inside aten::b [40, 58) = 18 µs.
    assert causes(trace) == {"python_host": 25, "launch_bound": 18}


def test_operator_without_gpu_calls_computes_on_the_cpu() -> None:
    trace = TinyTrace()
    trace.step(0, 600)
    trace.op("aten::a", 0, 6)
    trace.launch((1, 5), (7, 17))
    trace.op("aten::stack", 20, 320)  # It contains aten::cat and counts once.
    trace.op("aten::cat", 60, 310)
    trace.op("aten::_unsafe_view", 330, 430)  # This operator only makes a view, so it does not count, however long it takes.
    trace.op("aten::eq", 440, 470)  # This may be an operator on the GPU that has no work to do.
    trace.op("aten::to", 480, 560)
    trace.launch((550, 558), (560, 570))
    # The gap is [17, 560). The launch returned at 558, so the host's [15, 558) counts: aten::stack 300, the other operators 100 + 30 + 78 = 208,
    # Python [15, 20) 5 + 10 + 10 + 10.
    assert causes(trace) == {"host_compute": 300, "launch_bound": 208, "python_host": 35}


def test_a_kernel_launched_for_the_first_time_loads_its_code() -> None:
    trace = TinyTrace()
    trace.step(0, 4000)
    trace.launch((0, 10), (12, 20), name="known")
    trace.launch((20, 30), (32, 40), name="known")
    trace.launch((40, 1040), (1042, 1050), name="new")  # 1 ms; other launches take 10 µs
    trace.launch((1050, 1060), (1062, 1070), name="new")
    trace.launch((1070, 2070), (2072, 2080), name="known")  # This launch takes as long, but the code was already loaded.
    # A kernel begins 2 µs after its launch returns, so the gaps [20, 32), [40, 1042), [1050, 1062) and [1070, 2072) are the host's time from 2 µs
    # before each launch to its end: four times 2 µs of Python, 10 + 10 + 1000 µs in launches, and 1000 µs in the launch that loads code.
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
    # The host spent this time in the loader, not in the launch after it.
    assert "DataLoader" in waits["evidence"].iloc[0] and waits["call_id"].tolist() == [-1]


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
    trace.call("cudaStreamSynchronize", 15, 65)  # Waits for device 1 while device 0 is idle.
    trace.launch((70, 75), (77, 80), device=0)
    # Device 0: gap [20, 77). The wait lasted from 15 to 62, so it can explain at most 47 µs of the gap. The host worked for the rest.
    assert causes(trace, (7, 80)) == {"host_sync": 47, "python_host": 5, "launch_bound": 5}


def test_second_thread_has_its_own_time() -> None:
    trace = TinyTrace()
    trace.step(0, 900)
    for k in range(4):  # The main thread launches all the time, and the other thread during its calls.
        trace.op("aten::mm", 100.0 * k, 100.0 * k + 90)
        trace.launch((100.0 * k, 100.0 * k + 80), (100.0 * k + 82, 100.0 * k + 84))
        trace.launch((100.0 * k + 30, 100.0 * k + 40), (100.0 * k + 42, 100.0 * k + 44), thread=3, stream=9)
    found = causes(trace)
    # Before each kernel of the other thread, that thread was outside any call for most of the gap. This is Python, whatever the main thread did.
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
