"""Find GPU operations that end after the next operation of their stream began.

A stream runs its operations one after the other, so the recorded duration of such an operation is wrong. The operation is cut off
where the next one begins. Two kinds of overlap are legal:

- With programmatic dependent launch, a kernel begins before its predecessor ends. The kernel waits for the predecessor's
  results, so it ends later than the predecessor. The same two kernels overlap nearly every time.
- Branches of a CUDA graph run concurrently on the stream that launched the graph. But all of them end before the next launch's
  operations begin, so longer ones are cut off there.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from sawtooth.ingest.decode import I64, NULL
from sawtooth.ingest.trace.source import GPU_KINDS
from sawtooth.ingest.trace.spool import Columns

# With programmatic dependent launch, kernels of 150 intact recordings overlapped by up to 23.9 µs of a 215 µs kernel, and by up
# to 14 % of their duration. Two such kernels overlap nearly every time that one follows the other.
LEGAL_OVERLAP_SHARE = 0.2  # The overlap may be up to this share of the earlier kernel's duration.
LEGAL_OVERLAP_NS = 5_000  # A shorter overlap is always legal, because very short kernels may overlap by a larger share.
MIN_OVERLAPPING_SHARE = 0.5  # An overlap is legal only if the same two kernels overlap in at least this share of cases.
KERNEL = GPU_KINDS.index("kernel")


class Overruns:
    """Search for operations that end after the next operation of their stream began, slice by slice."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], tuple[int, I64]] = {}  # by stream: row and facts of the last operation
        self._rows: list[I64] = []
        self._lengths: list[I64] = []
        self._pairs: list[I64] = []  # for each row, the pair of kernels if the overlap may be legal, else -1
        # Rows of graphs that end after the next launch began, and their correct durations.
        self._graph_rows: list[tuple[I64, I64]] = []
        self._followed, self._overlapped = Counter[int](), Counter[int]()  # by pair of kernels
        self._seen = 0

    def add(self, gpu: Columns, kept: NDArray[np.bool_]) -> None:
        """Check the kept rows of the next slice; rows are numbered through all slices, in order of time.

        A graph at the end of a slice is not compared with the next launch.
        """
        device, stream, start = (gpu[name][kept].astype(np.int64) for name in ("device", "stream", "start"))
        in_graph = gpu["graph_id"][kept] != NULL
        names = np.where(gpu["kind"][kept] == KERNEL, gpu["name_id"][kept].astype(np.int64), -1)
        facts = np.stack([start, start + gpu["dur"][kept], names])
        order = np.lexsort((start, stream, device))
        same = (np.diff(device[order]) == 0) & (np.diff(stream[order]) == 0)
        self._graph_rows.append(_rows_beyond_graph(order, same, gpu["correlation"][kept], facts, self._seen))
        earlier, later = order[:-1][same], order[1:][same]
        without_graph = ~in_graph[earlier]
        earlier, later = earlier[without_graph], later[without_graph]
        self._note(earlier, facts[:, earlier], facts[:, later])
        for at in order[np.concatenate(([True], ~same))] if len(order) else order:
            last = self._open.get((int(device[at]), int(stream[at])))
            if last is not None:
                row, last_facts = last
                self._note(np.array([row - self._seen]), last_facts, facts[:, [at]])
        for at in order[np.concatenate((~same, [True]))] if len(order) else order:
            key = int(device[at]), int(stream[at])
            self._open.pop(key, None)
            if not in_graph[at]:
                self._open[key] = (self._seen + int(at), facts[:, [at]])
        self._seen += len(start)

    def _note(self, rows: I64, earlier: I64, following: I64) -> None:
        """Note the rows that overlap ``following``; ``earlier`` and ``following`` have start, end and name id."""
        (start, end, name), (next_start, next_end, next_name) = earlier, following
        overlap = end - next_start
        kernels = (name >= 0) & (next_name >= 0)
        pair = np.where(kernels, (name << 32) + next_name, -1)
        for counter, chosen in ((self._followed, kernels), (self._overlapped, kernels & (overlap > 0))):
            counter.update(dict(zip(*(values.tolist() for values in np.unique(pair[chosen], return_counts=True)), strict=True)))
        overruns = (overlap > LEGAL_OVERLAP_NS) & (next_start > start)
        may_be_legal = (next_end >= end) & (overlap <= LEGAL_OVERLAP_SHARE * (end - start))
        self._rows.append(rows[overruns] + self._seen)
        self._lengths.append((next_start - start)[overruns])
        self._pairs.append(np.where(may_be_legal, pair, -1)[overruns])

    def cuts(self, call_of: I64) -> tuple[I64, I64]:
        """Return the rows to cut, ascending, with their correct durations.

        ``call_of`` is each row's launch, -1 for none. A launch with more than one operation is a CUDA graph, whose rows are not cut.
        """
        rows, lengths, pairs = (
            np.concatenate([np.empty(0, np.int64), *parts]) for parts in (self._rows, self._lengths, self._pairs)
        )
        least = {pair: MIN_OVERLAPPING_SHARE * count for pair, count in self._followed.items()}
        wrong = np.array([pair < 0 or self._overlapped[pair] < least[pair] for pair in pairs.tolist()], bool)
        rows, lengths = rows[wrong], lengths[wrong]
        launched = np.bincount(call_of[call_of >= 0], minlength=1)
        without_graph = (call_of[rows] < 0) | (launched[np.maximum(call_of[rows], 0)] <= 1)
        rows = np.concatenate([rows[without_graph], *(part for part, _ in self._graph_rows)])
        lengths = np.concatenate([lengths[without_graph], *(part for _, part in self._graph_rows)])
        rows, first = np.unique(rows, return_index=True)
        return rows, lengths[first]


def _rows_beyond_graph(
    order: NDArray[np.intp], same: NDArray[np.bool_], launch: NDArray[np.int64], facts: I64, seen: int
) -> tuple[I64, I64]:
    """Return rows of CUDA graphs that end after the next launch's first operation on their stream began.

    ``order`` sorts rows by stream and start. ``same`` says whether a row is on the same stream as the next row. ``facts`` has start
    and end. The second array has the rows' durations up to that operation.
    """
    launch = launch[order].astype(np.int64)
    with_next = same & (launch[1:] == launch[:-1]) & (launch[1:] != NULL) & (launch[1:] != 0)
    if not with_next.any():  # Most traces have no graph.
        return np.empty(0, np.int64), np.empty(0, np.int64)
    start, end = facts[0][order], facts[1][order]
    in_graph = np.append(with_next, False) | np.append(False, with_next)
    segment = np.append(0, np.cumsum(~same))
    last = np.append(np.flatnonzero(same & ~with_next), len(order) - 1)  # the last row of each launch, and of everything
    own_last = last[np.searchsorted(last, np.arange(len(order)))]
    following = np.minimum(own_last + 1, len(order) - 1)
    wrong = in_graph & (segment[following] == segment) & (following > own_last)
    wrong &= end - start[following] > LEGAL_OVERLAP_NS
    return order[wrong] + seen, (start[following] - start)[wrong]
