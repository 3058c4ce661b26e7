"""Plan of a capture: which steps it skips, times and profiles, in long and in short loops."""

from __future__ import annotations

from dataclasses import dataclass, replace

MIN_TIMED = 20  # steps; fewer may contain no checkpoint, and may run from a full prefetch queue
MAX_TIMED = 5000  # steps, however short they are
AFTER_SHARE = (
    0.2  # share of the timed steps that are timed again after the profile, to see whether the profiler still slows the loop
)
LEAST = 5  # steps that a stopwatch needs; in fewer, one slow step decides the result


@dataclass(frozen=True)
class Plan:
    """Numbers of steps to skip and to profile, and the seconds to time.

    First ``skip`` steps are left out. Then the loop is timed for ``seconds``. Then ``warmup`` and ``active`` steps run under the profiler.
    ``latest`` is the last step at which the profile may begin and still fit into the loop. It is None if the loop's length is unknown.
    """

    skip: int
    seconds: float
    warmup: int
    active: int
    latest: int | None = None

    @property
    def least(self) -> int:
        """Steps of a loop of unknown length that are needed for a profile."""
        return self.skip + MIN_TIMED + self.warmup + self.active

    def within(self, steps: int | None) -> Plan:
        """Return the plan for a loop of ``steps``; a short loop gets fewer steps of each kind."""
        if not steps or steps <= 0:
            return self
        plan = self
        if steps < self.least + LEAST:
            warmup, active = max(min(self.warmup, steps // 8), 1), max(min(self.active, steps // 4), 1)
            plan = replace(self, skip=min(self.skip, steps // 5), warmup=warmup, active=active)
        return replace(plan, latest=max(steps - plan.warmup - plan.active - min(LEAST, steps // 8), 1))

    def timed_enough(self, timed: int, seconds: float, step: int) -> bool:
        """Return whether the profile must begin: ``timed`` steps took ``seconds``, ``step`` steps are over."""
        whole = timed >= MAX_TIMED or (timed >= MIN_TIMED and seconds >= self.seconds)
        return whole or (self.latest is not None and step >= self.latest)

    def timed_again(self, timed: int) -> int:
        """Return how many steps are timed after the profile, if ``timed`` steps were timed before it."""
        return max(LEAST, int(AFTER_SHARE * timed))

    def sentence(self) -> str:
        """Return the plan as a clause for the user."""
        when = f" (at step {self.latest} at the latest)" if self.latest is not None else ""
        return f"after {self.skip} steps the loop is timed for {self.seconds:g} s, then {self.active} steps are profiled{when}"
