"""GPU operations that run at the same time: how many overlap, and the time that they fill together.

A replay lets streams overlap as far as their order allows. Recorded operations may overlap less and still fill the run's
step. Then they wait for each other in ways that the trace does not show, or they share the SMs. Their step cannot be shorter
than the time that they fill.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

FILLS = 0.95  # Share of the run's step: operations that run for this long are the limit.


@dataclass(frozen=True, eq=False)
class Overlap:
    """How GPU operations overlap.

    ``concurrency`` is, by operation, how many operations run on average during it, including itself. ``part_ns`` is its share of the
    time in which any operation runs, ns.
    """

    concurrency: np.ndarray
    part_ns: np.ndarray

    @staticmethod
    def of(rows: pd.DataFrame) -> Overlap:
        """Return the overlap of ``rows``, which have the columns start_ns and end_ns."""
        start, end = (rows[column].to_numpy(np.int64) for column in ("start_ns", "end_ns"))
        edges = np.concatenate([start, end])
        order = np.argsort(edges, kind="stable")
        at = edges[order]
        running = np.cumsum(np.repeat([1, -1], len(start))[order])[:-1]
        lasts = np.diff(at)
        concurrency, part = (
            np.concatenate([[0.0], np.cumsum(lasts * weight)]) for weight in (running, 1 / np.maximum(running, 1))
        )
        first, last = (np.searchsorted(at, edge) for edge in (start, end))
        return Overlap(
            np.maximum((concurrency[last] - concurrency[first]) / np.maximum(end - start, 1), 1.0), part[last] - part[first]
        )

    def filled_ns(self, dur_ns: np.ndarray, new_ns: np.ndarray) -> float:
        """Return the ns that all operations fill together if each takes ``new_ns`` instead of ``dur_ns``.

        They are assumed to overlap as recorded.
        """
        return float((self.part_ns * new_ns / np.maximum(dur_ns, 1)).sum())
