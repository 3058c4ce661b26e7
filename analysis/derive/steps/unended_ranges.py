"""Find ranges that were never popped, and where they really ended.

A profiler ends all open ranges when it stops. So such a range lasts until the end of the recording, over later ranges of its name.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import I64, TraceEvents


def end_ranges(starts: I64, ends: I64, lasts: int | None = None) -> I64:
    """Return the ends of ranges; one that was never popped ends where the next one begins.

    A range ends at the latest ``lasts`` ns after its start.
    """
    order = np.argsort(starts, kind="stable")
    closed, following = ends.copy(), np.append(starts[order][1:], np.iinfo(np.int64).max)
    open_rows = _is_unended(ends[order], following)
    until = following if lasts is None else np.minimum(following, starts[order] + lasts)
    closed[order[open_rows]] = until[open_rows]
    return closed


def with_ended_updates(events: TraceEvents, updates: list[list[int]]) -> TraceEvents:
    """Return the events with each optimizer step that was never popped ended after the usual time.

    ``updates`` are the rows of the steps of each optimizer. If no step ended, the usual time is not known.
    """
    ends = events.ops.end.copy()
    for rows in (
        np.array(optimizer_rows)[events.ops.thread[optimizer_rows] == thread]
        for optimizer_rows in updates
        for thread in np.unique(events.ops.thread[optimizer_rows])
    ):
        start, end = events.ops.start[rows], events.ops.end[rows]
        unended = end_ranges(start, end) < end
        if not unended.all():
            ends[rows] = end_ranges(start, end, int(np.median((end - start)[~unended])))
    return replace(events, ops=replace(events.ops, end=ends))


def _is_unended(ends: I64, following: I64) -> NDArray[np.bool_]:
    """Return which ranges were never popped.

    Several ranges with the same end were never popped, except for the last of them. A range with the latest end of all was
    not popped either. ``following`` are the starts of the next ranges. If a range lasts beyond the next start and ends before
    others, ranges of this name lie within each other by design.
    """
    over = ends > following
    values, number = np.unique(ends, return_counts=True)
    together = over & (number[np.searchsorted(values, ends)] > 1)
    unended = together | (over & (ends == ends.max()))
    return unended if (over == unended).all() else together
