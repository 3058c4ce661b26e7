"""Samples of hardware counters that read 0 for want of a reading, told by NVML's utilization, which is measured apart from them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.store.library import Recording
from sawtooth.ingest.quantities.registry import QUANTITIES

BUSY_PCT = 70  # of utilization in the sample, the one before and the one behind: a pause that long would show in it, whose windows last 1/6 to 1 s
ALWAYS_ABOVE_0 = ("gr_active_pct", "sm_active_pct")  # while any kernel runs
COUNTERS = tuple(quantity.column for quantity in QUANTITIES if quantity.gpm_id is not None)


def dropouts(recording: Recording, device: int) -> NDArray[np.int64]:
    """Return the times of samples in which the activity of all SMs reads 0 while utilization says that the GPU worked before, then and after."""
    return recording.once(_dropouts, device)


def _dropouts(recording: Recording, device: int) -> NDArray[np.int64]:
    there = {row[0] for row in recording.rows("SELECT column_name FROM (DESCRIBE samples)")}
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
