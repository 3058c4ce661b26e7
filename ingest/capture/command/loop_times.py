"""Which loop of a training is to be profiled, and when it is steady, by the times of its steps. Standard library only."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

LEAST_STEPS = 20  # before the profile: in most loops the loader's first queue and cuDNN's searches are over by then
STEADY_WITHIN = 0.10  # the last ten steps and the ten before differ by less in the median: warm-up is over
PATIENCE_S = 60.0  # a loop that never is steady is profiled all the same


class LoopTimes:
    """The steps of one loop so far: how many, since when, and the times of the last."""

    def __init__(self) -> None:
        self.count = 0
        self._first_ns = 0
        self._recent_ns: deque[int] = deque(maxlen=LEAST_STEPS + 1)

    def takes(self, now_ns: int) -> None:
        """Note a step that ended at ``now_ns``."""
        if not self.count:
            self._first_ns = now_ns
        self.count += 1
        self._recent_ns.append(now_ns)

    @property
    def seconds(self) -> float:
        """From the first step's end to the last's."""
        return (self._recent_ns[-1] - self._first_ns) / 1e9 if self.count else 0.0

    def is_steady(self, least_s: float) -> bool:
        """Tell whether the loop has run ``least_s`` seconds, and its steps take as long as they did, or never will."""
        if self.count <= LEAST_STEPS or self.seconds < least_s:
            return False
        times, half = list(self._recent_ns), LEAST_STEPS // 2
        late, early = _median_gap(times[half:]), _median_gap(times[: half + 1])
        return abs(late - early) <= STEADY_WITHIN * early or self.seconds >= PATIENCE_S


class LoopWatch:
    """Times the loop that is to be profiled: the first that is steady; after its profile, one of other places that has gone on for longer than all before.

    A place is an optimizer's number and its call site's: a warm-up or a pre-training ends, and the loop that most of the time goes to is another one.
    """

    def __init__(self) -> None:
        self._times = LoopTimes()
        self._leader: int | None = None
        self._places: set[tuple[int, int]] = set()
        self._profiled: frozenset[tuple[int, int]] = frozenset()
        self._first_ns: int | None = None
        self._passed_ns: int | None = None  # until then the places that were profiled, or passed before, have gone on

    def takes(self, place: tuple[int, int], now_ns: int) -> bool:
        """Note a step of the loop at ``place``, which ended at ``now_ns``; return whether that loop is still to be profiled."""
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
        """Tell whether the loop stepped there before."""
        return place in self._places

    def is_steady(self, least_s: float) -> bool:
        """Tell whether a loop that is to be profiled has run ``least_s`` seconds and is steady."""
        if self._leader is None:
            return False
        passed_ns = 0 if self._passed_ns is None or self._first_ns is None else self._passed_ns - self._first_ns
        return self._times.is_steady(max(least_s, passed_ns / 1e9))

    def profiled(self, now_ns: int) -> None:
        """Note that a profile was taken of the loop as it is now, whose last step ended at ``now_ns``."""
        self._profiled = frozenset(self._places)
        self._leader, self._passed_ns = None, now_ns

    def begins_anew(self) -> None:
        """Forget the times so far: what they were of has ended."""
        self._leader = None


def _median_gap(times_ns: list[int]) -> float:
    gaps = sorted(b - a for a, b in pairwise(times_ns))
    return float(gaps[len(gaps) // 2])
