"""Plan of a capture: how many steps it skips, times and profiles, in long and in short loops."""

from __future__ import annotations

from dataclasses import dataclass, replace

MIN_TIMED = 20  # Fewer timed steps may use only batches that were prefetched before.
MAX_TIMED = 5000  # More timed steps do not make the mean more precise.
# After the profile, this share of the timed steps is timed again, to see whether the profiler still slows the loop.
AFTER_SHARE = 0.2
MIN_STEPS = 5  # A step time needs at least this many steps. With fewer steps, one slow step decides the result.


@dataclass(frozen=True)
class Plan:
    """Phases of a capture: skip, time and profile.

    First ``skip`` steps are skipped. Then the loop is timed for ``seconds``. Then ``warmup`` and ``active`` steps run under the profiler.
    ``latest_start`` is the last step at which a profile may begin that still fits into the loop. It is None if the loop's length is unknown.
    """

    skip: int
    seconds: float
    warmup: int
    active: int
    latest_start: int | None = None

    @property
    def min_steps(self) -> int:
        """The number of steps that a loop of unknown length needs for a profile."""
        return self.skip + MIN_TIMED + self.warmup + self.active

    def for_loop(self, steps: int | None) -> Plan:
        """Return the plan for a loop of ``steps`` steps (None: unknown). A short loop has shorter phases."""
        if not steps or steps <= 0:
            return self
        plan = self
        if steps < self.min_steps + MIN_STEPS:
            warmup, active = max(min(self.warmup, steps // 8), 1), max(min(self.active, steps // 4), 1)
            plan = replace(self, skip=min(self.skip, steps // 5), warmup=warmup, active=active)
        return replace(plan, latest_start=max(steps - plan.warmup - plan.active - min(MIN_STEPS, steps // 8), 1))

    def ends_timing(self, timed_steps: int, seconds: float, step: int) -> bool:
        """Return whether timing ends after step ``step``, with ``timed_steps`` steps timed in ``seconds``."""
        is_precise = timed_steps >= MAX_TIMED or (timed_steps >= MIN_TIMED and seconds >= self.seconds)
        return is_precise or (self.latest_start is not None and step >= self.latest_start)

    def steps_after(self, timed_steps: int) -> int:
        """Return the number of steps to time after the profile, if ``timed_steps`` were timed before."""
        return max(MIN_STEPS, int(AFTER_SHARE * timed_steps))

    def sentence(self) -> str:
        """Return the plan as a clause for the user."""
        when = f" (at step {self.latest_start} at the latest)" if self.latest_start is not None else ""
        return f"after {self.skip} steps the loop is timed for {self.seconds:g} s, then {self.active} steps are profiled{when}"
