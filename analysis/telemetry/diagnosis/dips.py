"""Utilization that falls again and again: its period, how long it is low, and the likely source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.intervals import where_true
from sawtooth.analysis.telemetry.diagnosis.device_samples import BUSY, F64, DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.dip_sources import ARTICLE, likely_source
from sawtooth.analysis.telemetry.diagnosis.host_series import HostSeries
from sawtooth.analysis.telemetry.diagnosis.idle import IDLE_PCT, LEAST_SECONDS
from sawtooth.analysis.telemetry.diagnosis.observation import Observation, duration, lowered, named
from sawtooth.analysis.telemetry.signal.sawtooth import find_sawtooth

LEAST_DIPS = 6
LOW = 0.7  # of the level of work: lower samples are a dip
LEVEL = 75  # percentile of the busy signal that is the level of work
REGULAR = 0.35  # relative scatter of the time between dips
PER_PERIOD = 4  # samples; a faster period would look the same
LEAST_LOST = 0.02  # share of the time: rarer or shorter dips cost less than a look at them
SHORT = 0.25  # of the usual length: shorter dips, such as single low samples, have a cause of their own
IRREGULAR_LOST, IRREGULAR_S = (
    0.05,
    5.0,
)  # least share of the time and least usual length, in seconds, of irregular dips that are reported
ONE_HALF = 0.15  # share of the low time: if one half has less, the level changed once, which is a trend and no dips
SAME_SHARE = 0.3  # relative difference of the low share: GPUs within it are reported together


class _Dips(NamedTuple):
    """The dips of a GPU: the low samples, their share of the time and number, and the time between dips.

    ``period_s`` is None if that time is irregular.
    """

    period_s: float | None
    share: float
    where: NDArray[np.bool_]
    number: int


def sawtooth(gpus: Sequence[DeviceSamples], host: HostSeries | None = None) -> Iterator[Observation]:
    """Yield the dips; GPUs with the same period are one observation.

    It includes GPUs without a clear period that are low for as much of the time.
    """
    dipping = [(gpu, dips) for gpu in gpus if (dips := _dips(gpu)) is not None]
    dipping.sort(key=lambda one: one[1].period_s is None)
    while dipping:
        first = dipping[0][1]
        alike = [one for one in dipping if _alike(one[1], first)]
        dipping = [one for one in dipping if not _alike(one[1], first)]
        yield _regular(alike, len(gpus), host) if first.period_s is not None else _irregular(alike, len(gpus), host)


def _alike(one: _Dips, first: _Dips) -> bool:
    if one.period_s is not None and first.period_s is not None:
        return abs(one.period_s - first.period_s) <= 0.15 * first.period_s
    return abs(one.share - first.share) <= SAME_SHARE * first.share


def _dips(gpu: DeviceSamples) -> _Dips | None:
    """Return the dips of a GPU; None without any that matter."""
    known = np.isfinite(gpu.busy)
    times, values, weights = gpu.times[known], gpu.busy[known], gpu.weights[known]
    if len(times) < LEAST_DIPS * PER_PERIOD:
        return None
    level = float(np.percentile(values, LEVEL))
    work = np.flatnonzero(values >= LOW * level)
    if level < 20 or len(work) < LEAST_DIPS:
        return None
    first, last = int(work[0]), int(work[-1]) + 1  # without start-up and end
    low = np.zeros(len(values), bool)
    low[first:last] = values[first:last] < LOW * level
    share = float(weights[low].sum() / weights[first:last].sum())
    if share < LEAST_LOST:
        return None
    whole = np.zeros(len(gpu.times), bool)
    whole[np.flatnonzero(known)[low]] = True
    begins, ends = where_true(low)
    until = np.cumsum(weights)
    lengths = (until[ends - 1] - until[begins] + weights[begins]) / 1e9
    usual = _usual_length(lengths)
    long = lengths >= SHORT * usual
    spacing = np.diff(times[begins][long]) / 1e9
    if (period := _period(spacing, lengths[long], gpu.period_s)) is not None:
        return _Dips(period, share, whole, int(long.sum()))
    if int(long.sum()) >= LEAST_DIPS and usual >= max(IRREGULAR_S, PER_PERIOD * gpu.period_s):
        # Each dip is seen, so a spectrum adds nothing.
        idle = float(weights[low & (values < IDLE_PCT)].sum()) > 0.5 * float(weights[low].sum())
        first_half = float(weights[low & (times < times[first] + (times[last - 1] - times[first]) // 2)].sum()) / float(
            weights[low].sum()
        )
        elsewhere = not ONE_HALF <= first_half <= 1 - ONE_HALF or (idle and usual >= LEAST_SECONDS)
        return _Dips(None, share, whole, int(long.sum())) if share >= IRREGULAR_LOST and not elsewhere else None
    tile = next((c for c in BUSY if c in gpu), "") != "util_pct"
    tooth = find_sawtooth(times[first:last], values[first:last], windows_tile=tile)
    if tooth.period_s is None or tooth.confidence == "low" or tooth.duty is None:
        return None
    return _Dips(tooth.period_s, 1 - tooth.duty, whole, int(long.sum()))


def _usual_length(lengths: F64) -> float:
    """Return the length of dip up to which half of the low time lies.

    A plain median would be that of the many short dips.
    """
    ordered = np.sort(lengths)
    return float(ordered[np.searchsorted(np.cumsum(ordered), ordered.sum() / 2)])


def _period(spacing: F64, lengths: F64, usual_s: float) -> float | None:
    """Return the mean time between regular dips, seconds; None if they are few or irregular."""
    if len(spacing) < LEAST_DIPS - 1:
        return None
    period = float(np.median(spacing))
    if period < max(PER_PERIOD * usual_s, 1e-9) or lengths.max() >= max(LEAST_SECONDS, period):
        return None
    regular = np.abs(spacing / period - 1) <= REGULAR
    return float(spacing[regular].mean()) if regular.mean() >= 0.8 else None


def _regular(alike: Sequence[tuple[DeviceSamples, _Dips]], of: int, host: HostSeries | None) -> Observation:
    devices = tuple(sorted(gpu.device for gpu, _ in alike))
    period = float(np.mean([dips.period_s for _, dips in alike if dips.period_s is not None]))
    low = float(np.mean([dips.share for _, dips in alike]))
    gpu, first = alike[0]
    source, why, sure = likely_source(period, low, gpu, first.where, host)
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


def _irregular(alike: Sequence[tuple[DeviceSamples, _Dips]], of: int, host: HostSeries | None) -> Observation:
    devices = tuple(sorted(gpu.device for gpu, _ in alike))
    low = float(np.mean([dips.share for _, dips in alike]))
    count = round(float(np.mean([dips.number for _, dips in alike])))
    gpu, _ = alike[0]
    length = duration(low * float(gpu.weights.sum()) / 1e9 / count)
    return Observation(
        kind="irregular-dips",
        devices=devices,
        severity="warning",
        confidence="medium",
        measure="percent of the time",
        size=100 * low,
        share=low,
        start_ns=int(gpu.times[0]),
        end_ns=int(gpu.times[-1]),
        title=f"Utilization of {lowered(named(devices, of))} dips {count} times irregularly, {low:.0%} of the time",
        seen=f"It falls below {LOW:.0%} of its level for about {length} each time. Samples do not show why.",
        action=("Find", "what the loop does then", ": possible causes are evaluations, checkpoints, late data, or other jobs on the host."),
        record_next="step marks of the training (sawtooth run), which show the steps in which it happens" + ("" if host else ", and samples of the host (sawtooth sample)"),
        details={"count": count, "low_share": low},
    )  # fmt: skip
