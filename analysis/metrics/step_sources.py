"""Where a run's step time may come from, the best witness first: a row a source, with all that depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

StepSource = Literal["user", "marks", "telemetry", "estimate", "profile"]


@dataclass(frozen=True)
class Provenance:
    """What a source is called in a sentence, and what its step time is: timed over many steps of the run, or of its trace alone."""

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
ESTIMATED: tuple[StepSource, ...] = ("telemetry", "estimate")  # computed and not measured: shown with ≈
