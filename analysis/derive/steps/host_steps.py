"""The host's steps as a table, whatever marked them."""

from __future__ import annotations

from dataclasses import dataclass

from sawtooth.analysis.derive.events import I64

LOST_MARK = " (mark lost)"  # End of the name of a step whose mark is not in the trace.


@dataclass(frozen=True)
class HostSteps:
    """Host intervals of the steps, in order; times are relative to the events' origin.

    ``source`` is profiler_step, annotation, inferred or none. ``lost_marks`` is the number of places where steps were recorded
    whose marks are not in the trace.
    """

    source: str
    annotation: str | None
    names: list[str]
    starts: I64
    ends: I64
    cycle: I64
    lost_marks: int = 0
