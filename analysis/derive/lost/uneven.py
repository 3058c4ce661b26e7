"""Waits that are short in most steps and long in a few steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MIN_STEPS = 3  # With fewer counted steps, no step is typical.
SLOW_FROM = 2.0  # Times the median wait of all steps. A step with a longer wait is slow.
# Share of a cause's total time. The mean describes every step if the slow steps' waits above the median are less than this share.
MIN_SHARE = 0.5


@dataclass(frozen=True)
class UnevenWait:
    """The slow steps among the counted steps, and the mean profiled wait (ms) of slow and other steps."""

    slow: int
    steps: int
    slow_ms: float
    other_ms: float

    @property
    def mean_ms(self) -> float:
        """The mean wait of all counted steps, ms."""
        return (self.slow * self.slow_ms + (self.steps - self.slow) * self.other_ms) / self.steps


def uneven_waits(pieces: Iterable[tuple[str, float]], counted: int) -> dict[str, UnevenWait]:
    """Return the uneven waits by cause.

    ``pieces`` has one pair of cause and ms per step that has the wait. ``counted`` is the number of counted steps.
    """
    if counted < MIN_STEPS:
        return {}
    by_cause: dict[str, list[float]] = {}
    for cause, ms in pieces:
        by_cause.setdefault(cause, []).append(ms)
    waits = {cause: _uneven(np.array(ms + [0.0] * (counted - len(ms)))) for cause, ms in by_cause.items()}
    return {cause: wait for cause, wait in waits.items() if wait is not None}


def _uneven(ms: NDArray[np.float64]) -> UnevenWait | None:
    median_ms = float(np.median(ms))
    is_slow = ms > SLOW_FROM * median_ms
    slow_count = int(is_slow.sum())
    if not slow_count or 2 * slow_count >= len(ms) or float((ms[is_slow] - median_ms).sum()) < MIN_SHARE * float(ms.sum()):
        return None
    return UnevenWait(slow_count, len(ms), float(ms[is_slow].mean()), float(ms[~is_slow].mean()))
