"""GPU operations that run at the same time: how many overlap, and the time that they fill together.

In a replay, streams overlap as far as their order allows. Recorded operations may overlap less, because they wait for each
other in ways that the trace does not show, or share the SMs. If the operations fill the run's step, the step of another batch
is at least as long as the time that its operations fill.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

MIN_FILLED_SHARE = 0.95  # Share of the run's step. Operations that fill more of the step limit the step.


@dataclass(frozen=True, eq=False)
class Overlap:
    """Overlap of GPU operations, one value per operation.

    ``concurrency`` is the mean number of operations that run during the operation, including the operation. ``filled_ns`` is the
    operation's part of the time in which any operation runs: time in which n operations run counts as 1/n for each.
    """

    concurrency: np.ndarray
    filled_ns: np.ndarray

    @staticmethod
    def of(rows: pd.DataFrame) -> Overlap:
        """Return the overlap of ``rows``, which have the columns start_ns and end_ns."""
        start, end = (rows[column].to_numpy(np.int64) for column in ("start_ns", "end_ns"))
        edges = np.concatenate([start, end])
        order = np.argsort(edges, kind="stable")
        moments = edges[order]
        running = np.cumsum(np.repeat([1, -1], len(start))[order])[:-1]
        between_ns = np.diff(moments)
        # Integrals of the number of running operations, and of 1/n, up to each moment.
        count_integral = np.concatenate([[0.0], np.cumsum(between_ns * running)])
        part_integral = np.concatenate([[0.0], np.cumsum(between_ns / np.maximum(running, 1))])
        first, last = (np.searchsorted(moments, edge) for edge in (start, end))
        mean_count = (count_integral[last] - count_integral[first]) / np.maximum(end - start, 1)
        return Overlap(np.maximum(mean_count, 1.0), part_integral[last] - part_integral[first])

    def all_filled_ns(self, dur_ns: np.ndarray, new_ns: np.ndarray) -> float:
        """Return the ns that all operations fill together if each takes ``new_ns`` instead of ``dur_ns``.

        The result assumes that the operations overlap as recorded.
        """
        return float((self.filled_ns * new_ns / np.maximum(dur_ns, 1)).sum())
