"""Detection of rounds in a loop: one long phase and then a fixed number of steps, repeated.

For example, reinforcement learning collects a rollout and then updates its model a few times.
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

MAX_STEPS = 64  # A round has at most this many steps. A longer interval is a rare event, such as an evaluation.
MIN_ROUNDS = 3  # At least this many rounds must begin. Two rounds have only one distance, which can be chance.
LONG_STEP_RATIO = 2.0  # A step that takes more than this many times the first quartile of step times may begin a round.
MIN_LONG_SHARE = 0.25  # The long phase takes at least this share of a round's time.
MIN_REGULAR_SHARE = 0.8  # At least this share of the steps belongs to complete rounds.


class LoopRounds(NamedTuple):
    """Length of a loop's rounds, and how to find their first steps.

    A round has ``steps`` steps. A step that takes longer than ``over`` is the first of a round and includes the long phase.
    """

    steps: int
    over: float


def find_rounds(times: Sequence[float], min_rounds: int = MIN_ROUNDS) -> LoopRounds | None:
    """Return the rounds of a loop from its consecutive step ``times``; None without ``min_rounds`` rounds.

    ``LoopRounds.over`` has the unit of ``times``.
    """
    if len(times) <= min_rounds:
        return None
    over, longest = LONG_STEP_RATIO * sorted(times)[len(times) // 4], max(times)
    # Raise the threshold until jitter and slower updates lie below it and the first steps of rounds above it.
    while 0 < over < longest:
        steps = _steps_per_round([index for index, time in enumerate(times) if time > over], len(times), min_rounds)
        if steps:
            short = median(time for time in times if time <= over)
            long = median(time for time in times if time > over)
            if long - short >= MIN_LONG_SHARE * (long + (steps - 1) * short):
                return LoopRounds(steps, over)
        over *= LONG_STEP_RATIO
    return None


def _steps_per_round(starts: Sequence[int], count: int, min_rounds: int) -> int:
    """Return the most common distance of ``starts`` if rounds of this length cover most steps; else 0."""
    if len(starts) < min_rounds:
        return 0
    steps, rounds = Counter(end - start for start, end in pairwise(starts)).most_common(1)[0]
    complete_steps = count - 2 * steps  # Recording may cut a round at each end.
    is_regular = 2 <= steps <= MAX_STEPS and steps * rounds >= MIN_REGULAR_SHARE * complete_steps
    return steps if is_regular and rounds >= min_rounds - 1 else 0
