"""Whether a loop goes in rounds: something long, and then as many steps as each time, over and over.

So reinforcement learning does: it plays (a rollout), and then updates its model a few times. Only the times between steps are looked at: a loader of W
workers, whose every W-th batch is waited for, and a host that waits for its GPU every tenth step look the same. Standard library only: it is part of the recorder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

MOST_STEPS = 64  # of a round: what comes less often is seldom, and none of every few steps
LEAST_ROUNDS = 3  # that begin: two are as far apart by chance
MUCH_LONGER = 2.0  # times a usual step, from where one may begin a round
LEAST_SHARE = 0.25  # of a round, that what comes before its steps takes
REGULAR = 0.8  # of the steps belong to whole rounds


class Rhythm(NamedTuple):
    """Rounds of ``steps`` steps; a step that takes longer than ``over`` is the first of one, with what comes before it."""

    steps: int
    over: float


def rhythm_of(times: Sequence[float], least_rounds: int = LEAST_ROUNDS) -> Rhythm | None:
    """Return the rounds of a loop whose consecutive steps took ``times``; None where it goes in none, or fewer than ``least_rounds`` began."""
    if len(times) <= least_rounds:
        return None
    over, most = MUCH_LONGER * sorted(times)[len(times) // 4], max(times)
    while (
        0 < over < most
    ):  # jitter, or an update that takes longer, lies below some threshold, and the rounds' beginnings above it
        steps = _apart([index for index, took in enumerate(times) if took > over], len(times), least_rounds)
        if steps:
            usual, long = (median(took for took in times if (took > over) == begins) for begins in (False, True))
            if long - usual >= LEAST_SHARE * (long + (steps - 1) * usual):
                return Rhythm(steps, over)
        over *= MUCH_LONGER
    return None


def _apart(begins: Sequence[int], count: int, least_rounds: int) -> int:
    """Return how many steps lie between most of ``begins``, where these rounds hold most of ``count`` steps; else 0."""
    if len(begins) < least_rounds:
        return 0
    steps, times = Counter(b - a for a, b in pairwise(begins)).most_common(1)[0]
    whole = 2 <= steps <= MOST_STEPS and steps * times >= REGULAR * (count - 2 * steps)  # one may be cut at either end
    return steps if whole and times >= least_rounds - 1 else 0
