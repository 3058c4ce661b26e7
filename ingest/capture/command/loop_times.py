"""Choice of the loop to profile, and detection of its steady state, from step times.

Standard library only.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import NamedTuple

from ...loop.rounds import MAX_STEPS, MIN_ROUNDS, rounds_of

# Steps before the profile. In most loops, the loader's first batches are used up by then, and cuDNN has chosen its algorithms.
MIN_STEPS_BEFORE_PROFILE = 20
# A loop is steady if the median step time of its last ten steps differs by at most this share from that of the ten before.
MAX_STEADY_CHANGE = 0.10
MAX_UNSTEADY_S = 60.0  # After this time, a loop is profiled even if it is not steady.
# A longer round is profiled only if it has no more steps than requested. Otherwise its trace would be too large, because a loop that
# launches kernels all the time makes hundreds of thousands of events in this time.
MAX_ROUND_S = 3.0
# Two rounds are profiled if they take no longer than this together. If a single round takes longer, the profile waits for a third round.
MAX_SHORT_ROUND_S = 1.0


class Extent(NamedTuple):
    """Number of steps to profile, and number of steps in a round (1 if the loop has no rounds)."""

    steps: int
    round: int = 1


class LoopTimes:
    """The steps of one loop so far: their number, the time of the first, and the times of the most recent."""

    def __init__(self) -> None:
        self.count = 0
        self._first_ns = 0
        self._recent_ns: deque[int] = deque(maxlen=MIN_ROUNDS * MAX_STEPS + 1)

    def takes(self, now_ns: int) -> None:
        """Note a step that ended at ``now_ns``."""
        if not self.count:
            self._first_ns = now_ns
        self.count += 1
        self._recent_ns.append(now_ns)

    @property
    def seconds(self) -> float:
        """The time from the end of the first step to the end of the last one, in s."""
        return (self._recent_ns[-1] - self._first_ns) / 1e9 if self.count else 0.0

    @property
    def step_ns(self) -> float:
        """The median time of the last MIN_STEPS_BEFORE_PROFILE steps, in ns."""
        return _median_gap(list(self._recent_ns)[-MIN_STEPS_BEFORE_PROFILE - 1 :])

    def is_steady(self, least_s: float) -> bool:
        """Return whether the loop has run ``least_s`` seconds and is steady, or MAX_UNSTEADY_S has passed."""
        if self.count <= MIN_STEPS_BEFORE_PROFILE or self.seconds < least_s:
            return False
        times, half = list(self._recent_ns)[-MIN_STEPS_BEFORE_PROFILE - 1 :], MIN_STEPS_BEFORE_PROFILE // 2
        late, early = _median_gap(times[half:]), _median_gap(times[: half + 1])
        return abs(late - early) <= MAX_STEADY_CHANGE * early or self.seconds >= MAX_UNSTEADY_S

    def extent(self, least: int) -> Extent | None:
        """Return the extent of a profile that begins now and has at least ``least`` steps.

        If the loop has rounds that are short enough, the extent is a number of whole rounds. The result is None within a round, because
        a profile must begin at a round's start. It is also None after only two rounds longer than MAX_SHORT_ROUND_S, because a third
        round must confirm the rhythm.
        """
        times = list(self._recent_ns)
        durations = [b - a for a, b in pairwise(times)]
        rhythm = rounds_of(durations, MIN_ROUNDS - 1)
        if rhythm is None:
            return Extent(least)
        begins = [index for index, ns in enumerate(durations) if ns > rhythm.over]
        seconds = (times[begins[-1] + 1] - times[begins[-2] + 1]) / 1e9
        few, long = len(begins) < MIN_ROUNDS, seconds > MAX_ROUND_S and least < rhythm.steps
        if long or (few and seconds <= MAX_SHORT_ROUND_S):
            return Extent(least)
        if few or begins[-1] != len(durations) - 1:
            return None
        rounds = max(-(-least // rhythm.steps), 2 if 2 * seconds <= MAX_SHORT_ROUND_S else 1)
        return Extent(rounds * rhythm.steps, rhythm.steps)


class LoopWatch:
    """Times of the loop to profile: the first steady loop, and afterwards a longer loop at other places.

    A place is an optimizer's number and the number of its call site. A later loop is profiled if it runs longer than everything before
    it, because the first loop may have been a warm-up or a pre-training.
    """

    def __init__(self) -> None:
        self._times = LoopTimes()
        self._leader: int | None = None
        self._places: set[tuple[int, int]] = set()
        self._profiled: frozenset[tuple[int, int]] = frozenset()
        self._first_ns: int | None = None
        self._passed_ns: int | None = None  # the time of the last step at a place that was profiled before

    def takes(self, place: tuple[int, int], now_ns: int) -> bool:
        """Note a step at ``place`` that ended at ``now_ns``; return whether its loop needs a profile."""
        if place in self._profiled:
            self._leader, self._passed_ns = None, now_ns
            return False
        self._places.add(place)
        if self._first_ns is None:
            self._first_ns = now_ns
        if place[0] != self._leader:
            self._leader, self._times = place[0], LoopTimes()
        self._times.takes(now_ns)
        return True

    def knows(self, place: tuple[int, int]) -> bool:
        """Return whether the loop stepped at ``place`` before."""
        return place in self._places

    def is_steady(self, least_s: float) -> bool:
        """Return whether the loop to profile has run ``least_s`` seconds and is steady."""
        if self._leader is None:
            return False
        earlier_ns = 0 if self._passed_ns is None or self._first_ns is None else self._passed_ns - self._first_ns
        return self._times.is_steady(max(least_s, earlier_ns / 1e9))

    def extent(self, least: int) -> Extent | None:
        """Return the extent of a profile that begins now; None if it must begin later."""
        return self._times.extent(least)

    @property
    def step_ns(self) -> float:
        """The median time of the last MIN_STEPS_BEFORE_PROFILE steps, in ns."""
        return self._times.step_ns

    def profiled(self, now_ns: int) -> None:
        """Note that the current loop was profiled; its last step ended at ``now_ns``."""
        self._profiled = frozenset(self._places)
        self._leader, self._passed_ns = None, now_ns

    def forget_times(self) -> None:
        """Forget the times so far, because their loop has ended."""
        self._leader = None


def _median_gap(times_ns: list[int]) -> float:
    gaps = sorted(b - a for a, b in pairwise(times_ns))
    return float(gaps[len(gaps) // 2])
