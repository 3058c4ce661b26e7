"""Tests of steps by launch correlation, on small traces. Times are in nanoseconds."""

import time
from dataclasses import replace

import numpy as np
import pytest

from sawtooth.analysis.derive.events import Calls, CpuOps, GpuOps, TraceEvents
from sawtooth.analysis.derive.steps.counted_steps import _warm_up_length
from sawtooth.analysis.derive.steps.device import device_steps
from sawtooth.analysis.derive.steps.host import find_host_steps
from tests.support.by_hand import FUSED_ADAM


def make(annotations, launches, gpu, names=None):
    """Return the steps of a trace.

    annotations: (name, start, end); launches: (start, end); gpu: (start, end, launch index or -1).
    """
    texts = [n for n, _, _ in annotations] + ["cudaLaunchKernel", "kernel"]
    index = {n: i for i, n in enumerate(dict.fromkeys(texts))}

    def i64(values):
        return np.array(values, np.int64)

    n, m, k = len(gpu), len(launches), len(annotations)
    return TraceEvents(
        0,
        list(index),
        GpuOps(
            np.zeros(n, np.int8), np.full(n, index["kernel"], np.int32), np.zeros(n, np.int32), i64([7] * n), i64([g[0] for g in gpu]),
            i64([g[1] for g in gpu]), i64([g[2] for g in gpu]), i64([-1] * n), i64([-1] * n), i64([-1] * n),
        ),
        Calls(
            np.full(m, index["cudaLaunchKernel"], np.int32), np.zeros(m, np.int32), i64([c[0] for c in launches]), i64([c[1] for c in launches]),
            i64(range(m)), i64([-1] * m), np.ones(m, np.int32),
        ),
        CpuOps(
            np.ones(k, bool), np.array([index[a[0]] for a in annotations], np.int32), np.zeros(k, np.int32), i64([a[1] for a in annotations]),
            i64([a[2] for a in annotations]), i64([-1] * k), i64([-1] * k), i64([-1] * k), np.full(k, -1, np.int32),
        ),
    )  # fmt: skip


def place(events):
    return device_steps(events, find_host_steps(events), 0)


def run_ahead():
    """Return a trace whose host issues four steps in 40 ns; each keeps the GPU busy for 100 ns."""
    annotations = [(f"ProfilerStep#{3 + k}", 10 * k, 10 * k + 10) for k in range(4)]
    launches = [(10 * k + 2, 10 * k + 3) for k in range(4)]
    gpu = [(5 + 100 * k, 105 + 100 * k, k) for k in range(4)]
    return annotations, launches, gpu


def test_steps_end_with_their_last_operation_even_if_the_host_runs_ahead():
    table = place(make(*run_ahead())).table
    # Step k's only operation ends at 105 + 100 k; the first starts with its annotation at 0.
    assert table["end"].tolist() == [105, 205, 305, 405]
    assert table["start"].tolist() == [0, 105, 205, 305]
    assert table["counted"].tolist() == [False, True, True, True]


def test_steady_window_runs_from_the_end_of_the_first_step_to_the_end_of_the_last():
    window = place(make(*run_ahead())).window
    assert (window.starts.tolist(), window.ends.tolist()) == ([105], [405])


def test_unlinked_work_before_the_first_linked_operation_is_carried_over_and_delays_the_first_step():
    annotations, launches, gpu = run_ahead()
    shifted = [(s + 50, e + 50, k) for s, e, k in gpu]
    found = place(make(annotations[:2], launches[:2], [(0, 50, -1), *shifted[:2], (700, 710, -1)]))
    assert found.status.tolist() == [1, 0, 0, 2]  # These are carried over, linked, linked and an orphan.
    assert (
        found.table["start"].iloc[0] == 50
    )  # The step does not start at 0 with its annotation, because the device was still busy with older work.
    assert found.table["counted"].tolist() == [True, True]  # There is only one other step, so the first step must count.


def test_a_step_never_crosses_two_profiling_cycles():
    annotations = [
        ("ProfilerStep#3", 0, 10),
        ("ProfilerStep#4", 10, 20),
        ("ProfilerStep#9", 1000, 1010),
        ("ProfilerStep#10", 1010, 1020),
    ]
    launches = [(1, 2), (11, 12), (1001, 1002), (1011, 1012)]
    gpu = [(2, 8, 0), (12, 18, 1), (1002, 1008, 2), (1012, 1018, 3)]
    table = place(make(annotations, launches, gpu)).table
    assert table["cycle"].tolist() == [0, 0, 1, 1]
    assert table["start"].iloc[2] == 1000
    assert table["counted"].tolist() == [False, True, False, True]


def test_work_carried_into_a_later_cycle_does_not_delay_the_first():
    annotations, launches, gpu = run_ahead()
    later = [("ProfilerStep#9", 1000, 1010), ("ProfilerStep#10", 1010, 1020)]
    operations = [*gpu[:2], (900, 990, -1), (995, 1015, -1), (1015, 1100, 2), (1100, 1200, 3)]
    found = place(make(annotations[:2] + later, [*launches[:2], (1002, 1003), (1012, 1013)], operations))
    assert found.status.tolist() == [0, 0, 1, 1, 0, 0]
    assert found.table["start"].tolist() == [0, 105, 1015, 1100]


def durations(values):
    """Return which steps of these durations count."""
    annotations, launches, gpu, at = [], [], [], 0
    for k, value in enumerate(values):
        annotations.append((f"ProfilerStep#{k}", at, at + value))
        launches.append((at + 1, at + 2))
        gpu.append((at + 2, at + value, k))
        at += value
    return place(make(annotations, launches, gpu)).table["counted"].tolist()


@pytest.mark.parametrize("phase", range(5))
@pytest.mark.parametrize("wait", [(300, 300, 300), (300, 220, 260)])
def test_periodic_waits_are_not_warm_up(phase, wait):
    # Batches come in bursts: the first step after a wait finds a full queue, the later ones a shorter one.
    steps = [value for w in wait for value in (w, 125, 124, 122, 100)]
    assert durations(steps[phase : phase + 10]) == [False] + [True] * 9


def test_pause_after_faster_steps_is_not_warm_up():
    # Of ten steps the fifth waits; the three before it are a little slower than those after it.
    assert durations([120, 117, 115, 114, 1000, 88, 85, 84, 83, 86]) == [False] + [True] * 9


@pytest.mark.parametrize(
    ("values", "warm"),
    [
        ((900, 300, 100, 101, 99, 100, 102, 98), 1),  # Of the steps that could count, only the first is slow.
        ((900, 500, 300, 200, 100, 101, 99, 100, 102, 98), 3),  # three declining
        ((900, 300, 305, 100, 101, 99, 100, 102, 98), 2),  # Two equal ones.
        ((900, 500, 300, 100, 101, 99, 100, 180, 102, 98), 2),  # A later slow step of another length.
    ],
)
def test_warm_up_steps_get_faster_and_occur_once(values, warm):
    assert durations(values) == [False] * (1 + warm) + [True] * (len(values) - 1 - warm)


@pytest.mark.parametrize("warm", [0, 12_000])
def test_a_run_of_thirty_thousand_steps_is_judged_quickly(warm):
    steps = np.random.default_rng(1).normal(100_000, 500, 30_000).astype(np.int64)
    steps[:warm] = 300_000
    begin = time.process_time()
    assert _warm_up_length(steps) == warm
    assert time.process_time() - begin < 1.0  # Computing a median of the rest for each length took half a minute.


def test_leading_slow_steps_are_warm_up_but_periodic_ones_are_not():
    assert durations([100, 300, 100, 101, 99, 100]) == [False, False, True, True, True, True]
    # Two workers finish together, so every second step waits. None of these waits is warm-up.
    assert durations([100, 260, 20, 260, 20, 260, 20]) == [False, True, True, True, True, True, True]
    # A late outlier may be a checkpoint, so it counts.
    assert durations([100, 100, 101, 99, 400, 100]) == [False, True, True, True, True, True]


def test_a_cut_off_last_step_is_left_out():
    annotations = [(f"ProfilerStep#{k}", 10 * k, 10 * k + 10) for k in range(5)]
    launches = [(10 * k + j, 10 * k + j + 1) for k in range(5) for j in (1, 4)]
    gpu = [(start + 1, start + 3, i) for i, (start, _) in enumerate(launches)][:-1]
    table = place(make(annotations, launches, gpu)).table
    assert table["counted"].tolist() == [False, True, True, True, False]
    assert "cut off" in table["excluded_because"].iloc[-1]


@pytest.mark.parametrize(("of_last", "counted"), [(3, True), (2, False)])
def test_last_step_without_launches_is_complete_if_its_operations_ran(of_last, counted):
    annotations = [(f"ProfilerStep#{k}", 10 * k, 10 * k + 10) for k in range(5)]
    launches = [(10 * k + j, 10 * k + j + 1) for k in range(5) for j in (1, 3, 5)]
    gpu = [(start + 1, start + 3, i if i < 13 else -1) for i, (start, _) in enumerate(launches)][: 12 + of_last]
    assert place(make(annotations, launches, gpu)).table["counted"].tolist() == [False, True, True, True, counted]


def test_two_open_ranges_begin_where_they_were_pushed():
    """The eight steps before them have no range, so they are not part of the first."""
    annotations = [("iteration8", 80, 200), ("iteration9", 90, 200)]
    launches = [(10 * k + 2, 10 * k + 3) for k in range(10)]
    gpu = [(10 * k + 4, 10 * k + 9, k) for k in range(10)]
    host = find_host_steps(make(annotations, launches, gpu))
    assert host.starts.tolist() == [80, 90] and host.ends.tolist() == [90, 200]


@pytest.mark.parametrize("name", ["Optimizer.step#AdamW.step", "iteration"])
@pytest.mark.parametrize("unended", [0, 1])
def test_an_open_range_does_not_hide_the_next_steps(name, unended):
    annotations = [(name, at, 40 if k == unended else at + 2) for k, at in enumerate((8, 18, 28))]
    launches = [(at + 1, at + 2) for at in (2, 8, 12, 18, 22, 28)]
    gpu = [(at + 2, at + 3, i) for i, (at, _) in enumerate(launches)]
    host = find_host_steps(make(annotations, launches, gpu))
    # An optimizer's step lasts as long as the others. Another range ends where the next one begins.
    ends = [10, 20, 30]
    if name == "iteration":
        ends[unended] = annotations[unended + 1][1]
    assert host.ends.tolist() == ends


def test_without_profiler_steps_the_optimizer_marks_them():
    annotations = [(name, at, at + 2) for at in (8, 18, 28) for name in ("forward", "Optimizer.step#AdamW.step")]
    launches = [(at + 1, at + 2) for at in (2, 12, 22)]
    gpu = [(at + 3, at + 9, i) for i, at in enumerate((2, 12, 22))]
    host = find_host_steps(make(annotations, launches, gpu))
    assert (host.source, host.annotation) == ("annotation", "Optimizer.step#AdamW.step")
    assert host.starts.tolist()[1:] == host.ends.tolist()[:-1]  # (end of the previous, end of this]


def test_partial_updates_make_one_step_per_backward_pass():
    # ZeRO steps once for each of two groups; the first and the last step are cut by the profile's ends.
    step, backward = "Optimizer.step#AdamW.step", "autograd::engine::evaluate_function: AddmmBackward0"
    events = [(step, 6, 7), (step, 8, 9), (backward, 13, 14), (backward, 14, 15), (step, 16, 17), (step, 18, 19)]
    events += [(backward, 23, 24), (step, 26, 27), (step, 28, 29), (backward, 33, 34), (step, 36, 37)]
    host = find_host_steps(make(events, [(1, 2)], [(2, 4, 0)]))
    assert (host.source, host.ends.tolist()) == ("annotation", [9, 19, 29, 37])
    assert host.names == [f"{step} {i}" for i in (1, 2, 3, 4)]


def test_names_of_steps_may_carry_their_numbers():
    annotations = [(f"Step {10 * k} to {10 * k + 10}", 20 * k, 20 * k + 18) for k in range(3)] + [
        ("layer 1", 50, 51),
        ("layer 2", 52, 53),
    ]
    host = find_host_steps(make(annotations, [(1, 2)], [(2, 4, 0)]))
    assert (host.source, host.annotation) == ("annotation", "Step # to #")
    assert host.names == ["Step 0 to 10", "Step 10 to 20", "Step 20 to 30"]


@pytest.mark.parametrize(
    "name", ["nccl:all_reduce", "FSDP::pre_forward", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"]
)
def test_library_annotations_are_not_steps(name):
    events = make([(name, 0, 5), (name, 10, 15)], [(1, 2)], [(2, 4, 0)])
    assert find_host_steps(events).source == "none"
    found = place(events)
    assert len(found.table) == 0
    assert (found.window.starts.tolist(), found.window.ends.tolist()) == ([2], [4])


def test_generator_and_critic_with_equal_optimizer_names_make_one_step():
    # A critic of two parameters and a generator of eight, three rounds: the driver is called once a parameter.
    annotations = [("Optimizer.step#Adam.step", 100 * k + 10, 100 * k + 90) for k in range(6)]
    launches = [(100 * k + 11 + 2 * n, 100 * k + 12 + 2 * n) for k in range(6) for n in range((2, 8)[k % 2])]
    gpu = [(start + 1, start + 3, n) for n, (start, _) in enumerate(launches)]
    steps = find_host_steps(make(annotations, launches, gpu))
    assert steps.ends.tolist() == [190, 390, 590]


def test_one_more_call_does_not_join_steps_of_one_optimizer():
    annotations = [("Optimizer.step#Adam.step", 100 * k + 10, 100 * k + 90) for k in range(4)]
    launches = [(100 * k + 11 + 2 * n, 100 * k + 12 + 2 * n) for k in range(4) for n in range((4, 5)[k % 2])]
    steps = find_host_steps(make(annotations, launches, [(start + 1, start + 3, n) for n, (start, _) in enumerate(launches)]))
    assert len(steps.ends) == 4


def fused_steps(times, kernel=FUSED_ADAM, groups=1):
    """Return steps of Adam with one launch per group of parameters, whose kernels take ``times``."""
    annotations = [("Optimizer.step#Adam.step", 100 * k + 10, 100 * k + 20) for k in range(len(times))]
    launches = [(100 * k + 11 + 2 * g, 100 * k + 12 + 2 * g) for k in range(len(times)) for g in range(groups)]
    gpu = [(100 * (n // groups) + 30 + 30 * (n % groups), 100 * (n // groups) + 30 + 30 * (n % groups) + times[n // groups], n)
           for n in range(len(launches))]  # fmt: skip
    events = make(annotations, launches, gpu)
    return find_host_steps(replace(events, names=[kernel if name == "kernel" else name for name in events.names]))


def test_alternating_fused_optimizers_make_one_step_together():
    # One launch each: only the kernel's duration, here to 8 %, distinguishes a critic's step from a generator's.
    assert fused_steps([10, 25, 11, 24, 10, 25]).ends.tolist() == [120, 320, 520]
    # A critic that steps twice before its generator does
    assert fused_steps([10, 10, 25, 10, 10, 25, 10, 10, 25]).ends.tolist() == [220, 520, 820]


@pytest.mark.parametrize(
    "times",
    [
        [20] * 6,
        [20, 26] * 3,  # Closer together than two networks are.
        [10, 25, 10, 25],  # Two rounds may be chance.
        [10, 25, 10, 40, 10, 25],  # No optimizer does more work by this factor each time.
        [10, 25, 25, 10, 25, 10, 10, 25],  # no order
    ],
)
def test_steps_of_one_fused_optimizer_stay_single(times):
    assert len(fused_steps(times).ends) == len(times)


def test_groups_of_parameters_of_one_fused_optimizer_are_one_step():
    assert len(fused_steps([10] * 6, groups=2).ends) == 6


def test_other_kernels_do_not_distinguish_optimizers():
    assert len(fused_steps([10, 25] * 3, kernel="elementwise").ends) == 6
