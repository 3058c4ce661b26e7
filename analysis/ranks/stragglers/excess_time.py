"""One rank's excess of own time over its peers, with its reason and the edits that remove it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.ranks.stragglers.excess import PERSISTENT_SHARE
from sawtooth.analysis.ranks.stragglers.marked_stalls import MarkedStalls, marked_stalls
from sawtooth.analysis.ranks.stragglers.own_time import COPIES, HOST_ERROR, OF_GPU, UNRECORDED, WORK, OwnTime, OwnTimePart
from sawtooth.analysis.ranks.stragglers.reasons import Reason, reason_of_work, shares_work
from sawtooth.analysis.replay.edits import Edit

BLOCKING_COPY = "blocking_copy"  # The cause of copies that block the host.


@dataclass(frozen=True)
class ExcessTime:
    """One rank's excess over its peers; ``excess`` is in mean ns per step, by part."""

    position: int
    excess: Mapping[OwnTimePart, float]
    own: OwnTime
    peers: tuple[OwnTime, ...]
    shared_work_ms: float = 0.0  # The part of the excess kernel work that remains if all peers share it.
    # By part: the number of profiled steps with a stall, if the rank's step marks show such stalls outside the profile.
    stalls: Mapping[OwnTimePart, int] = field(default_factory=dict)

    @property
    def own_ms(self) -> float:
        """The excess per step."""
        return sum(self.excess.values()) / 1e6

    @property
    def times(self) -> float:
        """The rank's loss per step in the whole run ÷ its loss per profiled step.

        The two differ if stalls are more or less frequent in the few profiled steps.
        """
        return sum(ns * self._times(part) for part, ns in self.excess.items()) / 1e6 / self.own_ms if self.own_ms else 1.0

    @property
    def marked_ms(self) -> float:
        """The loss by stalls per profiled step, from the rank's step marks; 0 if the marks do not show them."""
        count = max(len(self.own.steps), 1)
        return sum(min(self.excess[p], self._marked(p).excess_ns * n / count) for p, n in self.stalls.items()) / 1e6

    @property
    def stall_share(self) -> float | None:
        """The share of the run's steps with a stall; None if the largest part of the excess is not stalls."""
        part = max(self.excess, key=lambda p: self.excess[p], default=None)
        return self._marked(part).share if part is not None and part in self.stalls else None

    def _marked(self, part: OwnTimePart) -> MarkedStalls:
        return marked_stalls(self.own.marked_ms, self.excess[part] * len(self.own.steps) / self.stalls[part])

    def _times(self, part: OwnTimePart) -> float:
        return self._marked(part).share * len(self.own.steps) / self.stalls[part] if part in self.stalls else 1.0

    @property
    def in_most_steps(self) -> bool:
        """Whether the largest part of the excess is long in more than half of the steps."""
        part = max(self.excess, key=lambda p: self.excess[p])
        return bool((part.ns >= part.ns.mean() / 2).mean() > PERSISTENT_SHARE)

    @property
    def within_host_error(self) -> bool:
        """Whether the largest part may be a host that the profiler slows more than others.

        Such a host is late in most steps, because its launches are slower or its pauses longer. Its step marks show no stalls.
        """
        part = max(self.excess, key=lambda p: self.excess[p])
        if part.cause in OF_GPU or not CAUSE_OF[part.cause].slowed or not self.in_most_steps or part in self.stalls:
            return False
        return part.cause != UNRECORDED or self.excess[part] <= HOST_ERROR * self.own.long_gaps_ns.get(part.cause, 0.0)

    @property
    def shared_ms(self) -> float:
        """The excess kernel work that the peers can share, in ms per step."""
        work_ms = sum(ns for part, ns in self.excess.items() if part.cause == WORK) / 1e6
        return work_ms if work_ms and self.reason == WORK and shares_work(self.own, self.peers) else 0.0

    def edits(self) -> list[Edit]:
        """Return the edits that remove the excess, except for shared work."""
        shared_work_ns = {WORK: self.shared_work_ms * 1e6}
        return [
            edit
            for part, ns in self.excess.items()
            for edit in self.own.edits_of(part, 1 - (ns - shared_work_ns.get(part.cause, 0.0)) / float(part.ns.mean()))
        ]

    @cached_property
    def _reason(self) -> Reason:
        part = max(self.excess, key=lambda p: self.excess[p])
        if part.cause == COPIES:
            return BLOCKING_COPY if self.own.copies is not None and self.own.copies.block else COPIES, None
        if part.cause != WORK:
            return part.cause, None
        return reason_of_work(self.own, self.peers, float(part.ns.mean()) / 1e6, self.excess[part] / 1e6)

    @property
    def reason(self) -> str | None:
        """The reason, as described in ``Straggler``."""
        return self._reason[0]

    @property
    def kernel_ratio(self) -> float | None:
        """The ratio of kernel times, as described in ``Straggler``."""
        return self._reason[1]
