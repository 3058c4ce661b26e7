"""Link related rows: parents by nesting, launches by correlation, operators by time on the thread.

Rows arrive in slices of time. An interval that is still open at the end of a slice is added to the next slice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sawtooth.ingest.decode import I64, NULL

I32 = NDArray[np.int32]


@dataclass(frozen=True)
class NestedIntervals:
    """Intervals of one slice with their parents. The first ``carried`` rows come from earlier slices.

    ``id`` is the row's number in the finished table. ``parent`` is the index of the parent in these arrays, or -1.
    """

    carried: int
    id: I64
    thread: I32
    start: I64
    dur: I64
    parent: I64
    depth: I32

    def parents_and_depths(self) -> tuple[I64, I32]:
        """Return parent ids (-1 for none) and depths of the rows that begin in this slice."""
        parent = self.parent[self.carried :]
        return np.where(parent >= 0, self.id[parent], -1), self.depth[self.carried :]


class Nesting:
    """Search for the parents of intervals, slice by slice.

    The parent of an interval is the innermost earlier interval of the thread that encloses it. An interval may end up to ``tolerance`` ns
    after its parent, because a clock with a resolution of one microsecond rounds the ends of both intervals.
    """

    def __init__(self, tolerance: int = 0) -> None:
        self._tolerance = tolerance
        self._next_id = 0
        self._open: NestedIntervals | None = None

    def add(self, thread: I32, start: I64, dur: I64, since: int | None = None) -> NestedIntervals:
        """Link the next slice, whose rows are sorted by start, longest first.

        ``thread`` has small numbers from 0. Intervals of earlier slices stay open if they end at or after the start of the first row, or at
        or after ``since`` if that time is earlier.
        """
        if not len(start) and self._open is not None:  # Without new rows, all intervals stay open.
            return replace(self._open, carried=len(self._open.id))
        ids = np.arange(self._next_id, self._next_id + len(start))
        self._next_id += len(start)
        carried, parent, depth = 0, np.full(len(start), -1, np.int64), np.zeros(len(start), np.int32)
        if self._open is not None:
            old = self._open
            keep = np.flatnonzero(old.start + old.dur >= (start[0] if since is None else min(since, start[0])))
            carried = len(keep)
            new_index = np.full(len(old.id) + 1, -1, np.int64)  # The last element keeps -1 (no parent) at -1.
            new_index[keep] = np.arange(carried)
            ids, thread = np.concatenate([old.id[keep], ids]), np.concatenate([old.thread[keep], thread])
            start, dur = np.concatenate([old.start[keep], start]), np.concatenate([old.dur[keep], dur])
            parent = np.concatenate([new_index[old.parent[keep]], parent])
            depth = np.concatenate([old.depth[keep], depth])
        for thread_number in np.flatnonzero(np.bincount(thread[carried:])):
            rows = np.flatnonzero(thread == thread_number)
            _link(
                rows=rows,
                linked_count=int(np.searchsorted(rows, carried)),
                start=start,
                dur=dur,
                parent=parent,
                depth=depth,
                tolerance=self._tolerance,
            )
        self._open = NestedIntervals(carried=carried, id=ids, thread=thread, start=start, dur=dur, parent=parent, depth=depth)
        return self._open


def _link(*, rows: I64, linked_count: int, start: I64, dur: I64, parent: I64, depth: I32, tolerance: int) -> None:
    """Fill ``parent`` and ``depth`` of one thread's ``rows`` after the first ``linked_count``."""
    if not _link_nested(rows=rows, linked_count=linked_count, start=start, dur=dur, parent=parent, depth=depth):
        _link_overlapping(
            rows=rows, linked_count=linked_count, start=start, dur=dur, parent=parent, depth=depth, tolerance=tolerance
        )


def _link_nested(*, rows: I64, linked_count: int, start: I64, dur: I64, parent: I64, depth: I32) -> bool:
    """Link all intervals at once and return True. After a partial overlap, change nothing; return False.

    Without partial overlaps, an interval's depth is the number of earlier intervals that are open at its start. The parent is the last
    interval with a depth that is smaller by one. If each of these parents encloses its child, the open intervals are the chain of parents,
    so no other interval is closer.
    """
    begin, end = start[rows], start[rows] + dur[rows]
    lasting = end > begin  # An empty interval encloses nothing.
    earlier: I64 = np.cumsum(lasting) - lasting
    level = earlier - np.searchsorted(np.sort(end[lasting]), begin, side="right")
    outer_row = np.full(len(rows), -1, np.int64)
    # NumPy sorts 16-bit integers by radix, which is faster.
    order = np.argsort(level.astype(np.int16) if len(level) and level.max() < 1 << 15 else level, kind="stable")
    borders = np.searchsorted(level[order], np.arange(int(level.max(initial=0)) + 2))
    for number in range(1, len(borders) - 1):
        outer, inner = order[borders[number - 1] : borders[number]], order[borders[number] : borders[number + 1]]
        outer = outer[lasting[outer]]
        position = np.searchsorted(outer, inner) - 1
        if (position < 0).any():
            return False
        outer_row[inner] = outer[position]
    inside = outer_row >= 0
    outer_end = end[outer_row[inside]]
    overlaps_partially = outer_end < end[inside]
    ended_before = outer_end <= begin[inside]
    if (overlaps_partially | ended_before).any():
        return False
    new = slice(linked_count, None)
    parent[rows[new]] = np.where(inside[new], rows[outer_row[new]], -1)
    depth[rows[new]] = level[new]
    return True


def _link_overlapping(*, rows: I64, linked_count: int, start: I64, dur: I64, parent: I64, depth: I32, tolerance: int) -> None:
    """Link intervals one by one, by the definition in ``Nesting``."""
    ends = start[rows] + dur[rows]
    stack: list[tuple[int, int, int]] = []  # Entries are (end, row, depth), outermost first.
    for i, (row, begin, end) in enumerate(zip(rows.tolist(), start[rows].tolist(), ends.tolist(), strict=True)):
        while stack and stack[-1][0] <= begin:
            stack.pop()
        if i >= linked_count:
            level = len(stack)
            # With overlaps, an interval below the top of the stack may have ended already.
            while level and (stack[level - 1][0] <= begin or stack[level - 1][0] + tolerance < end):
                level -= 1
            if level:
                parent[row], depth[row] = stack[level - 1][1], stack[level - 1][2] + 1
        stack.append((end, row, int(depth[row])))


def enclosing_ids(outer: NestedIntervals, thread: I32, start: I64, dur: I64, tolerance: int = 0) -> I64:
    """Return for each interval the id of the innermost interval of ``outer`` that encloses it, else -1.

    In contrast to ``Nesting``, the parents are in another table. An example is the operator around a launch.
    """
    result = np.full(len(start), -1, np.int64)
    ends = outer.start + outer.dur
    for thread_number in np.flatnonzero(np.bincount(thread)):
        rows, queries = np.flatnonzero(outer.thread == thread_number), np.flatnonzero(thread == thread_number)
        if not len(rows):
            continue
        position = np.searchsorted(outer.start[rows], start[queries], side="right") - 1
        candidate = np.where(position >= 0, rows[np.maximum(position, 0)], -1)
        end = start[queries] + dur[queries]
        outside = np.flatnonzero((candidate >= 0) & (ends[candidate] + tolerance < end))
        while len(outside):
            parent = outer.parent[candidate[outside]]
            candidate[outside] = parent
            outside = outside[(parent >= 0) & (ends[parent] + tolerance < end[outside])]
        result[queries] = np.where(candidate >= 0, outer.id[candidate], -1)
    return result


class LaunchLinks:
    """Index of calls by correlation, which finds the call that launched a GPU operation.

    Correlations should be unique in a process. If calls share a correlation, the last call that starts before the operation is used. If no
    call starts before the operation, the first call is used. 0 and NULL (a missing value) are not correlations.
    """

    def __init__(self, correlation: I64, start: I64) -> None:
        """Index the ``correlation`` and ``start`` of every call, in order of time."""
        order = np.argsort(correlation, kind="stable")
        keys = correlation[order]
        valid = (keys != NULL) & (keys != 0)
        self._keys = keys[valid]
        self._rows = order[valid].astype(np.int32 if len(order) < 1 << 31 else np.int64)  # int32 halves the index's memory.
        self.repeated = int((self._keys[1:] == self._keys[:-1]).sum())
        self._start = start[self._rows] if self.repeated else start[:0]

    def rows_for(self, correlation: I64, start: I64) -> I64:
        """Return for each operation the row of its call, else -1."""
        result = np.full(len(correlation), -1, np.int64)
        if not len(self._keys):
            return result
        first = np.searchsorted(self._keys, correlation, side="left")
        exists = self._keys[np.minimum(first, len(self._keys) - 1)] == correlation
        result[exists] = self._rows[first[exists]]
        if self.repeated:
            last = np.searchsorted(self._keys, correlation, side="right")
            for index in np.flatnonzero(exists & (last - first > 1)):
                earlier = np.searchsorted(self._start[first[index] : last[index]], start[index], side="right")
                result[index] = self._rows[first[index] + max(0, int(earlier) - 1)]
        return result
