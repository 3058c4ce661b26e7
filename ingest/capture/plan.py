"""Plan of a capture: how many steps it skips, times and profiles, in long and in short loops."""

from __future__ import annotations

from dataclasses import dataclass, replace

MIN_TIMED = 20  # Timed steps. Fewer may use only batches that were prefetched before.
MAX_TIMED = 5000  # Timed steps. More steps, however short they are, do not make the mean more precise.
# Share of the timed steps that are timed again after the profile, to see whether the profiler still slows the loop.
AFTER_SHARE = 0.2
MIN_STEPS = 5  # Steps for a step time. With fewer, one slow step decides the result.


@dataclass(frozen=True)
class Plan:
    """Phases of a capture: skip, time and profile.

    First ``skip`` steps are skipped. Then the loop is timed for ``seconds``. Then ``warmup`` and ``active`` steps run under the profiler.
    ``latest`` is the last step at which the profile may begin and still fit into the loop. It is None if the loop's length is unknown.
    """

    skip: int
    seconds: float
    warmup: int
    active: int
    latest: int | None = None

    @property
    def least(self) -> int:
        """The number of steps that a loop of unknown length needs for a profile."""
        return self.skip + MIN_TIMED + self.warmup + self.active

    def within(self, steps: int | None) -> Plan:
        """Return the plan for a loop of ``steps`` steps; in a short loop, each phase is shorter."""
        if not steps or steps <= 0:
            return self
        plan = self
        if steps < self.least + MIN_STEPS:
            warmup, active = max(min(self.warmup, steps // 8), 1), max(min(self.active, steps // 4), 1)
            plan = replace(self, skip=min(self.skip, steps // 5), warmup=warmup, active=active)
        return replace(plan, latest=max(steps - plan.warmup - plan.active - min(MIN_STEPS, steps // 8), 1))

    def timed_enough(self, timed: int, seconds: float, step: int) -> bool:
        """Return whether to end timing, after ``timed`` steps in ``seconds`` and ``step`` steps in all."""
        whole = timed >= MAX_TIMED or (timed >= MIN_TIMED and seconds >= self.seconds)
        return whole or (self.latest is not None and step >= self.latest)

    def timed_again(self, timed: int) -> int:
        """Return how many steps are timed after the profile, if ``timed`` steps were timed before it."""
        return max(MIN_STEPS, int(AFTER_SHARE * timed))

    def sentence(self) -> str:
        """Return the plan as a clause for the user."""
        when = f" (at step {self.latest} at the latest)" if self.latest is not None else ""
        return f"after {self.skip} steps the loop is timed for {self.seconds:g} s, then {self.active} steps are profiled{when}"
