"""Which steps of the optimizers belong to one step of the loop."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import I64, TraceEvents
from sawtooth.analysis.knowledge.host_names import ENGINE_OP

# Largest number of optimizers of one class that take turns. More of them are parameter groups, which share one backward pass.
MAX_ALTERNATING_OPTIMIZERS = 8
FUSED = re.compile(r"Fused(?:Adam|Sgd|Adagrad)")  # Matches the kernels of an optimizer that updates all parameters at once.
# Largest relative spread of the kernel times of one fused optimizer, which does the same work each time.
MAX_KERNEL_TIME_SPREAD = 0.1
MIN_KERNEL_TIME_RATIO = 1.5  # Smallest ratio of the kernel times of two optimizers. A generator and its critic differ by more.
MIN_ROUNDS = 3  # Smallest number of rounds of kernel times. With two rounds, a pattern may be chance.
# Steps of one optimizer differ by at most this number of driver calls or operators, such as an event record, or a synchronization at the
# profile's end.
MAX_CALL_DIFFERENCE = 2


def last_of_each_step(events: TraceEvents, rows: list[int]) -> list[int]:
    """Return the optimizer's steps that a backward pass follows, and the last one.

    Earlier optimizer steps belong to the same step of the loop: DeepSpeed's ZeRO steps once per parameter group, and two
    optimizers of one class share a name. If no operators of the backward pass are recorded, as in a replayed CUDA graph, all
    steps are returned.
    """
    ops = events.ops
    passes = backward_starts(events)
    rows = sorted(rows, key=lambda i: int(ops.end[i]))
    if not len(passes):
        return rows
    before = np.searchsorted(passes, ops.end[rows])
    return [row for row, follows in zip(rows, np.append(np.diff(before) > 0, True), strict=True) if follows]


def backward_starts(events: TraceEvents) -> I64:
    """Return the starts of the operators of the backward pass."""
    of_engine = np.array([ENGINE_OP.match(name) is not None for name in events.names] or [False], bool)
    return events.ops.start[of_engine[events.ops.name]]


def last_of_each_round(events: TraceEvents, rows: list[int]) -> list[int]:
    """Return the last optimizer step of each round if several optimizers of one class take turns.

    Each of them follows its own backward pass, like the optimizers of a generator and its critic. They share a name, but have
    different parameters. So the steps of one optimizer differ from those of another in the number of their driver calls or
    operators. Fused optimizers make equally many; they are distinguished by the time of their kernels. Calls of other threads
    do not count, because NCCL's watchdog makes dozens of calls at any time.
    """
    rows = sorted(rows, key=lambda i: int(events.ops.end[i]))
    calls = events.calls
    counts = (_within(events, rows, calls.thread, calls.start), _within(events, rows, events.ops.thread, events.ops.start))
    for turns in range(2, min(MAX_ALTERNATING_OPTIMIZERS, len(rows) // 2) + 1):
        for count in counts:
            same_in_turn = all(np.ptp(count[turn::turns]) <= MAX_CALL_DIFFERENCE for turn in range(turns))
            if same_in_turn and np.ptp(count) > 2 * MAX_CALL_DIFFERENCE:
                return rows[turns - 1 :: turns]
    kernel_ns = _fused_ns(events, rows)
    turns = _fused_turns(kernel_ns)
    turns = turns if turns > 1 else _turns_of_backward(events, rows, kernel_ns)
    return rows[turns - 1 :: turns]


def _within(events: TraceEvents, rows: list[int], thread: NDArray[np.signedinteger[Any]], start: I64) -> I64:
    """Return, for each annotation, how many events of its thread start within it.

    The starts are in ns and in ascending order.
    """
    ops = events.ops
    first, end = np.searchsorted(start, ops.start[rows]), np.searchsorted(start, ops.end[rows])
    return np.array([(thread[a:b] == ops.thread[row]).sum() for row, a, b in zip(rows, first, end, strict=True)], np.int64)


def _turns_of_backward(events: TraceEvents, rows: list[int], kernel_ns: I64) -> int:
    """Return how many fused optimizers take turns, from the backward pass before each step.

    The result is 1 if they cannot be distinguished.
    Backward passes of one turn have equally many operators, and their numbers repeat round by round. One optimizer for several
    losses shows that too, but its kernels take equally long in each turn.
    """
    # The first pass may lack its beginning, so it does not count.
    operators = np.diff(np.searchsorted(backward_starts(events), events.ops.end[rows]))
    for turns in range(2, min(MAX_ALTERNATING_OPTIMIZERS, len(rows) // MIN_ROUNDS) + 1):
        repeats = np.array_equal(operators[turns:], operators[:-turns]) and np.ptp(operators) > 0
        times = [kernel_ns[turn::turns] for turn in range(turns)]
        if repeats and min(part.max() for part in times) < max(part.min() for part in times):
            return turns
    return 1


def _fused_turns(kernel_ns: I64) -> int:
    """Return how many fused optimizers take turns, from the kernel time of each step.

    The result is 1 if the times do not show several.
    """
    for turns in range(2, min(MAX_ALTERNATING_OPTIMIZERS, len(kernel_ns) // MIN_ROUNDS) + 1):
        of_turn = [kernel_ns[turn::turns] for turn in range(turns)]
        means = [float(part.mean()) for part in of_turn]
        if min(means) <= 0 or max(means) < MIN_KERNEL_TIME_RATIO * min(means):
            continue
        if all(np.ptp(part) <= MAX_KERNEL_TIME_SPREAD * mean for part, mean in zip(of_turn, means, strict=True)):
            return turns
    return 1


def _fused_ns(events: TraceEvents, rows: list[int]) -> I64:
    """Return, for each step of an optimizer, the time in ns of the fused kernels launched in it.

    Steps are ordered by time.
    """
    fused = np.array([FUSED.search(name) is not None for name in events.names] or [False], bool)
    launched = np.flatnonzero(fused[events.gpu.name] & (events.gpu.call >= 0))
    moments = events.calls.start[events.gpu.call[launched]]
    starts, ends = events.ops.start[rows], events.ops.end[rows]
    step = np.searchsorted(starts, moments, side="right") - 1
    inside = (step >= 0) & (moments < ends[np.maximum(step, 0)])
    kernel_ns = (events.gpu.end - events.gpu.start)[launched]
    return np.bincount(step[inside], kernel_ns[inside], minlength=len(rows)).astype(np.int64)
