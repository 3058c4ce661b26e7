"""Repeated dips of utilization: their period, their share of the time, and the likely source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.intervals import where_true
from sawtooth.analysis.telemetry.diagnosis.device_samples import BUSY, F64, DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.dip_sources import ARTICLE, likely_source
from sawtooth.analysis.telemetry.diagnosis.host_series import HostSeries
from sawtooth.analysis.telemetry.diagnosis.idle import IDLE_PCT, MIN_SECONDS
from sawtooth.analysis.telemetry.diagnosis.observation import Observation, duration, gpus_in_words, mid_sentence
from sawtooth.analysis.telemetry.signal.sawtooth import find_sawtooth
from sawtooth.analysis.units import percent

MIN_DIPS = 6
LOW_RATIO = 0.7  # Samples below this share of the level of work are a dip.
WORK_PERCENTILE = 75  # This percentile of the busy signal is the level of work.
MAX_SCATTER = 0.35  # The time between regular dips has at most this relative scatter.
SAMPLES_PER_PERIOD = 4  # A faster period cannot be resolved.
MIN_SHARE = 0.02  # Dips that take a smaller share of the time are not reported.
SHORT_RATIO = 0.25  # Dips shorter than this share of the usual length, such as single low samples, have another cause.
# Irregular dips are reported if they take at least this share of the time and usually last at least this many seconds.
IRREGULAR_SHARE = 0.05
IRREGULAR_S = 5.0
MIN_HALF_SHARE = 0.15  # If one half of the run has less of the low time, the level changed once, which is a trend.
SIMILAR_SHARE = 0.3  # GPUs whose low shares differ by at most this ratio are reported together.


class _Dips(NamedTuple):
    """The dips of a GPU: the low samples, their share of the time and number, and the time between dips.

    ``period_s`` is None if that time is irregular.
    """

    period_s: float | None
    share: float
    where: NDArray[np.bool_]
    number: int


def utilization_dips(gpus: Sequence[DeviceSamples], host: HostSeries | None = None) -> Iterator[Observation]:
    """Yield the dips; GPUs with the same period are one observation.

    It includes GPUs without a clear period that are low for as much of the time.
    """
    dipping = [(gpu, dips) for gpu in gpus if (dips := _dips(gpu)) is not None]
    dipping.sort(key=lambda pair: pair[1].period_s is None)
    while dipping:
        first = dipping[0][1]
        matching = [pair for pair in dipping if _same_pattern(pair[1], first)]
        dipping = [pair for pair in dipping if not _same_pattern(pair[1], first)]
        yield _regular(matching, len(gpus), host) if first.period_s is not None else _irregular(matching, len(gpus), host)


def _same_pattern(dips: _Dips, first: _Dips) -> bool:
    if dips.period_s is not None and first.period_s is not None:
        return abs(dips.period_s - first.period_s) <= 0.15 * first.period_s
    return abs(dips.share - first.share) <= SIMILAR_SHARE * first.share


def _dips(gpu: DeviceSamples) -> _Dips | None:
    """Return the dips of a GPU; None if they do not matter."""
    finite = np.isfinite(gpu.busy)
    times, values, weights = gpu.times[finite], gpu.busy[finite], gpu.weights[finite]
    if len(times) < MIN_DIPS * SAMPLES_PER_PERIOD:
        return None
    level = float(np.percentile(values, WORK_PERCENTILE))
    work = np.flatnonzero(values >= LOW_RATIO * level)
    if level < 20 or len(work) < MIN_DIPS:
        return None
    first, last = int(work[0]), int(work[-1]) + 1  # Start-up and end are left out.
    low = np.zeros(len(values), bool)
    low[first:last] = values[first:last] < LOW_RATIO * level
    share = float(weights[low].sum() / weights[first:last].sum())
    if share < MIN_SHARE:
        return None
    low_samples = np.zeros(len(gpu.times), bool)
    low_samples[np.flatnonzero(finite)[low]] = True
    begins, ends = where_true(low)
    covered_ns = np.cumsum(weights)
    lengths = (covered_ns[ends - 1] - covered_ns[begins] + weights[begins]) / 1e9
    usual_s = _usual_length(lengths)
    counted = lengths >= SHORT_RATIO * usual_s
    spacing = np.diff(times[begins][counted]) / 1e9
    if (period := _period(spacing, lengths[counted], gpu.period_s)) is not None:
        return _Dips(period, share, low_samples, int(counted.sum()))
    if int(counted.sum()) >= MIN_DIPS and usual_s >= max(IRREGULAR_S, SAMPLES_PER_PERIOD * gpu.period_s):
        # Every dip is resolved, so a spectrum adds nothing.
        idle = float(weights[low & (values < IDLE_PCT)].sum()) > 0.5 * float(weights[low].sum())
        first_half = float(weights[low & (times < times[first] + (times[last - 1] - times[first]) // 2)].sum()) / float(
            weights[low].sum()
        )
        other_kind = not MIN_HALF_SHARE <= first_half <= 1 - MIN_HALF_SHARE or (idle and usual_s >= MIN_SECONDS)
        return _Dips(None, share, low_samples, int(counted.sum())) if share >= IRREGULAR_SHARE and not other_kind else None
    tiles = next((c for c in BUSY if c in gpu), "") != "util_pct"
    period_found = find_sawtooth(times[first:last], values[first:last], windows_tile=tiles)
    if period_found.period_s is None or period_found.confidence == "low" or period_found.duty is None:
        return None
    return _Dips(period_found.period_s, 1 - period_found.duty, low_samples, int(counted.sum()))


def _usual_length(lengths: F64) -> float:
    """Return the length for which shorter dips make up half of the low time.

    The median of all lengths would only describe the many short dips.
    """
    ordered = np.sort(lengths)
    return float(ordered[np.searchsorted(np.cumsum(ordered), ordered.sum() / 2)])


def _period(spacing: F64, lengths: F64, usual_s: float) -> float | None:
    """Return the mean time between regular dips, seconds; None if they are few or irregular."""
    if len(spacing) < MIN_DIPS - 1:
        return None
    period = float(np.median(spacing))
    if period < max(SAMPLES_PER_PERIOD * usual_s, 1e-9) or lengths.max() >= max(MIN_SECONDS, period):
        return None
    regular = np.abs(spacing / period - 1) <= MAX_SCATTER
    return float(spacing[regular].mean()) if regular.mean() >= 0.8 else None


def _regular(matching: Sequence[tuple[DeviceSamples, _Dips]], total: int, host: HostSeries | None) -> Observation:
    devices = tuple(sorted(gpu.device for gpu, _ in matching))
    period = float(np.mean([dips.period_s for _, dips in matching if dips.period_s is not None]))
    low_share = float(np.mean([dips.share for _, dips in matching]))
    gpu, first = matching[0]
    source, reason, confirmed = likely_source(period, low_share, gpu, first.where, host)
    period_in_words = duration(period)
    confirmed_actions = {
        "data loader": ("Give", "the loader more workers", ", prefetch more batches, or store the data in a faster format."),
        "checkpoint": ("Write", "checkpoints in the background", ", or less often."),
    }
    likely = (
        "Find",
        f"what the loop does every {period_in_words}",
        f": it may be {ARTICLE[source]}{source}, because {reason}.",
    )
    return Observation(
        kind="utilization-sawtooth",
        devices=devices,
        severity="warning" if low_share >= 0.05 else "info",
        confidence="high" if confirmed else "medium",
        unit="period in seconds",
        value=period,
        time_share=low_share,
        start_ns=int(gpu.times[0]),
        end_ns=int(gpu.times[-1]),
        title=f"Utilization of {mid_sentence(gpus_in_words(devices, total))} dips every {period_in_words}, below {percent(LOW_RATIO)} of its level for {percent(low_share)} of the time",
        evidence=(f"The samples of the host show {ARTICLE[source]}{source}: {reason}." if confirmed else "Samples of the GPU alone do not show for what it waits."),
        action=confirmed_actions[source] if confirmed else likely,
        record_next="a profile of a few periods (sawtooth run), which names the wait" + ("" if host else ", and samples of the host (sawtooth sample)"),
        details={"period_s": period, "low_share": low_share, "source": source, "because": reason},
    )  # fmt: skip


def _irregular(matching: Sequence[tuple[DeviceSamples, _Dips]], total: int, host: HostSeries | None) -> Observation:
    devices = tuple(sorted(gpu.device for gpu, _ in matching))
    low_share = float(np.mean([dips.share for _, dips in matching]))
    count = round(float(np.mean([dips.number for _, dips in matching])))
    gpu, _ = matching[0]
    length = duration(low_share * float(gpu.weights.sum()) / 1e9 / count)
    return Observation(
        kind="irregular-dips",
        devices=devices,
        severity="warning",
        confidence="medium",
        unit="percent of the time",
        value=100 * low_share,
        time_share=low_share,
        start_ns=int(gpu.times[0]),
        end_ns=int(gpu.times[-1]),
        title=f"Utilization of {mid_sentence(gpus_in_words(devices, total))} dips {count} times irregularly, {percent(low_share)} of the time",
        evidence=f"It falls below {percent(LOW_RATIO)} of its level for about {length} each time. Samples do not show why.",
        action=("Find", "what the loop does then", ": possible causes are evaluations, checkpoints, late data, or other jobs on the host."),
        record_next="step marks of the training (sawtooth run), which show the steps in which it happens" + ("" if host else ", and samples of the host (sawtooth sample)"),
        details={"count": count, "low_share": low_share},
    )  # fmt: skip
