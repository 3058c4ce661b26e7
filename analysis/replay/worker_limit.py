"""The lower limit of a step by the data loader's workers, which other changes do not speed up."""

from __future__ import annotations

from typing import Literal

from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.replay.edits import Edit, WithoutHostCause

# If the wait for the workers takes at least this share of a step, their queue is always empty, so they limit the run.
WORKERS_LIMIT = 0.03

Edge = Literal["least", "likely", "most"]  # A point of a time's range.
# factors of a loader's time that was not measured; in one pair of runs it was 3.2 times shorter, in another 2.2 times longer
LOADER_TIME_RANGE: dict[Edge, float] = {"least": 0.25, "likely": 1.0, "most": 2.25}


def no_faster_than_workers(best: BestStepTime, edits: tuple[Edit, ...], ms: float, edge: Edge) -> float:
    """Return ``ms``, or the time that the loader's workers need for a step if that is longer.

    Today, the workers need at most the run's current step. If an edit changes the loader's cost, the edit's own time applies.
    """
    if loads := loader_edits(edits):
        return max(ms, *(_workers_ms(edit, edge) for edit in loads))
    if best.feeding is None or best.ms is None:
        return ms
    floor_ms: float = getattr(best.feeding.floors_ms(best.ms), edge)
    return max(ms, floor_ms)


def _workers_ms(edit: WithoutHostCause, edge: Edge) -> float:
    """Return the workers' time per step of ``edit`` in ms, from its interval or LOADER_TIME_RANGE."""
    timed = {"least": edit.loader_limit_low_ms, "likely": edit.loader_limit_ms, "most": edit.loader_limit_high_ms}[edge]
    return timed if timed is not None else LOADER_TIME_RANGE[edge] * edit.loader_limit_ms


def loader_edits(edits: tuple[Edit, ...]) -> list[WithoutHostCause]:
    """Return those of ``edits`` that change the loader's cost."""
    return [edit for edit in edits if isinstance(edit, WithoutHostCause) and edit.cause == "data_wait"]
