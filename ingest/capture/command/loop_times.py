"""Choice of the loop to profile, and detection of its steady state, from step times.

Standard library only.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from math import ceil
from typing import NamedTuple

from ...loop.rounds import MAX_STEPS, MIN_ROUNDS, find_rounds

# After so many steps, most loops have used up the loader's first batches, and cuDNN has chosen its algorithms.
MIN_STEPS_BEFORE_PROFILE = 20
# A loop is steady if the median step time of the last ten steps differs by at most this share from the median of the ten before.
MAX_STEADY_CHANGE = 0.10
MAX_UNSTEADY_S = 60.0  # After this time, a loop is profiled even if it is not steady.
# A longer round is profiled only if it has at most the requested number of steps. A loop that launches kernels all the time makes hundreds
# of thousands of events in this time, so the trace would be too large.
MAX_ROUND_S = 3.0
# Two rounds are profiled if they take at most this long together. If one round takes longer, the profile waits for a third round.
MAX_SHORT_ROUND_S = 1.0


class Extent(NamedTuple):
    """Number of steps to profile, and number of steps in a round (1 if the loop has no rounds)."""

    steps: int
    round: int = 1


class LoopTimes:
    """The steps of one loop so far: their number, and the ends of the first and the latest steps."""

    def __init__(self) -> None:
        self.count = 0
        self._first_ns = 0
        self._recent_ns: deque[int] = deque(maxlen=MIN_ROUNDS * MAX_STEPS + 1)

    def note_step(self, now_ns: int) -> None:
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

    def is_steady(self, min_s: float) -> bool:
        """Return whether the loop has run ``min_s`` seconds and is steady, or has run MAX_UNSTEADY_S."""
        if self.count <= MIN_STEPS_BEFORE_PROFILE or self.seconds < min_s:
            return False
        times, half = list(self._recent_ns)[-MIN_STEPS_BEFORE_PROFILE - 1 :], MIN_STEPS_BEFORE_PROFILE // 2
        late, early = _median_gap(times[half:]), _median_gap(times[: half + 1])
        return abs(late - early) <= MAX_STEADY_CHANGE * early or self.seconds >= MAX_UNSTEADY_S

    def extent(self, min_steps: int) -> Extent | None:
        """Return the extent of a profile that begins now and has at least ``min_steps`` steps.

        If the loop has rounds that are short enough, the extent is a number of whole rounds. The result is None within a round, because
        a profile must begin at a round's start. After only two rounds longer than MAX_SHORT_ROUND_S, the result is None too, because a
        third round must confirm the rhythm.
        """
        times = list(self._recent_ns)
        durations = [end - start for start, end in pairwise(times)]
        rhythm = find_rounds(durations, MIN_ROUNDS - 1)
        if rhythm is None:
            return Extent(min_steps)
        round_starts = [index for index, ns in enumerate(durations) if ns > rhythm.over]
        round_s = (times[round_starts[-1] + 1] - times[round_starts[-2] + 1]) / 1e9
        is_confirmed = len(round_starts) >= MIN_ROUNDS
        is_too_long = round_s > MAX_ROUND_S and min_steps < rhythm.steps
        if is_too_long or (not is_confirmed and round_s <= MAX_SHORT_ROUND_S):
            return Extent(min_steps)
        is_at_start = round_starts[-1] == len(durations) - 1
        if not is_confirmed or not is_at_start:
            return None
        min_rounds = 2 if 2 * round_s <= MAX_SHORT_ROUND_S else 1
        rounds = max(ceil(min_steps / rhythm.steps), min_rounds)
        return Extent(rounds * rhythm.steps, rhythm.steps)


class LoopWatch:
    """Times of the loop to profile: the first steady loop, and afterwards a longer loop at other places.

    A place is an optimizer's number and the number of its call site. A later loop is profiled if it runs longer than everything before,
    because the first loop may have been a warm-up or a pre-training.
    """

    def __init__(self) -> None:
        self._times = LoopTimes()
        self._leader: int | None = None
        self._places: set[tuple[int, int]] = set()
        self._profiled: frozenset[tuple[int, int]] = frozenset()
        self._first_ns: int | None = None
        self._last_profiled_ns: int | None = None  # The time of the last step at a place that was profiled before.

    def note_step(self, place: tuple[int, int], now_ns: int) -> bool:
        """Note a step at ``place`` that ended at ``now_ns``; return whether its loop needs a profile."""
        if place in self._profiled:
            self._leader, self._last_profiled_ns = None, now_ns
            return False
        self._places.add(place)
        if self._first_ns is None:
            self._first_ns = now_ns
        if place[0] != self._leader:
            self._leader, self._times = place[0], LoopTimes()
        self._times.note_step(now_ns)
        return True

    def has_place(self, place: tuple[int, int]) -> bool:
        """Return whether the loop stepped at ``place`` before."""
        return place in self._places

    def is_steady(self, min_s: float) -> bool:
        """Return whether the loop to profile has run ``min_s`` seconds and is steady."""
        if self._leader is None:
            return False
        earlier_ns = 0 if self._last_profiled_ns is None or self._first_ns is None else self._last_profiled_ns - self._first_ns
        return self._times.is_steady(max(min_s, earlier_ns / 1e9))

    def extent(self, min_steps: int) -> Extent | None:
        """Return the extent of a profile that begins now; None if the profile must begin later."""
        return self._times.extent(min_steps)

    @property
    def step_ns(self) -> float:
        """The median time of the last MIN_STEPS_BEFORE_PROFILE steps, in ns."""
        return self._times.step_ns

    def note_profile(self, now_ns: int) -> None:
        """Note that the current loop was profiled until a step that ended at ``now_ns``."""
        self._profiled = frozenset(self._places)
        self._leader, self._last_profiled_ns = None, now_ns

    def forget_times(self) -> None:
        """Forget the times so far, because the loop has ended."""
        self._leader = None


def _median_gap(times_ns: list[int]) -> float:
    gaps = sorted(end - start for start, end in pairwise(times_ns))
    return float(gaps[len(gaps) // 2])
