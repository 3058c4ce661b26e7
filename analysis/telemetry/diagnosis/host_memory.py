"""A host whose memory is too small: it swaps, or its tasks wait for memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.telemetry.diagnosis.device_samples import F64, DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.host_series import HostSeries
from sawtooth.analysis.telemetry.diagnosis.observation import Observation, duration
from sawtooth.analysis.telemetry.signal.steady import weights_ns
from sawtooth.analysis.units import significant

SWAP_BPS = 1e6  # read back from swap: 250 pages a second, more than a page now and then of an idle program
PRESSURE_PCT = 20.0  # of the time in which some task waits for memory
LEAST_SAMPLES, LEAST_SHARE = 5, 0.02


def host_memory(gpus: Sequence[DeviceSamples], host: HostSeries | None) -> Iterator[Observation]:
    """Yield that the host swaps or that its tasks wait for memory, and the GPUs' utilization in that time."""
    if host is None or len(host.times) < LEAST_SAMPLES or not gpus:
        return
    nothing = np.zeros(len(host.times))
    swapped = np.nan_to_num(host.values.get("swap_in_bps", nothing))
    waits = np.nan_to_num(host.values.get("memory_pressure_pct", nothing))
    weights = weights_ns(host.times).astype(np.float64)
    for by_swap, on in ((True, swapped >= SWAP_BPS), (False, waits >= PRESSURE_PCT)):
        share = float(weights[on].sum() / weights.sum())
        if int(on.sum()) >= LEAST_SAMPLES and share >= LEAST_SHARE:
            size = float(np.average((swapped / 1e6 if by_swap else waits)[on], weights=weights[on]))
            yield _observation(
                gpus,
                host,
                on,
                float(weights[on].sum()) / 1e9,
                size=size,
                share=share,
                waits=float(waits[on].mean()) if by_swap else None,
            )
            return


def _observation(
    gpus: Sequence[DeviceSamples], host: HostSeries, on: NDArray[np.bool_], seconds: float, *, size: float, share: float, waits: float | None
) -> Observation:  # fmt: skip
    by_swap = waits is not None
    inside, outside = _utilization(gpus, host, on)
    seen = f"It does so for {duration(seconds)}." if by_swap else f"They do so for {duration(seconds)}."
    if waits:
        seen += f" Some task waits for memory in {waits:.0f} % of that time."
    if {"ram_used_bytes", "ram_total_bytes"} <= host.values.keys():
        used, total = (float(np.nanmax(host.values[column])) / (1 << 30) for column in ("ram_used_bytes", "ram_total_bytes"))
        seen += f" Programs use up to {significant(used)} of {significant(total)} GiB."
    if inside is not None and outside is not None:
        seen += f" GPU utilization is {inside:.0f} % then and {outside:.0f} % otherwise."
    return Observation(
        kind="host-memory",
        devices=tuple(gpu.device for gpu in gpus),
        severity="warning",
        confidence="high" if inside is not None and outside is not None and inside < outside - 5 else "medium",
        measure="MB/s" if by_swap else "percent of the time",
        size=size,
        share=share,
        start_ns=int(host.times[on][0]),
        end_ns=int(host.times[on][-1]),
        title=f"The host reads {significant(size)} MB/s back from swap, {share:.0%} of the time" if by_swap
        else f"Tasks of the host wait for memory, {share:.0%} of the time",
        seen=seen,
        action=("Use", "less memory of the host", ": fewer loader workers, smaller prefetch, no copy of the data set in each worker."),
        record_next="vmstat 1 and the resident memory of each process (ps -eo rss,cmd --sort -rss)",
        details={"utilization_pct": inside, "otherwise_pct": outside},
    )  # fmt: skip


def _utilization(gpus: Sequence[DeviceSamples], host: HostSeries, on: NDArray[np.bool_]) -> tuple[float | None, float | None]:  # fmt: skip
    """Return the mean utilization of all GPUs while the host lacks memory, and otherwise."""
    means: tuple[list[float], list[float]] = ([], [])
    for gpu in gpus:
        at = np.searchsorted(gpu.times, host.times)
        near: F64 = np.where(at < len(gpu.times), gpu.busy[np.minimum(at, len(gpu.times) - 1)], np.nan)
        for which, where in zip(means, (on, ~on), strict=True):
            if np.isfinite(near[where]).any():
                which.append(float(np.nanmean(near[where])))
    inside, outside = (float(np.mean(values)) if values else None for values in means)
    return inside, outside
