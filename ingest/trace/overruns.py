"""Find GPU operations with a recorded duration that overlaps the next one of their stream.

A stream runs its operations one after the other, so such a duration is wrong. It is cut where the next operation begins. Two
overlaps are legal. With programmatic dependent launch, a kernel begins some microseconds before its predecessor ends. Branches
of a CUDA graph run concurrently on the stream that launched it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sawtooth.ingest.decode import I64, NULL
from sawtooth.ingest.trace.spool import Columns

LEGAL_NS = 20_000  # the largest overlap in 150 intact recordings is 7.8 µs


class Overruns:
    """Finds operations that end after the next one of their stream began, slice by slice."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], tuple[int, int, int]] = {}  # the last operation of each stream: row, start, end
        self._rows: list[I64] = []
        self._lengths: list[I64] = []
        self._seen = 0

    def add(self, gpu: Columns, kept: NDArray[np.bool_]) -> None:
        """Check the kept rows of a slice; rows are numbered in the order of ids."""
        device, stream, start = (gpu[name][kept].astype(np.int64) for name in ("device", "stream", "start"))
        end = start + gpu["dur"][kept]
        in_graph = gpu["graph_id"][kept] != NULL
        order = np.lexsort((start, stream, device))
        same = (np.diff(device[order]) == 0) & (np.diff(stream[order]) == 0)
        before, after = order[:-1][same], order[1:][same]
        self._note(before, start[before], end[before], start[after], in_graph[before])
        for at in order[np.concatenate(([True], ~same))] if len(order) else order:
            held = self._open.get((int(device[at]), int(stream[at])))
            if held is not None:
                row, begun, ended = (np.array([value]) for value in held)
                self._note(row - self._seen, begun, ended, start[[at]], np.zeros(1, bool))
        for at in order[np.concatenate((~same, [True]))] if len(order) else order:
            self._open[int(device[at]), int(stream[at])] = (self._seen + int(at), int(start[at]), int(end[at]))
        self._seen += len(start)

    def _note(self, rows: I64, start: I64, end: I64, following: I64, in_graph: NDArray[np.bool_]) -> None:
        over = (end - following > LEGAL_NS) & (following > start) & ~in_graph
        self._rows.append(rows[over] + self._seen)
        self._lengths.append((following - start)[over])

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
