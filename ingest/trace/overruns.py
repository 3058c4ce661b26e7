"""Find GPU operations with a recorded duration that overlaps the next one of their stream.

A stream runs its operations one after the other, so such a duration is wrong. It is cut where the next operation begins. Two
overlaps are legal. With programmatic dependent launch, a kernel begins before its predecessor ends, but it waits for the
predecessor's results, so it ends later. Branches of a CUDA graph run concurrently on the stream that launched it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sawtooth.ingest.decode import I64, NULL
from sawtooth.ingest.trace.source import GPU_KINDS
from sawtooth.ingest.trace.spool import Columns

# Programmatic dependent launch, in 150 intact recordings: up to 23.9 µs of a 215 µs kernel, and up to 14 % of its time.
LEGAL_SHARE = 0.2  # of the earlier kernel's duration
LEGAL_NS = 5_000  # kernels of a few microseconds may overlap by more than that share
KERNEL = GPU_KINDS.index("kernel")


class Overruns:
    """Finds operations that end after the next one of their stream began, slice by slice."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], tuple[int, I64]] = {}  # row and times of the last operation of each stream
        self._rows: list[I64] = []
        self._lengths: list[I64] = []
        self._seen = 0

    def add(self, gpu: Columns, kept: NDArray[np.bool_]) -> None:
        """Check the kept rows of a slice; rows are numbered in the order of ids."""
        device, stream, start = (gpu[name][kept].astype(np.int64) for name in ("device", "stream", "start"))
        end = start + gpu["dur"][kept]
        in_graph = gpu["graph_id"][kept] != NULL
        times = np.stack([start, end, gpu["kind"][kept] == KERNEL])
        order = np.lexsort((start, stream, device))
        same = (np.diff(device[order]) == 0) & (np.diff(stream[order]) == 0)
        before, after = order[:-1][same], order[1:][same]
        checked = before[~in_graph[before]]
        self._note(checked, times[:, checked], times[:, after[~in_graph[before]]])
        for at in order[np.concatenate(([True], ~same))] if len(order) else order:
            held = self._open.get((int(device[at]), int(stream[at])))
            if held is not None:
                row, earlier = held
                self._note(np.array([row - self._seen]), earlier, times[:, [at]])
        for at in order[np.concatenate((~same, [True]))] if len(order) else order:
            key = int(device[at]), int(stream[at])
            self._open.pop(key, None)
            if not in_graph[at]:
                self._open[key] = (self._seen + int(at), times[:, [at]])
        self._seen += len(start)

    def _note(self, rows: I64, earlier: I64, following: I64) -> None:
        """Note the rows that run into the following operation; both have start, end and whether it is a kernel."""
        (start, end, kernel), (next_start, next_end, next_kernel) = earlier, following
        overlap = end - next_start
        waits = (kernel > 0) & (next_kernel > 0) & (next_end >= end)
        legal = (overlap <= LEGAL_NS) | (waits & (overlap <= LEGAL_SHARE * (end - start)))
        over = ~legal & (next_start > start)
        self._rows.append(rows[over] + self._seen)
        self._lengths.append((next_start - start)[over])

    def cuts(self, call_of: I64) -> tuple[I64, I64]:
        """Return the rows to cut, ascending, with their correct durations.

        ``call_of`` is each row's launch, -1 for none. A launch with many operations is a graph.
        """
        rows = np.concatenate([np.empty(0, np.int64), *self._rows])
        lengths = np.concatenate([np.empty(0, np.int64), *self._lengths])
        if not len(rows):
            return rows, lengths
        launched = np.bincount(call_of[call_of >= 0], minlength=1)
        alone = (call_of[rows] < 0) | (launched[np.maximum(call_of[rows], 0)] <= 1)
        rows, lengths = rows[alone], lengths[alone]
        order = np.argsort(rows, kind="stable")
        return rows[order], lengths[order]
