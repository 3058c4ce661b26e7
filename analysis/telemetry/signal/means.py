"""Means of one signal over the training part, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sawtooth.analysis.quantiles import CONFIDENCE, student_t
from sawtooth.analysis.telemetry.signal.steady import F64, I64, SteadyPart, recorded_samples, weights_ns

MEAN_PARTS = 8  # Parts whose means give the interval of the overall mean.
MIN_COUNTED_S = 20.0  # A counter that is read every 5 s has too few steps in less time.


@dataclass(frozen=True)
class Mean:
    """A time-weighted mean over the training part with its 90 % interval, samples and seconds."""

    value: float
    low: float
    high: float
    samples: int
    seconds: float


def mean_over(time_ns: I64, value: F64, part: SteadyPart) -> Mean | None:
    """Return the mean of ``value`` over the training part with its interval; None if there are none.

    The interval follows from the scatter of MEAN_PARTS equal parts (or of full periods). It also contains the mean that includes
    doubtful parts.
    """
    times, values = recorded_samples(time_ns, value)
    keep = part.mask(times)
    if not keep.any():
        return None
    weight = weights_ns(times)
    middle = float(np.average(values[keep], weights=weight[keep]))
    inner, level, weights = times[keep], values[keep], weight[keep].astype(np.float64)
    if len(part.periods) > 2:
        period_of = np.searchsorted(np.array(part.periods[1:-1]), inner, side="left")
    else:
        period_of = np.minimum(np.cumsum(weights) / weights.sum() * MEAN_PARTS, MEAN_PARTS - 1).astype(np.int64)
    sums, total = np.bincount(period_of, level * weights), np.bincount(period_of, weights)
    batch, share = sums[total > 0] / total[total > 0], total[total > 0] / weights.sum()
    half = middle
    if len(batch) > 1:
        scatter = float((share**2 * (batch - middle) ** 2).sum()) * len(batch) / (len(batch) - 1)
        half = student_t(len(batch) - 1, (1 + CONFIDENCE) / 2) * scatter**0.5
    with_doubt = part.mask(times, doubtful=True)
    mean_with_doubt = float(np.average(values[with_doubt], weights=weight[with_doubt]))
    low, high = min(middle, mean_with_doubt) - half, max(middle, mean_with_doubt) + half
    return Mean(middle, max(low, 0.0), min(high, 100.0), int(keep.sum()), float(weights.sum()) / 1e9)


def counter_rises(values: F64) -> F64:
    """Return by how much a counter rises at each value, without the first.

    A counter that falls was reset and counts from 0. A single value below both neighbours is a wrong reading.
    """
    fell = np.zeros(len(values), bool)
    fell[1:-1] = (values[1:-1] < values[:-2]) & (values[2:] >= values[:-2])
    right = values[~fell]
    steps = np.diff(right)
    rises = np.zeros(len(values))
    rises[np.flatnonzero(~fell)[1:]] = np.where(steps >= 0, steps, right[1:])
    return rises[1:]


def counter_rate(time_ns: I64, counter: F64, part: SteadyPart, exclude: Sequence[tuple[int, int]] = ()) -> float | None:
    """Return the rise per second of a counter over the steady part; None if the time is too short.

    Steps that begin or end outside the part, or in the intervals of ``exclude``, do not count. A counter that falls was reset or
    wrapped, so its step is not known.
    """
    times, values = recorded_samples(time_ns, counter)
    inside = part.mask(times)
    for start, end in exclude:
        inside &= (times <= start) | (times >= end)
    steps, seconds = np.diff(values), np.diff(times) / 1e9
    counts = inside[1:] & inside[:-1] & (steps >= 0)
    total = float(seconds[counts].sum())
    return float(steps[counts].sum()) / total if total >= MIN_COUNTED_S else None


def weighted_mean(time_ns: I64, value: F64, part: SteadyPart, exclude: Sequence[tuple[int, int]] = ()) -> float | None:
    """Return the mean over the steady part, weighted by the time since the previous sample.

    None if there are none. Telemetry gaps and the intervals of ``exclude`` (a profile's window) have no weight, so a sample after
    a gap has the weight of one period.
    """
    finite = np.isfinite(value)
    times, values = time_ns[finite], value[finite]
    times, first = np.unique(times, return_index=True)
    values = values[first]
    if len(times) == 0:
        return None
    weight = weights_ns(times)
    keep = part.mask(times)
    for start, end in exclude:
        keep &= (times <= start) | (times - weight >= end)
    total = float(weight[keep].sum())
    return float((values[keep] * weight[keep]).sum() / total) if total > 0 else None
