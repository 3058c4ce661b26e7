"""Detection of rounds in a loop: one long phase and then a fixed number of steps, repeated.

Reinforcement learning works this way: it plays (a rollout), and then updates its model a few times.
The detection uses only the times between steps. So it also reports rounds for a loader with W workers if the loop waits for every
W-th batch, and for a host that waits for its GPU at every tenth step.
Standard library only, because the recorder imports this module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

MOST_STEPS = 64  # steps per round; a longer interval is a rare event, such as an evaluation, and not a round
LEAST_ROUNDS = 3  # rounds that must begin; with two, there is only one distance, which can be chance
MUCH_LONGER = 2.0  # A step that takes this many times a usual step may begin a round.
LEAST_SHARE = 0.25  # least share of a round's time that its long phase must take
REGULAR = 0.8  # least share of the steps that must belong to complete rounds


class LoopRounds(NamedTuple):
    """Length of a loop's rounds, and how to find their first steps.

    A round has ``steps`` steps. A step that takes longer than ``over`` is the first of a round and includes the long phase.
    """

    steps: int
    over: float


def rhythm_of(times: Sequence[float], least_rounds: int = LEAST_ROUNDS) -> LoopRounds | None:
    """Return the rounds of a loop whose consecutive steps took ``times``; None if there are none.

    Also None if fewer than ``least_rounds`` rounds began. ``Rhythm.over`` has the unit of ``times``.
    """
    if len(times) <= least_rounds:
        return None
    over, most = MUCH_LONGER * sorted(times)[len(times) // 4], max(times)
    while (
        0 < over < most
    ):  # Raise the threshold until jitter and slower updates lie below it and the first steps of rounds above it.
        steps = _apart([index for index, took in enumerate(times) if took > over], len(times), least_rounds)
        if steps:
            usual, long = (median(took for took in times if (took > over) == begins) for begins in (False, True))
            if long - usual >= LEAST_SHARE * (long + (steps - 1) * usual):
                return LoopRounds(steps, over)
        over *= MUCH_LONGER
    return None


def _apart(begins: Sequence[int], count: int, least_rounds: int) -> int:
    """Return the most common distance between ``begins`` if such rounds cover most steps; else 0."""
    if len(begins) < least_rounds:
        return 0
    steps, times = Counter(b - a for a, b in pairwise(begins)).most_common(1)[0]
    whole = 2 <= steps <= MOST_STEPS and steps * times >= REGULAR * (
        count - 2 * steps
    )  # Recording may cut a round at each end.
    return steps if whole and times >= least_rounds - 1 else 0
