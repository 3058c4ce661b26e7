"""How often a rank stalls in a run, by its step marks outside the profile."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

# Number of stalls that the step marks predict for the profiled steps. If they predict fewer, a profiled stall is chance.
MIN_EXPECTED_STALLS = 0.5
# Largest ratio between a stall in the profile and the longer steps outside it. Profiled host work takes up to twice as long.
MAX_STALL_RATIO = 2.0
MIN_STALL_PART = 0.5  # Share of a stall. A step has a stall if it is longer than usual by at least this share.
MAX_ITERATIONS = 4  # Rounds of the search for usual steps. Later rounds do not change the result.
USUAL_QUANTILE = 0.25  # At least this share of the steps has no stall.
ONE_IN_ERROR = 0.08  # Relative error up to which a share is called "1 of n steps".
MAX_STEPS_NAMED = 8  # Steps in a fraction such as "2 of 7 steps".


class MarkedStalls(NamedTuple):
    """The share of the steps that have a stall, and how much longer than usual these steps are, in ns."""

    share: float
    excess_ns: float

    def occur_as(self, stall_ns: float, steps: int) -> bool:
        """Return whether the stalls last about ``stall_ns`` and are likely in a profile of ``steps``."""
        as_long = stall_ns / MAX_STALL_RATIO <= self.excess_ns <= stall_ns * MAX_STALL_RATIO
        return as_long and self.share * steps >= MIN_EXPECTED_STALLS


def marked_stalls(steps_ms: Sequence[float], stall_ns: float) -> MarkedStalls:
    """Return the stalls in marked steps, or in evenly spaced quantiles of their times.

    A stall is about ``stall_ns`` long. Usual steps are those without a stall.
    """
    ns = 1e6 * np.asarray(steps_ms, np.float64)
    if not len(ns):
        return MarkedStalls(0.0, 0.0)
    usual_step_ns = float(np.quantile(ns, USUAL_QUANTILE))
    for _ in range(MAX_ITERATIONS):
        stalled = ns > usual_step_ns + MIN_STALL_PART * stall_ns
        usual_step_ns = float(np.median(ns[~stalled]))
    stalled = ns > usual_step_ns + MIN_STALL_PART * stall_ns
    return MarkedStalls(float(stalled.mean()), float(np.median(ns[stalled])) - usual_step_ns if stalled.any() else 0.0)


def share_in_words(share: float) -> str:
    """Return a share of steps for a sentence, such as "1 of 4 steps"."""
    one_in = max(round(1 / share), 1)
    if abs(1 / one_in / share - 1) <= ONE_IN_ERROR or one_in > MAX_STEPS_NAMED:
        return f"1 of {one_in} steps"
    fraction = Fraction(share).limit_denominator(MAX_STEPS_NAMED)
    return f"{fraction.numerator} of {fraction.denominator} steps"
