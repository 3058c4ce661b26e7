"""Waits that most steps hardly have, and a few steps have for long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEAST_STEPS = 3  # with fewer counted steps, none is typical
STANDS_OUT = 2.0  # times the median step's wait: a longer one is a slow step's
LEAST_SHARE = 0.5  # share of a cause's time above the median, in the slow steps: with less, the mean describes each step


@dataclass(frozen=True)
class UnevenWait:
    """How many of the counted steps have most of a wait, and its mean in these and in the others, ms.

    As profiled.
    """

    slow: int
    steps: int
    slow_ms: float
    other_ms: float

    @property
    def mean_ms(self) -> float:
        """The mean of all counted steps."""
        return (self.slow * self.slow_ms + (self.steps - self.slow) * self.other_ms) / self.steps


def uneven_waits(pieces: Iterable[tuple[str, float]], counted: int) -> dict[str, UnevenWait]:
    """Return the uneven waits by cause.

    ``pieces`` are cause and ms of each step that has the wait, ``counted`` is the number of counted steps.
    """
    if counted < LEAST_STEPS:
        return {}
    by_cause: dict[str, list[float]] = {}
    for cause, ms in pieces:
        by_cause.setdefault(cause, []).append(ms)
    waits = {cause: _uneven(np.array(ms + [0.0] * (counted - len(ms)))) for cause, ms in by_cause.items()}
    return {cause: wait for cause, wait in waits.items() if wait is not None}


def _uneven(ms: NDArray[np.float64]) -> UnevenWait | None:
    usual = float(np.median(ms))
    slow = ms > STANDS_OUT * usual
    many = int(slow.sum())
    if not many or 2 * many >= len(ms) or float((ms[slow] - usual).sum()) < LEAST_SHARE * float(ms.sum()):
        return None
    return UnevenWait(many, len(ms), float(ms[slow].mean()), float(ms[~slow].mean()))
