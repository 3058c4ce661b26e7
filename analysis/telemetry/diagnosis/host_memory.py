"""A host whose memory is too small: it swaps, or its tasks wait for memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.telemetry.diagnosis.device_samples import F64, DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.host_series import HostSeries
from sawtooth.analysis.telemetry.diagnosis.observation import Observation, duration
from sawtooth.analysis.telemetry.signal.steady import weights_ns
from sawtooth.analysis.units import in_memory, percent, significant

SWAP_BPS = 1e6  # 250 pages per second read from swap are more than the occasional page of an idle program.
PRESSURE_PCT = 20.0  # Some task waits for memory in at least this share of the time.
# A period with fewer samples, or with a smaller share of the recording's time, is not reported.
MIN_SAMPLES = 5
MIN_SHARE = 0.02


def host_memory(gpus: Sequence[DeviceSamples], host: HostSeries | None) -> Iterator[Observation]:
    """Yield that the host swaps or that its tasks wait for memory, and the GPUs' utilization in that time."""
    if host is None or len(host.times) < MIN_SAMPLES or not gpus:
        return
    zeros = np.zeros(len(host.times))
    swapped = np.nan_to_num(host.values.get("swap_in_bps", zeros))
    waits = np.nan_to_num(host.values.get("memory_pressure_pct", zeros))
    weights = weights_ns(host.times).astype(np.float64)
    for swaps, mask in ((True, swapped >= SWAP_BPS), (False, waits >= PRESSURE_PCT)):
        share = float(weights[mask].sum() / weights.sum())
        if int(mask.sum()) >= MIN_SAMPLES and share >= MIN_SHARE:
            size = float(np.average((swapped / 1e6 if swaps else waits)[mask], weights=weights[mask]))
            yield _observation(
                gpus,
                host,
                mask,
                float(weights[mask].sum()) / 1e9,
                size=size,
                share=share,
                waits=float(waits[mask].mean()) if swaps else None,
            )
            return


def _observation(
    gpus: Sequence[DeviceSamples], host: HostSeries, mask: NDArray[np.bool_], seconds: float, *, size: float, share: float, waits: float | None
) -> Observation:  # fmt: skip
    swaps = waits is not None
    pct_inside, pct_outside = _utilization(gpus, host, mask)
    evidence = f"It does so for {duration(seconds)}." if swaps else f"They do so for {duration(seconds)}."
    if waits:
        evidence += f" Some task waits for memory in {waits:.0f} % of that time."
    if {"ram_used_bytes", "ram_total_bytes"} <= host.values.keys():
        used, total = (float(np.nanmax(host.values[column])) for column in ("ram_used_bytes", "ram_total_bytes"))
        evidence += f" Programs use up to {in_memory(used)} of {in_memory(total)}."
    if pct_inside is not None and pct_outside is not None:
        evidence += f" GPU utilization is {pct_inside:.0f} % then and {pct_outside:.0f} % otherwise."
    return Observation(
        kind="host-memory",
        devices=tuple(gpu.device for gpu in gpus),
        severity="warning",
        confidence="high" if pct_inside is not None and pct_outside is not None and pct_inside < pct_outside - 5 else "medium",
        unit="MB/s" if swaps else "percent of the time",
        value=size,
        time_share=share,
        start_ns=int(host.times[mask][0]),
        end_ns=int(host.times[mask][-1]),
        title=f"The host reads {significant(size)} MB/s back from swap, {percent(share)} of the time" if swaps
        else f"Tasks of the host wait for memory, {percent(share)} of the time",
        evidence=evidence,
        action=("Use", "less memory of the host", ": fewer loader workers, smaller prefetch, no copy of the data set in each worker."),
        record_next="vmstat 1 and the resident memory of each process (ps -eo rss,cmd --sort -rss)",
        details={"utilization_pct": pct_inside, "otherwise_pct": pct_outside},
    )  # fmt: skip


def _utilization(gpus: Sequence[DeviceSamples], host: HostSeries, mask: NDArray[np.bool_]) -> tuple[float | None, float | None]:  # fmt: skip
    """Return the mean utilization of all GPUs while the host lacks memory, and otherwise."""
    means: tuple[list[float], list[float]] = ([], [])
    for gpu in gpus:
        at = np.searchsorted(gpu.times, host.times)
        utilization: F64 = np.where(at < len(gpu.times), gpu.busy[np.minimum(at, len(gpu.times) - 1)], np.nan)
        for part, selected in zip(means, (mask, ~mask), strict=True):
            if np.isfinite(utilization[selected]).any():
                part.append(float(np.nanmean(utilization[selected])))
    inside, outside = (float(np.mean(values)) if values else None for values in means)
    return inside, outside
