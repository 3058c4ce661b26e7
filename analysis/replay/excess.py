"""The run's step after a change, if the run's step is longer than its replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.replay.edits import Edit, WithoutCalls, WithoutOps


class MeanStep(NamedTuple):
    """A replay's mean step time and the GPU's work in it (at most the step time), in ms.

    ``dispatched_ms`` is this work including the dispatch gaps between consecutive operations.
    """

    ms: float
    work_ms: float
    dispatched_ms: float

    @property
    def waits_ms(self) -> float:
        """The GPU's waiting time in the step, ms."""
        return self.ms - self.work_ms


def stalls_ms_of(best: BestStepTime) -> float:
    """Return the time per step of rare stalls of one rank, which other changes do not shorten."""
    return best.parts.stalls_ms if best.parts is not None else 0.0


def without_stalls(best: BestStepTime) -> BestStepTime:
    """Return the step time without the rare stalls of one rank."""
    stalls_ms, reading = stalls_ms_of(best), best.reading
    value, low, high = (ms - stalls_ms if ms is not None else None for ms in (reading.value, reading.low, reading.high))
    return replace(best, reading=replace(reading, value=value, low=low, high=high), parts=None)


def removes_excess(edits: Sequence[Edit]) -> bool:
    """Return whether ``edits`` also remove the excess of the run's step over its replay."""
    return any(isinstance(edit, WithoutCalls) and edit.slower_in_run for edit in edits)


def applied_to_run(best_ms: float, now: MeanStep, after: MeanStep, edits: Sequence[Edit] = ()) -> float:
    """Return the run's step in ms after the change that the replay shows.

    If the run's step is longer than the replay, the excess is the GPU's waiting. ``edits`` remove up to their ``excess_ms`` of it. The
    rest changes by the same factor as the waiting in the replay, but does not grow. If the excess is less than ``excess_ms``, the
    replay of the other launches is too slow, so the missing part is removed from the waiting that remains.
    """
    gone_ms = sum(edit.excess_ms for edit in edits if isinstance(edit, WithoutOps))
    if best_ms <= now.ms or now.waits_ms <= 0:
        return best_ms * (after.ms - min(gone_ms, max(after.waits_ms, 0.0))) / now.ms
    left_ms = best_ms - now.ms - gone_ms
    if left_ms < 0:
        return after.ms + max(left_ms, -max(after.waits_ms, 0.0))
    return after.ms + left_ms * min(after.waits_ms / now.waits_ms, 1.0)
