"""The runs of one session of `sawtooth try`: the base runs, and the trials with their results."""

from __future__ import annotations

from dataclasses import dataclass, field

from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps
from sawtooth.analysis.run.model import RunResult
from sawtooth.app.trials.choosing import Candidate
from sawtooth.app.trials.running import Ran
from sawtooth.ingest.capture.trials.changes.loader import BATCH

TOGETHER = "+"  # Between the slugs of changes that are tried together.
MEASURED = ("kept", "slower", "not_shown")


@dataclass
class Trial:
    """Changes that are tried together, and their result.

    Times are in ms per step, and costs are relative to the base runs.

    The prediction of a single change comes from its finding. ``after_base`` is the index of the base run before the trial.
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
    ran: Ran | None = None
    losses: list[float] = field(default_factory=list)
    measured: MeasuredSteps | None = None
    after_base: int = 0

    def __post_init__(self) -> None:
        if len(self.candidates) == 1:
            one = self.candidates[0]
            self.predicted_ms, self.predicted_low_ms, self.predicted_high_ms = one.predicted_ms, one.low_ms, one.high_ms

    @property
    def slug(self) -> str:
        """The change, or the changes that were tried together."""
        return TOGETHER.join(each.slug for each in self.candidates)

    @property
    def is_inside(self) -> bool | None:
        """Whether the measured step time is inside the predicted interval; None if either is unknown."""
        bounds = self.predicted_low_ms, self.measured_ms, self.predicted_high_ms
        if None in bounds or self.times_work != 1.0 or self.status not in MEASURED:
            return None
        return (self.predicted_low_ms or 0.0) <= (self.measured_ms or 0.0) <= (self.predicted_high_ms or 0.0)

    @property
    def times_work(self) -> float:
        """The work of a step divided by the work of a step of the base run; not 1 if the batch is larger."""
        return next((float(each.values["times"]) for each in self.candidates if each.slug == BATCH), 1.0)


@dataclass
class Base:
    """One run without changes; ``analysis_s`` is the time that its analysis took after it."""

    ran: Ran
    result: RunResult
    measured: MeasuredSteps
    run_id: str
    analysis_s: float = 0.0
