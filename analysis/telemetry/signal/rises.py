"""The mean period of a signal by counting its rises, with the error of that mean."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sawtooth.analysis.quantiles import CONFIDENCE, NORMAL_90, student_t
from sawtooth.analysis.telemetry.signal.rhythm import F64, MIN_CYCLES

# Samples per period from which every rise shows in at least one low and one high sample. Samples that cover all of the time show
# each burst, however short, in a sample of at least half its height.
COUNTED_FROM, COUNTED_FROM_TILES = 4.0, 2.5
HIGH_LEVEL, LOW_LEVEL = 0.5, 0.25  # Shares of the range above and below which a sample is high or low.


class CountedPeriod(NamedTuple):
    """The mean time between rises, and the half-width of its 90 % interval; both in seconds."""

    period_s: float
    error_s: float


def counted_period(
    *, times: F64, values: F64, period: float, spacing: float, low: float, high: float, tile: bool
) -> CountedPeriod | None:
    """Return the mean time between rises near ``period`` if every rise is visible, else None.

    A loader's period varies. A spectrum gives its most frequent value, but a stopwatch divides by the number of steps. Every
    time between two rises must be close to the period, because a missed rise would look like a double one. ``tile`` means that
    each sample covers all the time since the previous one.

    The error has two parts: the scatter of the times between rises, and the time of the first and the last rise, which are each
    known to one sample.
    """
    if period < (COUNTED_FROM_TILES if tile else COUNTED_FROM) * spacing or np.diff(times).max() > 3.5 * spacing:
        return None
    state = np.where(values >= low + HIGH_LEVEL * (high - low), 1, np.where(values <= low + LOW_LEVEL * (high - low), -1, 0))
    clear = np.flatnonzero(state)
    rises = times[clear[1:][(state[clear[1:]] == 1) & (state[clear[:-1]] == -1)]]
    distance = np.diff(rises)
    if len(distance) < MIN_CYCLES or distance.min() < period / 2 or distance.max() > 1.5 * period:
        return None
    if rises[-1] - rises[0] < times[-1] - times[0] - 3 * period:  # Part of the recording has no rise.
        return None
    count = len(distance)
    scatter = student_t(count - 1, (1 + CONFIDENCE) / 2) * float(distance.std(ddof=1)) / count**0.5
    ends = NORMAL_90 * spacing / 6**0.5 / count  # Both ends are uniformly distributed within one sample.
    return CountedPeriod(float(distance.mean()), float(np.hypot(scatter, ends)))
