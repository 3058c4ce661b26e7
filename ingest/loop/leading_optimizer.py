"""Choice of the optimizer whose steps count as the loop's steps.

Only the order of all optimizer steps is used.
If optimizers take turns, the optimizer that steps less often leads. For example, a GAN's generator leads although its critic steps
five times as often. If the optimizers step equally often, the optimizer that stepped first leads. An optimizer that has stopped stepping
no longer leads, for example after the first of two phases or after a search for the learning rate.
Standard library only, because the recorder imports this module.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

# An optimizer has ended if the others have made many steps since its last step: more than SILENT_STEPS, and more than
# SILENT_GAPS times the optimizer's longest recent gap.
SILENT_STEPS = 20
SILENT_GAPS = 4
RECENT_GAPS = 4  # The longest of this many recent gaps counts, so the order of the optimizers within a step does not matter.


@dataclass
class _StepOrder:
    """The times of one optimizer's steps, counted in steps of all optimizers."""

    last: int  # The number of the optimizer's last step.
    gap: int = 0  # The longest recent distance between two steps of the optimizer.
    gaps: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT_GAPS))

    def steps(self, now: int) -> None:
        self.gaps.append(now - self.last)
        self.last, self.gap = now, max(self.gaps)

    def is_silent(self, now: int) -> bool:
        return now - self.last > max(SILENT_STEPS, SILENT_GAPS * self.gap)


class LeadingOptimizer:
    """State that finds the leading optimizer while the loop runs.

    Optimizers are numbered in the order of their first steps. ``number`` is the optimizer that leads now. ``steps`` counts the loop's
    steps so far.
    """

    def __init__(self) -> None:
        self.number = 0
        self.steps = 0
        self._now = 0
        self._orders: dict[int, _StepOrder] = {}

    def note_step(self, optimizer: int) -> bool:
        """Record a step of ``optimizer``; return whether it ends a step of the loop."""
        self._now += 1
        order, previous_gap = self._orders.get(optimizer), 0
        if order is not None and optimizer == self.number and order.gap == 1 == self._now - order.last:
            order.last = self._now  # This is the fast path for the usual case of one optimizer.
            self.steps += 1
            return True
        if order is None:
            order = self._orders[optimizer] = _StepOrder(self._now)
        else:
            previous_gap = order.gap
            order.steps(self._now)
        if optimizer == self.number:
            if order.gap < previous_gap:
                self._choose()
        elif self.has_ended(self.number):
            self._choose()
        elif (-order.gap, optimizer) < (-self._orders[self.number].gap, self.number):
            self.number = optimizer
        leads = optimizer == self.number
        self.steps += leads
        return leads

    def has_ended(self, optimizer: int) -> bool:
        """Return whether ``optimizer`` has stopped stepping (see SILENT_STEPS and SILENT_GAPS)."""
        order = self._orders.get(optimizer)
        return order is None or order.is_silent(self._now)

    def _choose(self) -> None:
        active = [optimizer for optimizer, order in self._orders.items() if not order.is_silent(self._now)]
        self.number = min(active, key=lambda optimizer: (-self._orders[optimizer].gap, optimizer))


def most_frequent_leader(marks: Iterable[tuple[int, str]]) -> int:
    """Return the optimizer that made most of the loop's steps.

    ``marks`` are pairs (optimizer, phase) in order. If any step was profiled, only profiled steps count.
    """
    loop = LeadingOptimizer()
    counts = Counter((phase == "profile", optimizer) for optimizer, phase in marks if loop.note_step(optimizer))
    return max(counts, key=lambda key: (key[0], counts[key], -key[1]), default=(False, 0))[1]
