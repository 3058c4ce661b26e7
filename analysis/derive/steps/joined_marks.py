"""Find step marks that cover several steps, by the optimizer's updates and the GPU's marks."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import numpy as np

from sawtooth.analysis.derive.events import I64
from sawtooth.analysis.derive.steps.host_steps import LOST_MARK, HostSteps

# Largest relative difference between the numbers of calls in two steps of one loop. The steps of a generator and its critic
# differ by more.
CALLS_DIFFER = 0.1
_ON_GPU = r"SELECT DISTINCT n.name FROM gpu_annotations JOIN names n USING (name_id) WHERE regexp_matches(n.name, '^ProfilerStep#\d+$')"


def joined_marks(starts: I64, ends: I64, updates: I64, calls: I64) -> int:
    """Return the number of marks that cover several steps.

    ``updates`` are the ends of the optimizer's steps, one for each step of the loop; ``calls`` are the starts of all calls.
    The result is 0 for a loop that updates several times in every step, because all its marks contain equally many updates.
    """
    updates = np.sort(updates)
    first, after = np.searchsorted(updates, starts), np.searchsorted(updates, ends)
    median_updates = max(int(np.median(after - first)), 1) if len(starts) > 1 else 1
    joined = 0
    for mark in np.flatnonzero(after - first >= 2 * median_updates):
        borders = np.append(starts[mark], updates[first[mark] : after[mark]])
        call_counts = np.diff(np.searchsorted(calls, borders))
        joined += bool(
            (np.abs(np.diff(call_counts)) <= CALLS_DIFFER * np.maximum(call_counts[1:], call_counts[:-1])).any()
            and call_counts.min() > 0
        )
    return joined


def with_marks_of_gpu(con: duckdb.DuckDBPyConnection, host: HostSteps) -> HostSteps:
    """Count step marks that exist only among the GPU's annotations as lost marks of ``host``."""
    if host.source != "profiler_step":
        return host
    host_names = {name.removesuffix(LOST_MARK) for name in host.names}
    missing = {name for (name,) in con.execute(_ON_GPU).fetchall()} - host_names
    return replace(host, lost_marks=host.lost_marks + len(missing)) if missing else host
