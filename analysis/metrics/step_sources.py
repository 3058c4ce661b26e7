"""Sources of a run's step time, the strongest first, and the properties of each source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

StepSource = Literal["user", "marks", "telemetry", "estimate", "profile"]


@dataclass(frozen=True)
class Provenance:
    """A source's ``name`` in a sentence, and how it gets the step time.

    ``timed`` means that it measured many of the run's steps, ``of_trace`` that it uses only the trace.
    """

    name: str
    timed: bool = False
    of_trace: bool = False


STEP_SOURCES: dict[StepSource, Provenance] = {
    "user": Provenance("the stopwatch", timed=True),
    "marks": Provenance("the run's own step marks", timed=True),
    "telemetry": Provenance("telemetry"),
    "estimate": Provenance("the replay of the trace", of_trace=True),
    "profile": Provenance("the profile", of_trace=True),
}
ESTIMATED: tuple[StepSource, ...] = ("telemetry", "estimate")  # Computed instead of measured, shown with ≈.
