"""One rank's excess of own time over its peers, with its reason and the edits that remove it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sawtooth.analysis.ranks.stragglers.excess import PERSISTENT_SHARE
from sawtooth.analysis.ranks.stragglers.own_time import COPIES, WORK, OwnTime, OwnTimePart
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
    # If the excess is a single stall: how many such stalls the run has, on average, in as many steps as were profiled.
    times: float = 1.0
    stalls_once: bool = False  # True if the excess is a single stall in the profile that recurs outside it.

    @property
    def own_ms(self) -> float:
        """The excess per step."""
        return sum(self.excess.values()) / 1e6

    @property
    def marked_ms(self) -> float:
        """The loss by the single stall per profiled step, from the rank's step marks; else 0."""
        return min(self.own_ms, self.own.slow_ns / 1e6 / len(self.own.steps)) if self.stalls_once else 0.0

    @property
    def in_most_steps(self) -> bool:
        """Whether the largest part of the excess is long in more than half of the steps."""
        part = max(self.excess, key=lambda p: self.excess[p])
        return bool((part.ns >= part.ns.mean() / 2).mean() > PERSISTENT_SHARE)

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
        """As in ``Straggler``."""
        return self._reason[0]

    @property
    def kernel_ratio(self) -> float | None:
        """As in ``Straggler``."""
        return self._reason[1]
