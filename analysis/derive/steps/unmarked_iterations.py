"""Find unmarked iterations of a loop that marks only some iterations, for example every hundredth.

A range around one iteration launches the same kernels as each unmarked iteration does. So the kernels between two ranges are
the kernels of one iteration, repeated one or more times. In a trace of the CPU alone, operators are compared instead of
kernels. Gradient accumulation with one mark per step is different, because the optimizer's kernels are launched once for all
micro-batches.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from sawtooth.analysis.derive.events import GPU_KINDS, I64, TraceEvents
from sawtooth.analysis.derive.steps.host_steps import HostSteps

MIN_KERNELS = 10  # Number of kernels in an iteration. A range with fewer kernels may be only a part of an iteration.
# At least this share of the intervals must divide exactly. The other intervals contain work of another kind.
MIN_DIVIDING_SHARE = 0.75
NUMBER = re.compile(r"\d{1,18}")


def divide_steps(events: TraceEvents, steps: HostSteps, starts: I64) -> HostSteps:
    """Return the steps, with each step that contains several iterations divided.

    ``starts`` are the starts of the marked ranges, in order. Each step lasts from the end of one range to the end of the next.
    A step that contains several iterations but does not divide into equal iterations counts as a lost mark.
    """
    moments, kinds = _kernels(events) if len(events.gpu) or len(events.calls) else _operators(events, starts)
    first, behind = np.searchsorted(moments, starts), np.searchsorted(moments, steps.ends)
    begins = np.append(first[0], np.minimum(behind[:-1], first[1:]))
    period = behind - first
    if (
        begins == first
    ).all():  # Ranges that were never popped have no kernels between them, so the numbers in their names decide.
        period = np.full(len(first), period[0] // _number_growth(steps.names))
    borders = [_borders(kinds[begins[i] : behind[i]], int(period[i])) for i in range(len(first))]
    divided = [inside for inside in borders if inside is not None]
    if not any(len(inside) for inside in divided) or len(divided) < MIN_DIVIDING_SHARE * len(borders):
        return steps
    names: list[str] = []
    ends: list[int] = []
    for i, inside in enumerate(borders):
        within = [] if inside is None else moments[begins[i] + inside].tolist()
        ends += [*within, int(steps.ends[i])]
        names += [f"{steps.names[i]}, iteration {place}" for place in range(1, len(within) + 2)]
    return replace(
        steps,
        names=names,
        starts=np.array([starts[0], *ends[:-1]], np.int64),
        ends=np.array(ends, np.int64),
        cycle=np.zeros(len(ends), np.int64),
        lost_marks=len(borders) - len(divided),
    )


def _kernels(events: TraceEvents) -> tuple[I64, I64]:
    """Return launch times and names of the kernels, in order of launch."""
    kernels = np.flatnonzero((events.gpu.kind == GPU_KINDS.index("kernel")) & (events.gpu.call >= 0))
    launched = events.calls.start[events.gpu.call[kernels]]
    order = np.lexsort((kernels, launched))
    return launched[order], events.gpu.name[kernels[order]].astype(np.int64)


def _operators(events: TraceEvents, starts: I64) -> tuple[I64, I64]:
    """Return starts and names of the operators on the threads of the ranges that begin at ``starts``."""
    ops = events.ops
    threads = ops.thread[ops.annotation & np.isin(ops.start, starts)]
    on_loop_threads = ~ops.annotation & np.isin(ops.thread, threads)
    return ops.start[on_loop_threads], ops.name[on_loop_threads].astype(np.int64)


def operator_starts(events: TraceEvents, marks: list[int]) -> I64:
    """Return the starts of the operators on the threads of ``marks``, the rows of the steps' ranges."""
    return _operators(events, events.ops.start[marks])[0]


def _borders(kinds: I64, period: int) -> I64 | None:
    """Return where further iterations begin among the kernels of an interval.

    There are none if the interval is one iteration. The result is None if the interval does not divide into equal iterations.
    """
    if len(kinds) == period:
        return np.zeros(0, np.int64)
    if period < MIN_KERNELS or len(kinds) % period or not np.array_equal(kinds[period:], kinds[:-period]):
        return None
    return np.arange(period, len(kinds), period)


def _number_growth(names: list[str]) -> int:
    """Return the difference of a number in consecutive mark names; 1 if no number grows evenly."""
    numbers = [[int(number) for number in NUMBER.findall(name)] for name in names]
    if len({len(numbers_of_name) for numbers_of_name in numbers}) > 1:
        return 1
    growth = [np.unique(np.diff(column)) for column in zip(*numbers, strict=True)]
    return next((int(steps[0]) for steps in growth if len(steps) == 1 and steps[0] > 1), 1)
