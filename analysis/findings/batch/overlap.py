"""GPU operations that run at the same time: how many beside each, and the step that they fill together.

A replay lets streams overlap as their order allows. Where recorded operations overlap less than that and still fill the run's step, they wait for each
other in ways that a trace does not tell, or share the SMs: their step is no shorter than what they fill.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

FILLS = 0.95  # of the run's step: what runs so much of it is the limit


@dataclass(frozen=True, eq=False)
class Overlap:
    """Of each GPU operation: how many run on average while it does, itself counted, and its part of the time in which any runs, ns."""

    beside: np.ndarray
    part_ns: np.ndarray

    @staticmethod
    def of(rows: pd.DataFrame) -> Overlap:
        """Return that of ``rows``, which have a start_ns and an end_ns."""
        start, end = (rows[column].to_numpy(np.int64) for column in ("start_ns", "end_ns"))
        edges = np.concatenate([start, end])
        order = np.argsort(edges, kind="stable")
        at = edges[order]
        running = np.cumsum(np.repeat([1, -1], len(start))[order])[:-1]
        lasts = np.diff(at)
        beside, part = (np.concatenate([[0.0], np.cumsum(lasts * each)]) for each in (running, 1 / np.maximum(running, 1)))
        first, last = (np.searchsorted(at, edge) for edge in (start, end))
        return Overlap(np.maximum((beside[last] - beside[first]) / np.maximum(end - start, 1), 1.0), part[last] - part[first])

    def filled_ns(self, dur_ns: np.ndarray, then_ns: np.ndarray) -> float:
        """Return what all fill together once each takes ``then_ns`` instead of ``dur_ns``, overlapping as they do."""
        return float((self.part_ns * then_ns / np.maximum(dur_ns, 1)).sum())
