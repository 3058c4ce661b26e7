"""Find step marks that cover several steps, by the optimizer's updates and the GPU's marks."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import numpy as np

from sawtooth.analysis.derive.events import I64
from sawtooth.analysis.derive.steps.host_steps import LOST_MARK, HostSteps

ALIKE = 0.1  # relative difference in calls between two updates: less in steps of one loop, more in a generator and its critic
_ON_GPU = r"SELECT DISTINCT n.name FROM gpu_annotations JOIN names n USING (name_id) WHERE regexp_matches(n.name, '^ProfilerStep#\d+$')"


def joined_marks(starts: I64, ends: I64, updates: I64, calls: I64) -> int:
    """Return the number of marks that cover several steps.

    ``updates`` are the ends of the optimizer's steps, one for each step of the loop; ``calls`` are the starts of all calls.
    There are none in a loop that updates several times in every step: all its marks contain the same number of updates.
    """
    updates = np.sort(updates)
    first, behind = np.searchsorted(updates, starts), np.searchsorted(updates, ends)
    usual = max(int(np.median(behind - first)), 1) if len(starts) > 1 else 1
    joined = 0
    for mark in np.flatnonzero(behind - first >= 2 * usual):
        borders = np.append(starts[mark], updates[first[mark] : behind[mark]])
        made = np.diff(np.searchsorted(calls, borders))
        joined += bool((np.abs(np.diff(made)) <= ALIKE * np.maximum(made[1:], made[:-1])).any() and made.min() > 0)
    return joined


def with_marks_of_gpu(con: duckdb.DuckDBPyConnection, host: HostSteps) -> HostSteps:
    """Add the marks that only the GPU's annotations have to the number of lost marks."""
    if host.source != "profiler_step":
        return host
    known = {name.removesuffix(LOST_MARK) for name in host.names}
    missing = {name for (name,) in con.execute(_ON_GPU).fetchall()} - known
    return replace(host, lost_marks=host.lost_marks + len(missing)) if missing else host
