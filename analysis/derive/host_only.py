"""What a trace without GPU work tells: where the host's time goes, per step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis import intervals
from sawtooth.analysis.derive.events import Events
from sawtooth.analysis.derive.steps.host import HostSteps

LOADING = "enumerate(DataLoader)"  # PyTorch's own annotation around the next batch
LOADS_INLINE = "_SingleProcessDataLoaderIter"  # stands in it where the training process loads the batch itself
LOADS_IN_WORKERS = "_MultiProcessingDataLoaderIter"  # and where worker processes do
TOP = 10  # operators: what follows is no answer to "where does the time go"
FEWEST_STEPS = 2  # ends of steps that a time between them needs


def host_only(events: Events, steps: HostSteps) -> dict[str, Any] | None:
    """Return times in ns per step (of the whole recording where there are no steps); None where the trace has no operators.

    ``step_ns`` are the steps' durations. The time of the loop's thread is ``loading_ns``, ``operators_ns`` and ``rest_ns``: waiting for batches,
    inside operators elsewhere, and outside both. ``operators`` are name, own time and calls; ``threads`` id and time inside operators.
    """
    ops = events.ops
    if not len(ops):
        return None
    begin, end = int(ops.start.min()), int(ops.end.max())
    step_ns: list[int] = []
    if len(steps.ends) >= FEWEST_STEPS:
        begin, end = int(steps.ends[0]), int(steps.ends[-1])
        step_ns = [int(gap) for gap, apart in zip(np.diff(steps.ends), np.diff(steps.cycle), strict=True) if apart == 0]
    divisor = max(len(step_ns), 1)
    inside = (ops.start >= begin) & (ops.start < end)
    loading_op = np.array([name.startswith(LOADING) for name in events.names], bool)[ops.name]
    working = inside & ~ops.annotation & ~loading_op
    loop = _loop_thread(events, inside)
    loading = _clipped(events, inside & loading_op & (ops.thread == loop), end)
    operators = intervals.subtract(_clipped(events, working & (ops.thread == loop), end), loading)
    return {
        "step_ns": step_ns,
        "loading_ns": loading.total / divisor,
        "operators_ns": operators.total / divisor,
        "rest_ns": (end - begin - loading.total - operators.total) / divisor,
        "operators": _operators(events, working, divisor),
        "threads": [
            [int(thread), _clipped(events, working & (ops.thread == thread), end).total / divisor]
            for thread in np.unique(ops.thread[working])
        ],
    }


def _loop_thread(events: Events, inside: NDArray[np.bool_]) -> int:
    """Return the thread that runs the loop: the one whose outermost operators and annotations take longest."""
    ops = events.ops
    outer = inside & (ops.parent < 0)
    time = np.bincount(ops.thread[outer], weights=(ops.end - ops.start)[outer]) if outer.any() else np.zeros(1)
    return int(time.argmax())


def _clipped(events: Events, chosen: NDArray[np.bool_], end: int) -> intervals.Intervals:
    return intervals.union(events.ops.start[chosen], np.minimum(events.ops.end[chosen], end))


def _operators(events: Events, working: NDArray[np.bool_], divisor: int) -> list[list[Any]]:
    """Return name, own ns and calls per step of the operators with most time of their own."""
    ops = events.ops
    own = ops.end - ops.start
    has_parent = ops.parent >= 0
    np.subtract.at(own, ops.parent[has_parent], (ops.end - ops.start)[has_parent])
    time = np.bincount(ops.name[working], weights=own[working], minlength=len(events.names))
    calls = np.bincount(ops.name[working], minlength=len(events.names))
    first = np.argsort(-time, kind="stable")[:TOP]
    return [[events.names[i], float(time[i]) / divisor, float(calls[i]) / divisor] for i in first if calls[i]]
