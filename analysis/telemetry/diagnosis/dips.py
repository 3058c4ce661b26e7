"""Utilization that falls again and again: its period, how long it is low, and the likely source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.telemetry.diagnosis.device_samples import BUSY, F64, I64, DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.idle import LEAST_SECONDS
from sawtooth.analysis.telemetry.diagnosis.observation import Observation, duration, lowered, named
from sawtooth.analysis.telemetry.signal.sawtooth import find_sawtooth

LEAST_DIPS = 6
LOW = 0.7  # of the level of work: lower samples are a dip
LEVEL = 75  # percentile of the busy signal that is the level of work
REGULAR = 0.35  # relative scatter of the time between dips
PER_PERIOD = 4  # samples; a faster period would look the same
LEAST_LOST = 0.02  # share of the time: rarer or shorter dips cost less than a look at them
SHORT_S, LONG_S = 15.0, 60.0  # periods: a loader's waits are a few steps apart, checkpoints and evaluations minutes
MORE = 3.0  # times as much in the dips as elsewhere
DISK_BPS, FULL_PCT = 10e6, 80.0
ARTICLE = {"data loader": "the ", "checkpoint": "a ", "evaluation": "an ", "checkpoint or evaluation": "a "}


@dataclass(frozen=True)
class HostSeries:
    """The host's samples beside the GPUs': times, and values by column of ``host_samples``."""

    times: I64
    values: dict[str, F64]


def sawtooth(gpus: Sequence[DeviceSamples], host: HostSeries | None = None) -> Iterator[Observation]:
    """Yield the periodic dips; GPUs with one period are one observation."""
    dips = [(gpu, period) for gpu in gpus if (period := _period(gpu)) is not None]
    while dips:
        first = dips[0][1]
        alike = [(gpu, p) for gpu, p in dips if abs(p[0] - first[0]) <= 0.15 * first[0]]
        dips = [(gpu, p) for gpu, p in dips if abs(p[0] - first[0]) > 0.15 * first[0]]
        yield _observation(alike, len(gpus), host)


def _period(gpu: DeviceSamples) -> tuple[float, float, NDArray[np.bool_]] | None:
    """Return the period (s), the low share of the time, and the low samples; None without regular dips."""
    known = np.isfinite(gpu.busy)
    times, values = gpu.times[known], gpu.busy[known]
    if len(times) < LEAST_DIPS * PER_PERIOD:
        return None
    level = float(np.percentile(values, LEVEL))
    work = np.flatnonzero(values >= LOW * level)
    if level < 20 or len(work) < LEAST_DIPS:
        return None
    first, last = int(work[0]), int(work[-1]) + 1  # without start-up and end
    low = np.zeros(len(values), bool)
    low[first:last] = values[first:last] < LOW * level
    weights = gpu.weights[known]
    share = float(weights[low].sum() / weights[first:last].sum())
    if share < LEAST_LOST:
        return None
    whole = np.zeros(len(gpu.times), bool)
    whole[np.flatnonzero(known)[low]] = True
    edges = np.flatnonzero(np.diff(np.concatenate([[False], low, [False]]).astype(np.int8)))
    starts, lengths = times[edges[::2]], times[edges[1::2] - 1] - times[edges[::2]]
    spacing = np.diff(starts) / 1e9
    usual = float(np.median(np.diff(times))) / 1e9
    if len(starts) >= LEAST_DIPS and lengths.max() / 1e9 < max(LEAST_SECONDS, float(np.median(spacing))):
        period = float(np.median(spacing))
        regular = np.abs(spacing / period - 1) <= REGULAR
        if period >= PER_PERIOD * usual and regular.mean() >= 0.8:
            return float(spacing[regular].mean()), share, whole
    tile = next((c for c in BUSY if c in gpu), "") != "util_pct"
    tooth = find_sawtooth(times[first:last], values[first:last], windows_tile=tile)
    if tooth.period_s is None or tooth.confidence == "low" or tooth.duty is None:
        return None
    return tooth.period_s, 1 - tooth.duty, whole


def _observation(alike: Sequence[tuple[DeviceSamples, tuple[float, float, NDArray[np.bool_]]]], of: int, host: HostSeries | None) -> Observation:  # fmt: skip
    devices = tuple(gpu.device for gpu, _ in alike)
    period, low = (float(np.mean([p[i] for _, p in alike])) for i in (0, 1))
    gpu, (_, _, where) = alike[0]
    source, why, sure = _source(period, low, gpu, where, host)
    every = duration(period)
    confirmed = {
        "data loader": ("Give", "the loader more workers", ", prefetch more batches, or store the data in a faster format."),
        "checkpoint": ("Write", "checkpoints in the background", ", or less often."),
    }
    likely = ("Find", f"what the loop does every {every}", f": most likely it is {ARTICLE[source]}{source}, because {why}.")
    return Observation(
        kind="utilization-sawtooth",
        devices=devices,
        severity="warning" if low >= 0.05 else "info",
        confidence="high" if sure else "medium",
        measure="period in seconds",
        size=period,
        share=low,
        start_ns=int(gpu.times[0]),
        end_ns=int(gpu.times[-1]),
        title=f"Utilization of {lowered(named(devices, of))} dips every {every}, {low:.0%} of the time",
        seen=f"Utilization falls regularly below {LOW:.0%} of its level. "
        + (f"The samples of the host show {ARTICLE[source]}{source}: {why}." if sure else "Samples of the GPU alone do not show for what it waits."),
        action=confirmed[source] if sure else likely,
        record_next="a profile of a few periods (sawtooth run), which names the wait" + ("" if host else ", and samples of the host (sawtooth sample)"),
        details={"period_s": period, "low_share": low, "source": source, "because": why},
    )  # fmt: skip


def _source(period: float, low: float, gpu: DeviceSamples, where: NDArray[np.bool_], host: HostSeries | None) -> tuple[str, str, bool]:  # fmt: skip
    """Return the likely source of the dips, the reason for it, and whether the host's samples show it."""
    if host is not None and len(host.times):
        at = np.clip(np.searchsorted(gpu.times, host.times), 0, len(gpu.times) - 1)
        in_dip = where[at]

        def both(column: str) -> tuple[float, float]:
            values = host.values.get(column)
            if values is None or not in_dip.any() or in_dip.all():
                return 0.0, 0.0
            return float(np.nan_to_num(np.nanmean(values[in_dip]))), float(np.nan_to_num(np.nanmean(values[~in_dip])))

        written, otherwise = both("disk_write_bps")
        if written >= max(DISK_BPS, MORE * otherwise):
            return (
                "checkpoint",
                f"the host writes {written / 1e6:.0f} MB/s in the dips and {otherwise / 1e6:.0f} MB/s else",
                True,
            )
        loads, otherwise = both("disk_read_bps")
        if loads >= max(DISK_BPS, MORE * otherwise):
            return "data loader", f"the host reads {loads / 1e6:.0f} MB/s in the dips and {otherwise / 1e6:.0f} MB/s else", True
        workers = host.values.get("workers_cpu_pct")
        if workers is not None and float(np.nan_to_num(np.nanmean(workers))) >= FULL_PCT:
            return "data loader", "the loader's workers are busy all the time", True
    if "mem_used_bytes" in gpu and period >= SHORT_S:
        used = gpu.values["mem_used_bytes"]
        if where.any() and not where.all():
            inside, outside = np.nanmedian(used[where]), np.nanmedian(used[~where])
            if abs(inside - outside) > 0.03 * outside:
                return "evaluation", "the memory in use differs in the dips", False
    if period <= SHORT_S:
        return "data loader", f"the period of {period:.2g} s is a few steps", False
    if period >= LONG_S or low < 0.25:
        return "checkpoint or evaluation", f"the dips are {period:.0f} s apart", False
    return "data loader", "it waits for a large part of each period", False
