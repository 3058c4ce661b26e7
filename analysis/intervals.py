"""Arithmetic on sets of half-open integer intervals, as pairs of sorted int64 arrays (starts, ends).

A *set* in this module is disjoint, sorted and minimal (touching intervals are merged). Every function is vectorised and takes at
most O(n log n) time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

I64 = NDArray[np.int64]


class Intervals(NamedTuple):
    """A set of half-open intervals: ``starts[i] < ends[i] < starts[i + 1]``."""

    starts: I64
    ends: I64

    @property
    def total(self) -> int:
        """The sum of the lengths."""
        return int((self.ends - self.starts).sum())


EMPTY = Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))


def union(starts: ArrayLike, ends: ArrayLike) -> Intervals:
    """Return the set that the intervals (in any order) cover together; empty ones are ignored."""
    begin, end = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    keep = end > begin
    begin, end = begin[keep], end[keep]
    if not len(begin):
        return EMPTY
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.concatenate(([True], begin[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return Intervals(begin[first], reach[last])


def where_true(mask: NDArray[np.bool_]) -> Intervals:
    """Return the positions at which ``mask`` is True, as intervals of consecutive positions."""
    edges = np.flatnonzero(np.diff(mask, prepend=False, append=False))
    return Intervals(edges[::2], edges[1::2])


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """Return the set that both sets cover."""
    starts, ends, _, _ = overlaps(a, b)
    return Intervals(starts, ends)


class Overlaps(NamedTuple):
    """Overlaps between intervals of two sets: start, end, and the index in each set."""

    starts: I64
    ends: I64
    in_a: I64
    in_b: I64


def overlaps(a: Intervals, b: Intervals) -> Overlaps:
    """Return every overlap of an interval of ``a`` with one of ``b``.

    Intervals of ``a`` may have any order and overlap each other; ``b`` must be a set.
    """
    low = np.searchsorted(b.ends, a.starts, side="right")
    high = np.searchsorted(b.starts, a.ends, side="left")
    count = np.maximum(high - low, 0)
    in_a = np.repeat(np.arange(len(a.starts), dtype=np.int64), count)
    offset = np.arange(len(in_a), dtype=np.int64) - np.repeat(np.cumsum(count) - count, count)
    in_b = np.repeat(low, count) + offset
    starts = np.maximum(a.starts[in_a], b.starts[in_b])
    ends = np.minimum(a.ends[in_a], b.ends[in_b])
    real = ends > starts  # An empty interval of ``a`` has no overlap.
    return Overlaps(starts[real], ends[real], in_a[real], in_b[real])


def complement(a: Intervals, start: int, end: int) -> Intervals:
    """Return the part of [start, end) that ``a`` does not cover."""
    inside = intersect(a, Intervals(np.array([start], np.int64), np.array([end], np.int64)))
    edges_start = np.concatenate(([start], inside.ends))
    edges_end = np.concatenate((inside.starts, [end]))
    keep = edges_end > edges_start
    return Intervals(edges_start[keep], edges_end[keep])


def difference(a: Intervals, b: Intervals) -> Intervals:
    """Return the part of ``a`` that ``b`` does not cover."""
    if not len(a.starts) or not len(b.starts):
        return a
    return intersect(a, complement(b, int(a.starts[0]), int(a.ends[-1])))


def assign_layers(layers: list[Intervals], start: int, end: int) -> tuple[I64, I64, NDArray[np.int8]]:
    """Assign every instant of [start, end) to the first layer that covers it, else to ``len(layers)``.

    Returns starts, ends and the layer's index, sorted and without gaps, so the lengths sum to end − start exactly.
    """
    free = complement(EMPTY, start, end)
    pieces: list[tuple[Intervals, int]] = []
    for index, layer in enumerate(layers):
        pieces.append((intersect(free, layer), index))
        free = difference(free, layer)
    pieces.append((free, len(layers)))
    starts = np.concatenate([p.starts for p, _ in pieces])
    ends = np.concatenate([p.ends for p, _ in pieces])
    owner = np.concatenate([np.full(len(p.starts), i, np.int8) for p, i in pieces])
    order = np.argsort(starts, kind="stable")
    return starts[order], ends[order], owner[order]
