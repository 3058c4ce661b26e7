"""The sawtooth: whether utilization rises and falls periodically, how fast and how deep.

A sample describes the window that ends at its time. This has two limits. A period shorter than two samples is invisible. And
a fast rise and fall, seen through slow samples, looks like a slow one (aliasing). So a period is reported only if the samples
exclude this, or with a note that they do not exclude it. The proof is as follows. If windows cover time without gaps, no
window longer than half a period can contain more than one pulse. So its value is at most period ÷ window × the mean. Peaks of
twice the mean therefore mean that the period is at least two windows. The same holds for idle time, and two consecutive empty
windows prove it as well. Definitions (docs/metrics.md): depth is p95 − p5. Duty is the share of samples above the middle of
that range. Regularity is the share of the variance that a repeating pattern of that period explains. It is Stellingwerf's
phase dispersion, over parts of ten periods, so that a slowly changing period still counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.telemetry.signal.rhythm import F64, MIN_SAMPLES, SignalPeriod, explained, find_rhythm
from sawtooth.analysis.telemetry.signal.rises import counted_period
from sawtooth.analysis.units import significant

Confidence = Literal["high", "medium", "low"]

MIN_DEPTH = 5.0  # Percent points: smaller waves cost no noticeable time.
MIN_SHALLOW_RATIO = 0.5  # With p5 above this share of p95, the load varies but never waits.
HIGH_REGULARITY = 0.65  # A starved loader with known truth reaches 0.8.
HIGH_CYCLES = 12  # Slightly more than one part of ten periods: with fewer, the scatter of the period is unknown.
PROOF_RATIO = 2.0  # The module's docstring explains this ratio.
PROOF_DEPTH = 95.0  # Difference between the fullest and the emptiest windows in percentage points; below 100, because of noise.
PROOF_PERCENTILES = (15, 85)  # Near a period of two windows, a third of them are peaks: these percentiles avoid the noise.
PROOF_SHARE = 0.6  # Share of the periods that must contain two consecutive empty windows.
LOOSE_SAMPLES = 4  # Samples per period, if windows may be shorter than the time between samples.
MIN_BETWEEN = 4  # A period needs at least this many times between bursts.
MAX_RATIO = 1.25  # Largest ratio of the longest to the shortest time between bursts of one period.
BURST_SAMPLES = 8  # Smallest number of samples between bursts. With fewer, a single sample is a large part of that time.


class SignalRange(TypedDict):
    """The range of a signal, as in the fields of ``Sawtooth`` with these names."""

    low: float
    high: float
    mean: float
    depth: float
    duty: float


@dataclass(frozen=True)
class Sawtooth:
    """The result for one signal.

    ``period_s`` is None with the reason in ``why_none``; then the rest only describes the signal. Units are seconds; percent
    points for ``high``, ``low`` and ``depth``; a share from 0 to 1 for ``duty``. ``alias_periods_s`` are faster periods that
    would look the same, empty if the samples exclude them. ``error_s`` is half of the period's 90 % interval, None if not
    every rise could be counted.
    """

    period_s: float | None
    why_none: str | None
    shortest_visible_s: float | None
    confidence: Confidence | None = None
    duty: float | None = None
    depth: float | None = None
    high: float | None = None
    low: float | None = None
    mean: float | None = None
    cycles: float | None = None
    alias_periods_s: tuple[float, ...] = ()
    error_s: float | None = None

    @property
    def middle(self) -> float | None:
        """The percentage that is exceeded for ``duty`` of the time; None if the signal has no duty."""
        return (self.low + self.high) / 2 if self.low is not None and self.high is not None else None


def find_sawtooth(time_ns: NDArray[np.int64], value: F64, *, windows_tile: bool = True, bursts: Sequence[int] = ()) -> Sawtooth:
    """Look for a sawtooth in one signal in percent.

    Times are in nanoseconds, in any order and at any interval; NaN means not recorded. ``windows_tile`` means that each sample
    covers all the time since the previous one (true for GPM, not always for NVML's utilization). The signal should contain the
    steady part only: see ``sawtooth.analysis.telemetry.signal.steady``, which also has the ``bursts``: times at which equal work began.
    """
    times, values = _clean(time_ns, value)
    if len(times) < MIN_SAMPLES:
        return Sawtooth(None, f"{len(times)} samples are too few (at least {MIN_SAMPLES} are needed)", None)
    spacing = float(np.median(np.diff(times))) * renewal(values)
    shortest = (2 if windows_tile else LOOSE_SAMPLES) * spacing
    low, high = (float(x) for x in np.percentile(values, (5, 95)))
    mean = float(values.mean())
    span: SignalRange = {
        "low": low,
        "high": high,
        "mean": mean,
        "depth": high - low,
        "duty": float((values > (low + high) / 2).mean()),
    }
    if high - low < MIN_DEPTH:
        range_in_words = f"between {low:.0f} and {high:.0f} %" if round(low) < round(high) else f"at {high:.0f} %"
        return Sawtooth(None, f"it stays {range_in_words}", shortest, **span)
    if low > MIN_SHALLOW_RATIO * high:
        return Sawtooth(None, f"it varies between {low:.0f} and {high:.0f} % and has no low stretches", shortest, **span)
    rhythm = find_rhythm(times, values, spacing) or _of_bursts(times, values, spacing, bursts)
    if rhythm is None:
        return Sawtooth(None, "it rises and falls, but not regularly", shortest, **span)
    if rhythm.period < shortest:
        reason = f"it rises and falls every {significant(rhythm.period)} s or faster, which is too close to the {significant(spacing)} s between readings"
        return Sawtooth(None, reason, shortest, alias_periods_s=_aliases(rhythm.period, spacing), **span)
    counted = counted_period(
        times=times, values=values, period=rhythm.period, spacing=spacing, low=low, high=high, tile=windows_tile
    )
    if counted is not None:
        rhythm = replace(rhythm, period=counted.period_s)
    judged = _judge(times=times, values=values, spacing=spacing, shortest=shortest, rhythm=rhythm, tile=windows_tile, span=span)
    return judged if counted is None or judged.period_s is None else replace(judged, error_s=counted.error_s)


def renewal(values: F64) -> int:
    """Return the usual number of consecutive samples that repeat one reading.

    A sampler that polls faster than the driver updates the value records steps. Only readings away from both ends of the range
    count, because an idle or a full GPU really repeats its value.
    """
    low, high = np.percentile(values, (5, 95))
    edges = np.flatnonzero(np.diff(values) != 0) + 1
    bounds = np.concatenate([[0], edges, [len(values)]])
    level = values[bounds[:-1]]
    inner = (level > low + 0.1 * (high - low)) & (level < high - 0.1 * (high - low))
    inner[[0, -1]] = False  # The ends of the recording cut off these two.
    runs = np.diff(bounds)[inner]
    return int(np.median(runs)) if len(runs) >= 5 else 1


def _clean(time_ns: NDArray[np.int64], value: F64) -> tuple[F64, F64]:
    finite = np.isfinite(value)
    times, first = np.unique(np.asarray(time_ns)[finite], return_index=True)
    if len(times) == 0:
        return np.empty(0), np.empty(0)
    return (times - times[0]) / 1e9, np.asarray(value, np.float64)[finite][first]


def _of_bursts(times: F64, values: F64, spacing: float, bursts: Sequence[int]) -> SignalPeriod | None:
    """Return the mean time between a few bursts of equal work, if these times are similar.

    A spectrum needs more bursts, and it shows no line if short bursts come a tenth of a period early or late.
    """
    distance_s = np.diff(np.asarray(bursts, np.int64)) / 1e9
    if (
        len(distance_s) < MIN_BETWEEN
        or distance_s.min() < BURST_SAMPLES * spacing
        or distance_s.max() > MAX_RATIO * distance_s.min()
    ):
        return None
    period = float(distance_s.mean())
    return SignalPeriod(period, explained(times, values, spacing, period))


def _judge(
    *, times: F64, values: F64, spacing: float, shortest: float, rhythm: SignalPeriod, tile: bool, span: SignalRange
) -> Sawtooth:
    cycles = float(times[-1] - times[0]) / rhythm.period
    proven = tile and _proven(values, rhythm.period / spacing, span)
    aliases = () if proven else _aliases(rhythm.period, spacing)
    if tile and not proven:
        reason = f"a period of {significant(rhythm.period)} s is possible, but the samples are too far apart to be sure"
        return Sawtooth(None, reason, shortest, cycles=cycles, alias_periods_s=aliases, **span)
    confidence: Confidence = "low" if cycles < HIGH_CYCLES / 1.5 else "medium"
    if proven and rhythm.score >= HIGH_REGULARITY and cycles >= HIGH_CYCLES:
        confidence = "high"
    return Sawtooth(
        rhythm.period,
        None,
        shortest,
        confidence,
        cycles=cycles,
        alias_periods_s=aliases,
        **span,
    )


def _proven(values: F64, samples: float, span: SignalRange) -> bool:
    """Return whether the values exclude a true period below two windows."""
    low, high, mean = span["low"], span["high"], span["mean"]
    bottom, top = np.percentile(values, PROOF_PERCENTILES)
    if high - low >= PROOF_DEPTH or top >= PROOF_RATIO * mean or (100 - bottom) >= PROOF_RATIO * (100 - mean):
        return True
    floor = values <= max(low + 0.1 * (high - low), 1.0)
    doubles = floor[1:] & floor[:-1]
    starts = int((doubles & ~np.concatenate([[False], doubles[:-1]])).sum())
    return low <= 0.1 * high and starts >= PROOF_SHARE * len(values) / samples


def _aliases(period: float, spacing: float) -> tuple[float, ...]:
    """Return the faster periods that look the same in samples ``spacing`` apart.

    They are 1/(n/spacing ± 1/period) for n = 1, 2.
    """
    base = 1 / spacing
    return tuple(sorted((1 / (n * base + sign / period) for n in (1, 2) for sign in (-1, 1)), reverse=True))
