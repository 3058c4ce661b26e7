"""Choice of the optimizer whose steps count as the loop's steps.

Only the order of all optimizer steps is used.
If optimizers take turns, the one that steps less often leads: a GAN's generator, although its critic steps five times as often.
If they step equally often, the one that stepped first leads. An optimizer that has stopped stepping no longer leads, for example
after the first of two phases or after a search for the learning rate.
Standard library only, because the recorder imports this module.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

# An optimizer has ended if others made more steps since its last one than both SILENT and RHYTHMS times its own longest recent gap.
SILENT = 20
RHYTHMS = 4
RECENT = 4  # Number of recent gaps. The longest counts, so the order of the optimizers within a step does not matter.


@dataclass
class _StepOrder:
    last: int  # number of its last step, counted over all optimizers
    gap: int = 0  # longest recent distance between two of its steps, counted over all optimizers
    gaps: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT))

    def steps(self, now: int) -> None:
        self.gaps.append(now - self.last)
        self.last, self.gap = now, max(self.gaps)

    def is_silent(self, now: int) -> bool:
        return now - self.last > max(SILENT, RHYTHMS * self.gap)


class LeadingOptimizer:
    """State that finds the leading optimizer while the loop runs.

    Optimizers are numbered in the order of their first steps. ``number`` is the one that leads now. ``steps`` counts the loop's
    steps so far.
    """

    def __init__(self) -> None:
        self.number = 0
        self.steps = 0
        self._now = 0
        self._rhythms: dict[int, _StepOrder] = {}

    def takes(self, optimizer: int) -> bool:
        """Record a step of ``optimizer``; return whether it ends a step of the loop."""
        self._now += 1
        mine, before = self._rhythms.get(optimizer), 0
        if mine is not None and optimizer == self.number and mine.gap == 1 == self._now - mine.last:
            mine.last = self._now  # the fast path for the usual case: only one optimizer steps
            self.steps += 1
            return True
        if mine is None:
            mine = self._rhythms[optimizer] = _StepOrder(self._now)
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
        """Tell whether ``optimizer`` has stopped stepping (see SILENT and RHYTHMS)."""
        rhythm = self._rhythms.get(optimizer)
        return rhythm is None or rhythm.is_silent(self._now)

    def _choose(self) -> None:
        going = [optimizer for optimizer, rhythm in self._rhythms.items() if not rhythm.is_silent(self._now)]
        self.number = min(going, key=lambda optimizer: (-self._rhythms[optimizer].gap, optimizer))


def leading(marks: Iterable[tuple[int, str]]) -> int:
    """Return the optimizer that made most of the loop's steps.

    ``marks`` are pairs (optimizer, phase) in order. If any step was profiled, only profiled steps count.
    """
    loop = LeadingOptimizer()
    steps = Counter((phase == "profile", optimizer) for optimizer, phase in marks if loop.takes(optimizer))
    return max(steps, key=lambda each: (each[0], steps[each], -each[1]), default=(False, 0))[1]
