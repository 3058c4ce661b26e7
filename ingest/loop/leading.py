"""Which optimizer makes the steps of a loop that has several, by the order of their steps alone.

Of two that take turns it is the one with the longer rhythm: a GAN's generator, where its critic steps five times as often. Of those alike it is the one
that stepped first, and one that steps no more (the first of two phases, a search for the learning rate) leads no longer. Standard library only:
it is part of the recorder.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

SILENT = 20  # steps of others: an optimizer that did not step in so many, or
RHYTHMS = 4  # times its own rhythm, has ended
RECENT = 4  # gaps between its steps: the longest is its rhythm, whatever order a step's optimizers have


@dataclass
class _Rhythm:
    last: int  # step of any optimizer
    gap: int = 0  # steps of any optimizer from one of its own to the next
    gaps: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT))

    def steps(self, now: int) -> None:
        self.gaps.append(now - self.last)
        self.last, self.gap = now, max(self.gaps)

    def is_silent(self, now: int) -> bool:
        return now - self.last > max(SILENT, RHYTHMS * self.gap)


class LeadingOptimizer:
    """Follows the optimizers of a loop, numbered in the order of their first steps. ``number`` leads now; ``steps`` are the loop's so far."""

    def __init__(self) -> None:
        self.number = 0
        self.steps = 0
        self._now = 0
        self._rhythms: dict[int, _Rhythm] = {}

    def takes(self, optimizer: int) -> bool:
        """Note a step of ``optimizer``; return whether it ends a step of the loop."""
        self._now += 1
        mine, before = self._rhythms.get(optimizer), 0
        if mine is not None and optimizer == self.number and mine.gap == 1 == self._now - mine.last:
            mine.last = self._now  # alone, as most are: quickly
            self.steps += 1
            return True
        if mine is None:
            mine = self._rhythms[optimizer] = _Rhythm(self._now)
        else:
            before = mine.gap
            mine.steps(self._now)
        if optimizer == self.number:
            if mine.gap < before:
                self._choose()
        elif self.has_ended(self.number):
            self._choose()
        elif (-mine.gap, optimizer) < (-self._rhythms[self.number].gap, self.number):
            self.number = optimizer
        leads = optimizer == self.number
        self.steps += leads
        return leads

    def has_ended(self, optimizer: int) -> bool:
        """Tell whether ``optimizer`` has not stepped for long."""
        rhythm = self._rhythms.get(optimizer)
        return rhythm is None or rhythm.is_silent(self._now)

    def _choose(self) -> None:
        going = [optimizer for optimizer, rhythm in self._rhythms.items() if not rhythm.is_silent(self._now)]
        self.number = min(going, key=lambda optimizer: (-self._rhythms[optimizer].gap, optimizer))


def leading(marks: Iterable[tuple[int, str]]) -> int:
    """Return the optimizer that made most of the loop's steps, of the profiled ones where there are any; ``marks`` are (optimizer, phase) in order."""
    loop = LeadingOptimizer()
    steps = Counter((phase == "profile", optimizer) for optimizer, phase in marks if loop.takes(optimizer))
    return max(steps, key=lambda each: (each[0], steps[each], -each[1]), default=(False, 0))[1]
