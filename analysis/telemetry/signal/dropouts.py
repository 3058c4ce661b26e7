"""Samples that are 0 because nothing was measured.

Zeros of hardware counters are found with NVML's utilization, and zeros of utilization with the power, because these are
measured separately.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.store.library import Recording
from sawtooth.ingest.quantities.registry import QUANTITIES

BUSY_PCT = 70  # If a sample and both neighbours have this utilization, the GPU did not pause: windows are 1/6 to 1 s long.
ALWAYS_ABOVE_0 = ("gr_active_pct", "sm_active_pct")  # While any kernel runs.
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
COUNTERS = tuple(quantity.column for quantity in QUANTITIES if quantity.gpm_id is not None)

WINDOW_NS = 1_000_000_000 // 6  # NVML's shortest window of utilization. In denser samples, utilization lags behind the power.
MIN_WORKING = 10  # At least this many samples with utilization show the power of a working GPU.
# If the power of work and idleness differ by less, as a share of the power of work, power shows nothing.
MIN_POWER_STEP = 0.05
WORK_POWER_MARGIN = 0.25  # Samples at work are at most this share of that difference below the power of work.
# A dropout needs at least this number and this share of zeros among the samples at that power. 22 intact logs without dense
# samples have none.
MIN_ZEROS = 4
MIN_ZERO_SHARE = 0.1


def zeros_at_work(util: tuple[I64, F64], power: tuple[I64, F64]) -> float:
    """Return the share of samples with utilization 0 among the samples with the power of a working GPU.

    ``util`` and ``power`` are times and values. It is 0 if the power of work and of idleness hardly differ, or if there are too few
    such samples.
    """
    times, in_util, in_power = np.intersect1d(util[0], power[0], return_indices=True)
    used, watts = util[1][in_util], power[1][in_power]
    works = used > 0
    if works.sum() < MIN_WORKING or works.all() or np.median(np.diff(times)) <= WINDOW_NS:
        return 0.0
    idle_w = float(np.median(watts[~works]))
    work_w = float(np.median(watts[used >= np.median(used[works])]))
    if work_w - idle_w < MIN_POWER_STEP * work_w:
        return 0.0
    high = watts >= work_w - WORK_POWER_MARGIN * (work_w - idle_w)
    zeros = int((high & ~works).sum())
    share = zeros / int(high.sum())
    return share if zeros >= MIN_ZEROS and share >= MIN_ZERO_SHARE else 0.0


def dropouts(recording: Recording, device: int) -> NDArray[np.int64]:
    """Return the times of samples in which all SM activity is 0 although utilization shows work.

    The work must show before, during and after the sample.
    """
    return recording.once(_dropouts, device)


def _dropouts(recording: Recording, device: int) -> NDArray[np.int64]:
    columns = recording.columns("samples")
    counters = [column for column in ALWAYS_ABOVE_0 if column in columns]
    if not counters or "util_pct" not in columns:
        return np.empty(0, np.int64)
    highest = f"greatest({', '.join(f'coalesce({column}, 0)' for column in counters)})"
    recorded = f"coalesce({', '.join(counters)})"
    sql = f"""WITH rows AS (
        SELECT time_ns, {highest} AS highest, {recorded} AS recorded, max({highest}) OVER () AS ever,
            least(util_pct, coalesce(lag(util_pct) OVER by_time, util_pct), coalesce(lead(util_pct) OVER by_time, util_pct)) AS util
        FROM samples WHERE device = ? WINDOW by_time AS (ORDER BY time_ns))
        SELECT time_ns FROM rows WHERE recorded IS NOT NULL AND highest = 0 AND ever > 0 AND util >= {BUSY_PCT} ORDER BY time_ns"""
    return np.array([row[0] for row in recording.rows(sql, [device])], np.int64)
