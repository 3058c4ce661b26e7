"""Link what belongs together: parents by nesting, launches by correlation, operators by time on the launching thread."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingest.decode import I64, NULL


def order_of(start: I64, dur: I64) -> I64:
    """Return the order in which ids are given: by start, longest first, then as in the file."""
    return np.lexsort((-dur, start))


def nest(thread: NDArray[np.int32], start: I64, dur: I64, tolerance: int = 0) -> tuple[I64, NDArray[np.int32]]:
    """Return parent (-1 for none) and depth of intervals that are ordered by (start, longest first), thread by thread.

    The parent is the innermost earlier interval of the same thread that encloses this one; an interval may end up to
    ``tolerance`` ns after its parent (clocks of whole microseconds round both ends).
    """
    parent = np.full(len(start), -1, np.int64)
    depth = np.zeros(len(start), np.int32)
    ends = start + dur
    for value in np.unique(thread):
        rows = np.flatnonzero(thread == value)
        stack: list[tuple[int, int, int]] = []  # (end, row, depth), outermost first
        for row, begin, end in zip(rows.tolist(), start[rows].tolist(), ends[rows].tolist(), strict=True):
            while stack and stack[-1][0] <= begin:
                stack.pop()
            level = len(stack)
            while level and stack[level - 1][0] + tolerance < end:
                level -= 1
            if level:
                parent[row], depth[row] = stack[level - 1][1], stack[level - 1][2] + 1
            stack.append((end, row, int(depth[row])))
    return parent, depth


def enclosing(
    thread: NDArray[np.int32],
    start: I64,
    dur: I64,
    parent: I64,
    at_thread: NDArray[np.int32],
    at_start: I64,
    at_dur: I64,
    tolerance: int = 0,
) -> I64:
    """Return for each of the second intervals the innermost of the first (nested by ``parent``) around it, else -1."""
    result = np.full(len(at_start), -1, np.int64)
    ends = start + dur
    for value in np.unique(at_thread):
        rows = np.flatnonzero(thread == value)
        asked = np.flatnonzero(at_thread == value)
        if not len(rows):
            continue
        position = np.searchsorted(start[rows], at_start[asked], side="right") - 1
        found = np.where(position >= 0, rows[np.maximum(position, 0)], -1)
        end = at_start[asked] + at_dur[asked]
        while True:
            outside = (found >= 0) & (ends[found] + tolerance < end)
            if not outside.any():
                break
            found[outside] = parent[found[outside]]
        result[asked] = found
    return result


def launches(call_correlation: I64, call_start: I64, correlation: I64, start: I64) -> I64:
    """Return for each GPU operation the row of the call that launched it, else -1.

    Correlations are unique in a process; where one is repeated all the same, the last call before the operation is
    taken. 0 and missing are no correlations.
    """
    rows = np.flatnonzero((call_correlation != NULL) & (call_correlation != 0))
    rows = rows[np.lexsort((call_start[rows], call_correlation[rows]))]
    keys = call_correlation[rows]
    result = np.full(len(correlation), -1, np.int64)
    first = np.searchsorted(keys, correlation, side="left")
    last = np.searchsorted(keys, correlation, side="right")
    known = (last > first) & (correlation != NULL) & (correlation != 0)
    result[known] = rows[first[known]]
    for i in np.flatnonzero(known & (last - first > 1)):
        before = np.searchsorted(call_start[rows[first[i] : last[i]]], start[i], side="right")
        result[i] = rows[first[i] + max(0, int(before) - 1)]
    return result


def by_external_id(op_external: I64, external: I64) -> I64:
    """Return for each External id the row of the operator that carries it, else -1."""
    rows = np.flatnonzero(op_external != NULL)
    rows = rows[np.argsort(op_external[rows], kind="stable")]
    if not len(rows):
        return np.full(len(external), -1, np.int64)
    keys = op_external[rows]
    at = np.minimum(np.searchsorted(keys, external), len(keys) - 1)
    return np.where((keys[at] == external) & (external != NULL), rows[at], -1)
