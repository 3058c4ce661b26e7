"""The period of one signal: the slowest strong line of its spectrum that a repeating pattern explains."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

MIN_SAMPLES = 24  # Fewer cannot show six periods of four samples.
MIN_CYCLES = 6  # Fewer repetitions are not a reliable period.
MIN_REGULARITY = 0.5  # In pure noise, the best period explains up to 0.3 of the variance over ten periods.
SAME_SCORE = 0.1  # Of strong lines with nearly the same score, the slowest is the fundamental, the others its harmonics.
STRONG_LINE = 0.5  # A spectral line is strong if it has at least this share of the strongest line's power.
SPECTRUM_SAMPLES = 512  # Samples of one spectrum: enough for a line, and fast enough for a page.
MAX_WINDOWS = 6  # At each time scale, this many spectra are spread over the recording.
SCALES = (1, 4, 16)  # The series is averaged to find slow periods in long recordings.
STRETCH_CYCLES = 10  # Periods over which one phase pattern must be constant.
MIN_HARMONICS = 3  # Of the final score: a short period has its harmonics above half the sampling rate.
NEARBY = np.linspace(0.97, 1.03, 13)  # A part may run slightly faster or slower than the full series.
FOLD_FROM = 10  # Samples per period from which phase bins describe a pulse better than its first harmonics.
BINS = (3, 12)  # A pattern has at least 3 and at most 12 phase bins.
MAX_SPECTRAL_LINES = 6  # The search tries this many of the strongest spectral lines.


@dataclass(frozen=True)
class SignalPeriod:
    """A period in seconds, and the share of the variance that it explains."""

    period: float
    score: float


def find_rhythm(times: F64, values: F64, spacing: float) -> SignalPeriod | None:
    """Return the rhythm of the finest scale that shows one; None if no scale does."""
    for scale in SCALES:
        if scale > 1:
            times, values = _average(times, values, scale if scale == SCALES[1] else scale // SCALES[1])
        if len(times) < MIN_SAMPLES:
            return None
        step = spacing * scale
        fastest = 2 * spacing if scale == 1 else 8 * step  # The previous scale covered faster rhythms.
        rhythm = _at_scale(times, values, step, fastest)
        if rhythm is not None:
            return rhythm
    return None


def explained(times: F64, values: F64, spacing: float, period: float) -> float:
    """Return the share of the variance that a pattern of ``period`` explains."""
    pieces = _pieces(times, spacing)
    return _explained_share(times=times, values=values, pieces=pieces, period=period, step=spacing, harmonics=MIN_HARMONICS)


def _spectrum(times: F64, values: F64, frequencies: F64) -> F64:
    """Return the Lomb-Scargle power of ``values`` at ``frequencies`` (Hz), as a share of the total."""
    from scipy.signal import (
        lombscargle,  # Imported only here, because scipy.signal takes half a second to load.
    )

    power: F64 = lombscargle(times, values, 2 * np.pi * frequencies, normalize=True)
    return power


def _average(times: F64, values: F64, n: int) -> tuple[F64, F64]:
    count = len(times) // n * n
    return times[:count].reshape(-1, n)[:, -1], values[:count].reshape(-1, n).mean(axis=1)


def _at_scale(times: F64, values: F64, step: float, fastest: float) -> SignalPeriod | None:
    pieces = _pieces(times, step)
    if not pieces:
        return None
    longest = max(times[p][-1] - times[p][0] for p in pieces) / MIN_CYCLES
    if longest <= fastest:
        return None
    # Four points per resolution element. Above half the sampling rate the spectrum only repeats itself.
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
    scored = [(_explained_share(times=times, values=values, pieces=pieces, period=p, step=step, harmonics=1), p) for p in lines]
    best = max(score for score, _ in scored)
    period = next(p for score, p in sorted(scored, key=lambda x: -x[1]) if score >= best - SAME_SCORE)
    score = _explained_share(times=times, values=values, pieces=pieces, period=period, step=step, harmonics=MIN_HARMONICS)
    return SignalPeriod(_refine(times, values, pieces, period), score) if score >= MIN_REGULARITY else None


def _refine(times: F64, values: F64, pieces: list[slice], period: float) -> float:
    """Return the period near ``period`` at which the fundamental is strongest, over full windows."""
    tried_periods = period * np.linspace(0.96, 1.04, 81)
    power = np.zeros(len(tried_periods))
    for piece in pieces:
        y = values[piece] - values[piece].mean()
        if y.any():
            power += _spectrum(times[piece], y, 1 / tried_periods) * len(y)
    best = int(power.argmax())
    return float(tried_periods[best]) if 0 < best < len(tried_periods) - 1 else period


def _pieces(times: F64, step: float) -> list[slice]:
    """Cut at telemetry gaps, then into windows; of many windows, take some spread over the recording."""
    gaps = np.flatnonzero(np.diff(times) > 3.5 * step) + 1
    bounds = [0, *gaps.tolist(), len(times)]
    windows = []
    for a, b in itertools.pairwise(bounds):
        count = max(1, round((b - a) / SPECTRUM_SAMPLES))
        cuts = np.linspace(a, b, count + 1).astype(int)
        windows += [slice(int(x), int(y)) for x, y in itertools.pairwise(cuts) if y - x >= MIN_SAMPLES]
    if len(windows) > MAX_WINDOWS:
        windows = [windows[i] for i in np.linspace(0, len(windows) - 1, MAX_WINDOWS).astype(int)]
    return windows


def _peaks(frequencies: F64, power: F64) -> list[float]:
    """Return the periods of the strong lines, strongest first.

    A pulse train's fundamental is its strongest line (|sin kx| ≤ k |sin x|, and averaging over a window weakens faster lines
    more). So a line far below the strongest is not the fundamental.
    """
    inner = np.flatnonzero((power[1:-1] >= power[:-2]) & (power[1:-1] >= power[2:])) + 1
    edge = [i for i in (0, len(power) - 1) if power[i] == power.max()]
    strong = [i for i in (*inner.tolist(), *edge) if power[i] >= STRONG_LINE * power.max() > 0]
    return [1 / float(frequencies[i]) for i in sorted(strong, key=lambda i: -power[i])[:MAX_SPECTRAL_LINES]]


def _explained_share(times: F64, values: F64, pieces: list[slice], period: float, step: float, harmonics: int) -> float:
    """Return the share of variance that a pattern of this period explains, part by part."""
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
                residual = min(_beside_harmonics(cut_t, cut_y, period * f, step, harmonics) for f in NEARBY)
            else:
                residual = min(_beside_pattern(cut_t, cut_y, period * f, step) for f in NEARBY)
            within += min(residual, 1.0) * spread
            total += spread
    return 1 - within / total if total > 0 else 0.0


def _beside_harmonics(t: F64, y: F64, period: float, step: float, harmonics: int) -> float:
    """Return the share of variance outside the period and its harmonics, corrected for their number.

    Harmonics above half the sampling rate are included, because they fold back. ``harmonics`` is the least number used.
    """
    order = np.arange(1, max(harmonics, int(period / (2 * step))) + 1)
    angle = 2 * np.pi * np.outer(t / period, order)
    terms = np.hstack([np.ones((len(t), 1)), np.cos(angle), np.sin(angle)])
    degrees = len(t) - terms.shape[1]
    if degrees <= 0:
        return 1.0
    residuals = y - terms @ np.linalg.lstsq(terms, y, rcond=None)[0]
    return float((residuals**2).sum() / ((y - y.mean()) ** 2).sum()) * (len(y) - 1) / degrees


def _beside_pattern(t: F64, y: F64, period: float, step: float) -> float:
    """Return the share of variance around the mean of each phase bin, corrected for the number of bins."""
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
