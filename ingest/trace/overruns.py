"""Find GPU operations that end after the next operation of their stream began.

A stream runs its operations one after the other, so the recorded duration of an overlapping operation is wrong. The operation is cut off
where the next operation begins. Two kinds of overlap are legal:

- With programmatic dependent launch, a kernel begins before its predecessor ends. The kernel waits for the predecessor's
  results, so it ends later than the predecessor. The two kernels overlap nearly every time.
- Branches of a CUDA graph run concurrently on the stream that launched the graph. All branches end before the next launch's
  operations begin, so a longer branch is cut off there.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from sawtooth.ingest.decode import I64, NULL
from sawtooth.ingest.trace.source import GPU_KINDS
from sawtooth.ingest.trace.spool import Columns

# An overlap may be up to this share of the earlier kernel's duration. With programmatic dependent launch, kernels of 150 intact recordings
# overlapped by up to 14 % of their duration.
LEGAL_OVERLAP_SHARE = 0.2
LEGAL_OVERLAP_NS = 5_000  # A shorter overlap is always legal, because very short kernels may overlap by a larger share.
MIN_OVERLAPPING_SHARE = 0.5  # An overlap is legal only if the two kernels overlap in at least this share of cases.
KERNEL = GPU_KINDS.index("kernel")


class Overruns:
    """Search for operations that end after the next operation of their stream began, slice by slice."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], tuple[int, I64]] = {}  # By stream: row and facts of the last operation.
        self._rows: list[I64] = []
        self._lengths: list[I64] = []
        self._pairs: list[I64] = []  # For each row, the pair of kernels if the overlap may be legal, else -1.
        # Rows of graphs that end after the next launch began, and their correct durations.
        self._graph_rows: list[tuple[I64, I64]] = []
        self._followed, self._overlapped = Counter[int](), Counter[int]()  # Counts, by pair of kernels.
        self._checked_rows = 0

    def add(self, gpu: Columns, mask: NDArray[np.bool_]) -> None:
        """Check the rows of the next slice in ``mask``. Rows are numbered through all slices.

        A graph at the end of a slice is not compared with the next launch.
        """
        device, stream, start = (gpu[name][mask].astype(np.int64) for name in ("device", "stream", "start"))
        in_graph = gpu["graph_id"][mask] != NULL
        names = np.where(gpu["kind"][mask] == KERNEL, gpu["name_id"][mask].astype(np.int64), -1)
        facts = np.stack([start, start + gpu["dur"][mask], names])
        order = np.lexsort((start, stream, device))
        same = (np.diff(device[order]) == 0) & (np.diff(stream[order]) == 0)
        self._graph_rows.append(_rows_beyond_graph(order, same, gpu["correlation"][mask], facts, self._checked_rows))
        earlier, later = order[:-1][same], order[1:][same]
        without_graph = ~in_graph[earlier]
        earlier, later = earlier[without_graph], later[without_graph]
        self._note(earlier, facts[:, earlier], facts[:, later])
        first_of_stream = order[np.concatenate(([True], ~same))] if len(order) else order
        last_of_stream = order[np.concatenate((~same, [True]))] if len(order) else order
        for index in first_of_stream:
            last = self._open.get((int(device[index]), int(stream[index])))
            if last is not None:
                row, last_facts = last
                self._note(np.array([row - self._checked_rows]), last_facts, facts[:, [index]])
        for index in last_of_stream:
            key = int(device[index]), int(stream[index])
            self._open.pop(key, None)
            if not in_graph[index]:
                self._open[key] = (self._checked_rows + int(index), facts[:, [index]])
        self._checked_rows += len(start)

    def _note(self, rows: I64, earlier: I64, following: I64) -> None:
        """Note the rows that overlap ``following``; ``earlier`` and ``following`` have start, end and name id."""
        (start, end, name), (next_start, next_end, next_name) = earlier, following
        overlap = end - next_start
        kernels = (name >= 0) & (next_name >= 0)
        pair = np.where(kernels, (name << 32) + next_name, -1)
        _count_pairs(self._followed, pair[kernels])
        _count_pairs(self._overlapped, pair[kernels & (overlap > 0)])
        overruns = (overlap > LEGAL_OVERLAP_NS) & (next_start > start)
        may_be_legal = (next_end >= end) & (overlap <= LEGAL_OVERLAP_SHARE * (end - start))
        self._rows.append(rows[overruns] + self._checked_rows)
        self._lengths.append((next_start - start)[overruns])
        self._pairs.append(np.where(may_be_legal, pair, -1)[overruns])

    def cuts(self, call_of: I64) -> tuple[I64, I64]:
        """Return the rows to cut, ascending, with their correct durations.

        ``call_of`` is each row's launch, or -1. A launch with more than one operation is a CUDA graph, so its rows are not cut.
        """
        rows, lengths, pairs = (
            np.concatenate([np.empty(0, np.int64), *parts]) for parts in (self._rows, self._lengths, self._pairs)
        )
        min_overlaps = {pair: MIN_OVERLAPPING_SHARE * count for pair, count in self._followed.items()}
        wrong = np.array([pair < 0 or self._overlapped[pair] < min_overlaps[pair] for pair in pairs.tolist()], bool)
        rows, lengths = rows[wrong], lengths[wrong]
        launched = np.bincount(call_of[call_of >= 0], minlength=1)
        without_graph = (call_of[rows] < 0) | (launched[np.maximum(call_of[rows], 0)] <= 1)
        rows = np.concatenate([rows[without_graph], *(part for part, _ in self._graph_rows)])
        lengths = np.concatenate([lengths[without_graph], *(part for _, part in self._graph_rows)])
        rows, first = np.unique(rows, return_index=True)
        return rows, lengths[first]


def _count_pairs(counter: Counter[int], pairs: I64) -> None:
    values, counts = np.unique(pairs, return_counts=True)
    counter.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def _rows_beyond_graph(
    order: NDArray[np.intp], same: NDArray[np.bool_], launch: NDArray[np.int64], facts: I64, first_row: int
) -> tuple[I64, I64]:
    """Return rows of CUDA graphs that end after the next launch began, with correct durations.

    ``order`` sorts rows by stream and start. ``same`` is true if a row and the next row are on one stream. ``facts`` has start and end.
    ``first_row`` is the number of the slice's first row.
    """
    launch = launch[order].astype(np.int64)
    with_next = same & (launch[1:] == launch[:-1]) & (launch[1:] != NULL) & (launch[1:] != 0)
    if not with_next.any():  # Most traces have no graph.
        return np.empty(0, np.int64), np.empty(0, np.int64)
    start, end = facts[0][order], facts[1][order]
    in_graph = np.append(with_next, False) | np.append(False, with_next)
    segment = np.append(0, np.cumsum(~same))
    last = np.append(np.flatnonzero(same & ~with_next), len(order) - 1)  # The last row of each launch, and the last row of all.
    last_of_launch = last[np.searchsorted(last, np.arange(len(order)))]
    following = np.minimum(last_of_launch + 1, len(order) - 1)
    wrong = in_graph & (segment[following] == segment) & (following > last_of_launch)
    wrong &= end - start[following] > LEGAL_OVERLAP_NS
    return order[wrong] + first_row, (start[following] - start)[wrong]
