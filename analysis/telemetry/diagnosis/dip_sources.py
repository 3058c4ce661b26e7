"""Find the likely source of dips by the host's samples, the memory in use and the period."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.telemetry.diagnosis.device_samples import DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.host_series import HostSeries

# Dips at most this many seconds apart are waits for a loader. Checkpoints and evaluations are minutes apart.
SHORT_PERIOD_S = 15.0
LONG_PERIOD_S = 60.0
MIN_DISK_RATIO = 3.0  # The disk moves at least this many times as much in the dips as between them.
MIN_DISK_BPS = 10e6  # Bytes per second. A disk that moves less cannot explain a dip.
BUSY_WORKERS_PCT = 80.0
ARTICLE = {"data loader": "the ", "checkpoint": "a ", "evaluation": "an ", "checkpoint or evaluation": "a "}


def likely_source(period: float, low: float, gpu: DeviceSamples, in_dips: NDArray[np.bool_], host: HostSeries | None) -> tuple[str, str, bool]:  # fmt: skip
    """Return the likely source of the dips, the reason for it, and whether the host's samples show it."""
    if host is not None and len(host.times):
        at = np.clip(np.searchsorted(gpu.times, host.times), 0, len(gpu.times) - 1)
        in_dip = in_dips[at]

        def means_of(column: str) -> tuple[float, float]:
            values = host.values.get(column)
            if values is None or not in_dip.any() or in_dip.all():
                return 0.0, 0.0
            return float(np.nan_to_num(np.nanmean(values[in_dip]))), float(np.nan_to_num(np.nanmean(values[~in_dip])))

        for column, source, does in (("disk_write_bps", "checkpoint", "writes"), ("disk_read_bps", "data loader", "reads")):
            moved, otherwise = means_of(column)
            if moved >= max(MIN_DISK_BPS, MIN_DISK_RATIO * otherwise):
                reason = f"the host {does} {moved / 1e6:.0f} MB/s in the dips and {otherwise / 1e6:.0f} MB/s otherwise"
                return source, reason, True
        workers = host.values.get("workers_cpu_pct")
        if workers is not None and float(np.nan_to_num(np.nanmean(workers))) >= BUSY_WORKERS_PCT:
            return "data loader", "the loader's workers are busy all the time", True
    if "mem_used_bytes" in gpu and period >= SHORT_PERIOD_S:
        used = gpu.values["mem_used_bytes"]
        if in_dips.any() and not in_dips.all():
            inside, outside = np.nanmedian(used[in_dips]), np.nanmedian(used[~in_dips])
            if abs(inside - outside) > 0.03 * outside:
                return "evaluation", "the memory in use differs in the dips", False
    if period <= SHORT_PERIOD_S:
        return "data loader", f"checkpoints and evaluations are rarely {period:.2g} s apart", False
    if period >= LONG_PERIOD_S or low < 0.25:
        return "checkpoint or evaluation", f"the dips are {period:.0f} s apart", False
    return "data loader", "it waits for a large part of each period", False
