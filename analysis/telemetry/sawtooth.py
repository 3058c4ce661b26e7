"""The sawtooth: whether utilization rises and falls regularly, how fast, how deep, and when telemetry cannot tell.

A sample describes the window that ends at its time. Two limits follow. A period shorter than two samples cannot be seen. And a
fast rise and fall, seen through slow samples, looks like a slow one (aliasing): a period is only claimed where the samples rule
that out, or it is said that they do not. The proof used: where windows cover time without holes, no window longer than half
a period can hold more than one pulse, so its value is at most period ÷ window × the mean; peaks of twice the mean therefore mean that
the period is at least two windows. The same holds for the idle time, and two empty windows in a row prove it as well.

Definitions (METRICS, Telemetry): depth is p95 − p5, duty the share of samples above the middle of that range, regularity the share of the
variance that a repeating pattern of that period explains (Stellingwerf's phase dispersion, taken over stretches of ten periods
so that a slowly changing period still counts).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
Confidence = Literal["high", "medium", "low"]

MIN_SAMPLES = 24  # fewer cannot show six periods of four samples
MIN_CYCLES = 6  # fewer repeats are not yet a rhythm
MIN_DEPTH = 5.0  # points of percent: smaller waves cost nobody anything
SHALLOW = 0.5  # p5 above this share of p95 is a wavy load, not one that waits
MIN_REGULARITY = 0.5  # noise explains up to 0.3 of itself on ten periods, after the search for the best of them
HIGH_REGULARITY = 0.65  # the starved loader of known truth reaches 0.8
HIGH_CYCLES = 12  # one stretch of ten periods and a bit: below it the period's own scatter is unknown
PROOF_RATIO = 2.0  # see above
PROOF_DEPTH = 95.0  # points between the fullest and the emptiest windows, noise allowed for
PROOF_PERCENTILES = (15, 85)  # near a period of two windows a third of them are peaks: these are peaks without noise on top
PROOF_SHARE = 0.6  # of the periods that must hold two empty windows in a row
LOOSE_SAMPLES = 4  # samples a period needs where windows may be shorter than the time between samples
SAME_SCORE = (
    0.1  # of strong lines that explain nearly the same, the slowest is the fundamental and the others are its harmonics
)
STRONG_LINE = 0.5  # of the strongest line's power
WINDOW = 512  # samples of one spectrum: enough for a line, few enough for a page
MAX_WINDOWS = 6  # spectra per scale, spread over the recording
SCALES = (1, 4, 16)  # the series is averaged down to find slow periods in long recordings
STRETCH_CYCLES = 10  # periods that one phase pattern must hold together
FEWEST_HARMONICS = 3  # of the final score: short periods keep theirs above half the sampling rate
NEARBY = np.linspace(0.97, 1.03, 13)  # a stretch may run a little faster or slower than the whole
FOLD_FROM = 10  # samples a period from which phase bins describe a pulse better than its first harmonics
BINS = (3, 12)  # phase bins of a pattern
CANDIDATES = 6  # spectral lines tried
COUNTED_FROM = 4  # samples a period from which each of its rises shows in at least one low and one high sample


@dataclass(frozen=True)
class Sawtooth:
    """What was found in one signal. ``period_s`` is None with the reason in ``why_none``; then the rest describes the signal only.

    Units: seconds; percent points for ``high``, ``low`` and ``depth``; shares from 0 to 1 for ``duty``, ``regularity`` and
    ``phase_drift`` (scatter of the phase against an exact period, in periods). ``alias_periods_s`` are faster periods that
    would look the same, empty where the samples rule them out. ``harmonics_rejected_s`` are stronger spectral lines that were
    recognised as parts of the period.
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
    regularity: float | None = None
    cycles: float | None = None
    phase_drift: float | None = None
    harmonics_rejected_s: tuple[float, ...] = ()
    alias_periods_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class _Rhythm:
    period: float
    score: float
    rejected: tuple[float, ...]


def find_sawtooth(time_ns: NDArray[np.int64], value: F64, *, windows_tile: bool = True) -> Sawtooth:
    """Look for a sawtooth in one signal in percent (times in nanoseconds, any order; NaN is not recorded; sampling may be irregular).

    ``windows_tile``: each sample covers all the time since the one before (GPM does; NVML's utilization need not).
    Give the steady part only: see ``sawtooth.analysis.telemetry.steady``.
    """
    times, values = _clean(time_ns, value)
    if len(times) < MIN_SAMPLES:
        return Sawtooth(None, f"{len(times)} samples are too few to see a rhythm ({MIN_SAMPLES} needed)", None)
    spacing = float(np.median(np.diff(times))) * renewal(values)
    shortest = (2 if windows_tile else LOOSE_SAMPLES) * spacing
    low, high = (float(x) for x in np.percentile(values, (5, 95)))
    mean = float(values.mean())
    about: dict[str, Any] = {
        "low": low,
        "high": high,
        "mean": mean,
        "depth": high - low,
        "duty": float((values > (low + high) / 2).mean()),
    }
    if high - low < MIN_DEPTH:
        return Sawtooth(None, f"it stays between {low:.0f} and {high:.0f} %", shortest, **about)
    if low > SHALLOW * high:
        return Sawtooth(None, f"it varies between {low:.0f} and {high:.0f} % without ever waiting long", shortest, **about)
    rhythm = _search(times, values, spacing, 2 * spacing)
    if rhythm is None:
        return Sawtooth(None, "it rises and falls, but not regularly", shortest, **about)
    if rhythm.period < shortest:
        why = f"it rises and falls every {rhythm.period:.3g} s or faster, too near the {spacing:.3g} s between readings to be sure"
        return Sawtooth(None, why, shortest, regularity=rhythm.score, alias_periods_s=_aliases(rhythm.period, spacing), **about)
    counted = _counted(times=times, values=values, period=rhythm.period, spacing=spacing, low=low, high=high)
    if counted is not None:
        rhythm = replace(rhythm, period=counted)
    return _judged(
        times=times, values=values, spacing=spacing, shortest=shortest, rhythm=rhythm, tile=windows_tile, about=about
    )


def renewal(values: F64) -> int:
    """Return how many samples in a row carry one and the same reading: polled faster than the driver renews it, values come in stairs.

    Only readings away from both ends count, since an idle or a full GPU repeats itself truthfully.
    """
    low, high = np.percentile(values, (5, 95))
    edges = np.flatnonzero(np.diff(values) != 0) + 1
    bounds = np.concatenate([[0], edges, [len(values)]])
    level = values[bounds[:-1]]
    inner = (level > low + 0.1 * (high - low)) & (level < high - 0.1 * (high - low))
    inner[[0, -1]] = False  # cut off by the ends of the recording
    runs = np.diff(bounds)[inner]
    return int(np.median(runs)) if len(runs) >= 5 else 1


def _clean(time_ns: NDArray[np.int64], value: F64) -> tuple[F64, F64]:
    known = np.isfinite(value)
    times, first = np.unique(np.asarray(time_ns)[known], return_index=True)
    if len(times) == 0:
        return np.empty(0), np.empty(0)
    return (times - times[0]) / 1e9, np.asarray(value, np.float64)[known][first]


def _search(times: F64, values: F64, spacing: float, shortest: float) -> _Rhythm | None:
    """Look at ever coarser scales; the finest one that shows a rhythm decides."""
    for scale in SCALES:
        if scale > 1:
            times, values = _averaged(times, values, scale if scale == SCALES[1] else scale // SCALES[1])
        if len(times) < MIN_SAMPLES:
            return None
        step = spacing * scale
        fastest = shortest if scale == 1 else 8 * step  # faster ones were looked for on the scale before
        rhythm = _at_scale(times, values, step, fastest)
        if rhythm is not None:
            return rhythm
    return None


def _spectrum(times: F64, values: F64, frequencies: F64) -> F64:
    """Return the Lomb-Scargle power of ``values`` at ``frequencies`` (Hz), as a share of all."""
    from scipy.signal import (
        lombscargle,  # scipy.signal takes half a second to load, which every page and command would wait for
    )

    power: F64 = lombscargle(times, values, 2 * np.pi * frequencies, normalize=True)
    return power


def _averaged(times: F64, values: F64, n: int) -> tuple[F64, F64]:
    whole = len(times) // n * n
    return times[:whole].reshape(-1, n)[:, -1], values[:whole].reshape(-1, n).mean(axis=1)


def _at_scale(times: F64, values: F64, step: float, fastest: float) -> _Rhythm | None:
    pieces = _pieces(times, step)
    if not pieces:
        return None
    longest = max(times[p][-1] - times[p][0] for p in pieces) / MIN_CYCLES
    if longest <= fastest:
        return None
    # Four points to a resolution element; beyond two samples a period the spectrum only repeats itself.
    frequencies = np.arange(1 / longest, 1 / fastest, 1 / (4 * longest * MIN_CYCLES))
    if len(frequencies) < 3:
        return None
    power = np.zeros(len(frequencies))
    for piece in pieces:
        y = values[piece] - values[piece].mean()
        if y.any():
            power += _spectrum(times[piece], y, frequencies) * len(y)
    lines = _peaks(frequencies, power)
    if not lines:
        return None
    scored = [(_explained(times=times, values=values, pieces=pieces, period=p, step=step, harmonics=1), p) for p in lines]
    best = max(score for score, _ in scored)
    period = next(p for score, p in sorted(scored, key=lambda x: -x[1]) if score >= best - SAME_SCORE)
    score = _explained(times=times, values=values, pieces=pieces, period=period, step=step, harmonics=FEWEST_HARMONICS)
    if score < MIN_REGULARITY:
        return None
    rejected = tuple(p for p in lines if p < 0.75 * period)
    return _Rhythm(_refined(times, values, pieces, period), score, rejected)


def _refined(times: F64, values: F64, pieces: list[slice], period: float) -> float:
    """Return the period near ``period`` at which the fundamental is strongest, over whole windows rather than short stretches."""
    near = period * np.linspace(0.96, 1.04, 81)
    power = np.zeros(len(near))
    for piece in pieces:
        y = values[piece] - values[piece].mean()
        if y.any():
            power += _spectrum(times[piece], y, 1 / near) * len(y)
    best = int(power.argmax())
    return float(near[best]) if 0 < best < len(near) - 1 else period


def _counted(times: F64, values: F64, period: float, spacing: float, low: float, high: float) -> float | None:
    """Return the mean time between rises, where each of them is seen; else None.

    A loader's period wanders, and a spectrum names its most frequent value; a stopwatch divides by the number of steps. Every time between two rises
    must be near the period: a missed rise would show as a double one.
    """
    if period < COUNTED_FROM * spacing or np.diff(times).max() > 3.5 * spacing:
        return None
    state = np.where(values >= low + 0.5 * (high - low), 1, np.where(values <= low + 0.25 * (high - low), -1, 0))
    clear = np.flatnonzero(state)
    rises = times[clear[1:][(state[clear[1:]] == 1) & (state[clear[:-1]] == -1)]]
    between = np.diff(rises)
    if len(between) < MIN_CYCLES or between.min() < period / 2 or between.max() > 1.5 * period:
        return None
    if rises[-1] - rises[0] < times[-1] - times[0] - 3 * period:  # part of the recording does not rise at all
        return None
    return float(between.mean())


def _pieces(times: F64, step: float) -> list[slice]:
    """Cut at holes, then into windows; of many windows, take some that are spread over the recording."""
    holes = np.flatnonzero(np.diff(times) > 3.5 * step) + 1
    bounds = [0, *holes.tolist(), len(times)]
    windows = []
    for a, b in itertools.pairwise(bounds):
        count = max(1, round((b - a) / WINDOW))
        cuts = np.linspace(a, b, count + 1).astype(int)
        windows += [slice(int(x), int(y)) for x, y in itertools.pairwise(cuts) if y - x >= MIN_SAMPLES]
    if len(windows) > MAX_WINDOWS:
        windows = [windows[i] for i in np.linspace(0, len(windows) - 1, MAX_WINDOWS).astype(int)]
    return windows


def _peaks(frequencies: F64, power: F64) -> list[float]:
    """Return the periods of the strong lines, strongest first. A pulse train's fundamental is its strongest line (|sin kx| ≤ k |sin x|, and
    averaging over a window weakens faster ones more), so that a line far below the strongest is none."""
    inner = np.flatnonzero((power[1:-1] >= power[:-2]) & (power[1:-1] >= power[2:])) + 1
    edge = [i for i in (0, len(power) - 1) if power[i] == power.max()]
    strong = [i for i in (*inner.tolist(), *edge) if power[i] >= STRONG_LINE * power.max() > 0]
    return [1 / float(frequencies[i]) for i in sorted(strong, key=lambda i: -power[i])[:CANDIDATES]]


def _explained(times: F64, values: F64, pieces: list[slice], period: float, step: float, harmonics: int) -> float:
    """Return the share of variance that a pattern of this period explains, stretch by stretch."""
    within = total = 0.0
    for piece in pieces:
        t, y = times[piece], values[piece]
        per_stretch = max(round(STRETCH_CYCLES * period / step), 12)
        count = max(1, round(len(t) / per_stretch))
        for cut_t, cut_y in zip(np.array_split(t, count), np.array_split(y, count), strict=True):
            spread = float(((cut_y - cut_y.mean()) ** 2).sum())
            if spread <= 0 or cut_t[-1] - cut_t[0] < 3 * period:
                continue
            if period < FOLD_FROM * step:
                left = min(_beside_harmonics(cut_t, cut_y, period * f, step, harmonics) for f in NEARBY)
            else:
                left = min(_beside_pattern(cut_t, cut_y, period * f, step) for f in NEARBY)
            within += min(left, 1.0) * spread
            total += spread
    return 1 - within / total if total > 0 else 0.0


def _beside_harmonics(t: F64, y: F64, period: float, step: float, harmonics: int) -> float:
    """Return the share of variance beside the period and its harmonics, corrected for their number.

    Harmonics above half the sampling rate are there too, folded back; ``harmonics`` says how many are asked for at least.
    """
    order = np.arange(1, max(harmonics, int(period / (2 * step))) + 1)
    angle = 2 * np.pi * np.outer(t / period, order)
    terms = np.hstack([np.ones((len(t), 1)), np.cos(angle), np.sin(angle)])
    degrees = len(t) - terms.shape[1]
    if degrees <= 0:
        return 1.0
    rest = y - terms @ np.linalg.lstsq(terms, y, rcond=None)[0]
    return float((rest**2).sum() / ((y - y.mean()) ** 2).sum()) * (len(y) - 1) / degrees


def _beside_pattern(t: F64, y: F64, period: float, step: float) -> float:
    """Return the share of variance left around the mean of each phase bin, corrected for the number of bins."""
    bins = int(np.clip(round(period / step), *BINS))
    bins = min(bins, max(BINS[0], len(t) // 4))
    phase = ((t / period) % 1.0 * bins).astype(np.int64)
    count = np.bincount(phase, minlength=bins)
    sums = np.bincount(phase, y, minlength=bins)
    used = count > 0
    explained = float((sums[used] ** 2 / count[used]).sum()) - float(y.sum()) ** 2 / len(y)
    spread = float(((y - y.mean()) ** 2).sum())
    degrees = len(y) - int(used.sum())
    return (1 - explained / spread) * (len(y) - 1) / degrees if degrees > 0 else 1.0


def _judged(
    times: F64, values: F64, spacing: float, shortest: float, rhythm: _Rhythm, tile: bool, about: dict[str, Any]
) -> Sawtooth:
    cycles = float(times[-1] - times[0]) / rhythm.period
    proven = tile and _proven(values, rhythm.period / spacing, about)
    aliases = () if proven else _aliases(rhythm.period, spacing)
    if tile and not proven:
        why = f"its period may be {rhythm.period:.3g} s, but the samples cannot rule out a faster one that looks the same"
        return Sawtooth(None, why, shortest, regularity=rhythm.score, cycles=cycles, alias_periods_s=aliases, **about)
    confidence: Confidence = "low" if cycles < HIGH_CYCLES / 1.5 else "medium"
    if proven and rhythm.score >= HIGH_REGULARITY and cycles >= HIGH_CYCLES:
        confidence = "high"
    return Sawtooth(
        rhythm.period,
        None,
        shortest,
        confidence,
        regularity=rhythm.score,
        cycles=cycles,
        phase_drift=_drift(times, values, rhythm.period),
        harmonics_rejected_s=rhythm.rejected,
        alias_periods_s=aliases,
        **about,
    )


def _proven(values: F64, samples: float, about: dict[str, Any]) -> bool:
    """Tell whether the values rule out that the true period is below two windows."""
    low, high, mean = about["low"], about["high"], about["mean"]
    bottom, top = np.percentile(values, PROOF_PERCENTILES)
    if high - low >= PROOF_DEPTH or top >= PROOF_RATIO * mean or (100 - bottom) >= PROOF_RATIO * (100 - mean):
        return True
    floor = values <= max(low + 0.1 * (high - low), 1.0)
    doubles = floor[1:] & floor[:-1]
    starts = int((doubles & ~np.concatenate([[False], doubles[:-1]])).sum())
    return low <= 0.1 * high and starts >= PROOF_SHARE * len(values) / samples


def _aliases(period: float, spacing: float) -> tuple[float, ...]:
    """Return the faster periods that samples ``spacing`` apart cannot tell from this one: 1/(n/spacing ± 1/period), n = 1, 2."""
    base = 1 / spacing
    return tuple(sorted((1 / (n * base + sign / period) for n in (1, 2) for sign in (-1, 1)), reverse=True))


def _drift(times: F64, values: F64, period: float) -> float | None:
    """Return the scatter of the phase around an exact rhythm, in periods; None with fewer than three stretches."""
    count = int((times[-1] - times[0]) / (4 * period))
    if count < 3:
        return None
    turn = np.exp(-2j * np.pi * times / period) * (values - values.mean())
    phases = [np.angle(part.sum()) for part in np.array_split(turn, count) if len(part)]
    unwrapped = np.unwrap(phases) / (2 * np.pi)
    at = np.arange(len(unwrapped))
    return float(np.std(unwrapped - np.polyval(np.polyfit(at, unwrapped, 1), at)))
