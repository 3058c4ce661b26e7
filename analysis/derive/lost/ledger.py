"""The ledger: every nanosecond of the steady window has one owner.

The owners' nanoseconds sum to the window exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.intervals import EMPTY, Intervals, assign_layers, difference, intersect, union
from sawtooth.analysis.knowledge.owners import OWNER_KEYS

I64 = NDArray[np.int64]


@dataclass(frozen=True)
class Segments:
    """Sorted owners of [starts[0], ends[-1]) without gaps; neighbours with one owner are merged.

    ``owner`` indexes owners.OWNERS.
    """

    starts: I64
    ends: I64
    owner: NDArray[np.int8]

    def of(self, owner: int) -> Intervals:
        """Return the intervals that ``owner`` owns."""
        is_owned = self.owner == owner
        return Intervals(self.starts[is_owned], self.ends[is_owned])


def segments(start: I64, end: I64, codes: NDArray[np.int8], window: Intervals) -> Segments:
    """Return the owner of each moment; ``codes`` are the owners of one device's operations.

    The range covers all operations and ``window``.
    """
    bounds = (
        [int(v) for v in (start.min(initial=2**62), *window.starts[:1])],
        [int(v) for v in (end.max(initial=-(2**62)), *window.ends[-1:])],
    )
    first, last = min(bounds[0]), max(bounds[1])
    if first >= last:
        empty = np.zeros(0, np.int64)
        return Segments(empty, empty, np.zeros(0, np.int8))
    layers = [union(start[codes == code], end[codes == code]) for code in range(OWNER_KEYS.index("idle"))]
    starts, ends, owner = assign_layers(layers, first, last)
    return Segments(starts, ends, owner)


def owner_ns(parts: Segments, window: Intervals) -> dict[str, int]:
    """Return each owner's nanoseconds inside ``window``; they sum to its length exactly."""
    return {name: intersect(parts.of(code), window).total for code, name in enumerate(OWNER_KEYS)}


def own_times(start: I64, end: I64, codes: NDArray[np.int8], window: Intervals) -> I64:
    """Return the nanoseconds of ``window`` that the ledger counts for each operation of one device.

    If several operations run at the same time, the first owner in owners.OWNERS counts. If they have the same owner, the
    operation that started first counts. So the result sums exactly to the window's time without idle time.
    """
    own_ns = np.zeros(len(start), np.int64)
    assigned = EMPTY
    for code in range(OWNER_KEYS.index("idle")):
        ops_of_owner = np.flatnonzero(codes == code)
        if not len(ops_of_owner):
            continue
        ops_of_owner = ops_of_owner[np.argsort(start[ops_of_owner], kind="stable")]
        reach = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end[ops_of_owner])[:-1]))
        begin = np.maximum(start[ops_of_owner], reach)  # Time that an earlier operation already covers does not count again.
        free = difference(window, assigned)
        own_ns[ops_of_owner] = _time_before(free, np.maximum(end[ops_of_owner], begin)) - _time_before(free, begin)
        assigned = union(
            np.concatenate((assigned.starts, start[ops_of_owner])), np.concatenate((assigned.ends, end[ops_of_owner]))
        )
    return own_ns


def _time_before(part: Intervals, until: I64) -> I64:
    lengths = np.concatenate(([0], np.cumsum(part.ends - part.starts)))
    position = np.searchsorted(part.starts, until, side="right")
    previous = np.maximum(position - 1, 0)
    inside = (
        np.minimum(until, part.ends[previous]) - part.starts[previous] if len(part.starts) else np.zeros(len(until), np.int64)
    )
    return np.where(position > 0, lengths[previous] + inside, 0)
