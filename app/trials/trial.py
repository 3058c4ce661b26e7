"""The runs of one session of `sawtooth try`: base runs, and trials with their results."""

from __future__ import annotations

from dataclasses import dataclass, field

from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps
from sawtooth.analysis.run.model import RunResult
from sawtooth.app.trials.choosing import Candidate
from sawtooth.app.trials.running import FinishedRun
from sawtooth.ingest.capture.trials.changes.loader import BATCH

TOGETHER = "+"  # This sign joins the slugs of changes that are tried together.
MEASURED_OUTCOMES = ("kept", "slower", "not_shown")


@dataclass
class Trial:
    """Changes that are tried together, and the result of their run.

    ``_ms`` values are step times. ``memory_mib`` and ``start_s`` are relative to the base runs. ``after_base`` is the index of the
    base run before the trial.
    """

    candidates: list[Candidate]
    status: str = ""
    predicted_ms: float | None = None
    predicted_low_ms: float | None = None
    predicted_high_ms: float | None = None
    measured_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    why: str = ""
    proof: str = ""
    run_id: str | None = None
    memory_mib: float | None = None
    start_s: float | None = None
    run: FinishedRun | None = None
    losses: list[float] = field(default_factory=list)
    measured: MeasuredSteps | None = None
    after_base: int = 0

    def __post_init__(self) -> None:
        if len(self.candidates) == 1:
            change = self.candidates[0]
            self.predicted_ms, self.predicted_low_ms, self.predicted_high_ms = (
                change.predicted_ms,
                change.low_ms,
                change.high_ms,
            )

    @property
    def slug(self) -> str:
        """The change, or the changes that were tried together."""
        return TOGETHER.join(candidate.slug for candidate in self.candidates)

    @property
    def is_inside(self) -> bool | None:
        """Whether the measured step time is inside the predicted interval; None if either is unknown."""
        bounds = self.predicted_low_ms, self.measured_ms, self.predicted_high_ms
        if None in bounds or self.times_work != 1.0 or self.status not in MEASURED_OUTCOMES:
            return None
        return (self.predicted_low_ms or 0.0) <= (self.measured_ms or 0.0) <= (self.predicted_high_ms or 0.0)

    @property
    def times_work(self) -> float:
        """The work of a step divided by that of the base run's step; above 1 with a larger batch."""
        return next((float(candidate.values["times"]) for candidate in self.candidates if candidate.slug == BATCH), 1.0)


@dataclass
class Base:
    """One run without changes; ``analysis_s`` is the time that its analysis took."""

    run: FinishedRun
    result: RunResult
    measured: MeasuredSteps
    run_id: str
    analysis_s: float = 0.0
