"""Samples of hardware counters that are 0 without a measurement, found with NVML's utilization.

NVML measures utilization separately from the counters.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.store.library import Recording
from sawtooth.ingest.quantities.registry import QUANTITIES

BUSY_PCT = 70  # utilization in this sample and both neighbours: its windows of 1/6 to 1 s would show a pause that long
ALWAYS_ABOVE_0 = ("gr_active_pct", "sm_active_pct")  # while any kernel runs
COUNTERS = tuple(quantity.column for quantity in QUANTITIES if quantity.gpm_id is not None)


def dropouts(recording: Recording, device: int) -> NDArray[np.int64]:
    """Return the times of samples in which all SM activity is 0 although utilization shows work.

    The work must show before, during and after the sample.
    """
    return recording.once(_dropouts, device)


def _dropouts(recording: Recording, device: int) -> NDArray[np.int64]:
    there = recording.columns("samples")
    counters = [column for column in ALWAYS_ABOVE_0 if column in there]
    if not counters or "util_pct" not in there:
        return np.empty(0, np.int64)
    highest = f"greatest({', '.join(f'coalesce({column}, 0)' for column in counters)})"
    known = f"coalesce({', '.join(counters)})"
    sql = f"""WITH rows AS (
        SELECT time_ns, {highest} AS highest, {known} AS known, max({highest}) OVER () AS ever,
            least(util_pct, coalesce(lag(util_pct) OVER by_time, util_pct), coalesce(lead(util_pct) OVER by_time, util_pct)) AS util
        FROM samples WHERE device = ? WINDOW by_time AS (ORDER BY time_ns))
        SELECT time_ns FROM rows WHERE known IS NOT NULL AND highest = 0 AND ever > 0 AND util >= {BUSY_PCT} ORDER BY time_ns"""
    return np.array([row[0] for row in recording.rows(sql, [device])], np.int64)
