"""The combined gain of several changes, which do not add up because removing one wait exposes another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sawtooth.analysis.findings.plan import plan_of
from sawtooth.analysis.run.model import Finding, RankResult
from sawtooth.analysis.run_analysis import whatif_of
from sawtooth.analysis.store.library import Library


@dataclass(frozen=True)
class CombinedPrediction:
    """A run with changes: ms per step and MFU (None if unknown) before and after, and the job's GPUs.

    The step time of a new run with these changes is expected from ``low_ms`` to ``high_ms``, None if unknown.
    """

    before_ms: float
    after_ms: float
    mfu_before: float | None
    gpus: int
    low_ms: float | None = None
    high_ms: float | None = None

    @property
    def speedup(self) -> float:
        """The ratio of the step times before and after."""
        return self.before_ms / self.after_ms

    @property
    def mfu(self) -> float | None:
        """The MFU after the changes: the same model FLOPs in the shorter step."""
        return self.mfu_before * self.speedup if self.mfu_before is not None else None

    def hours_of(self, steps: float) -> tuple[float, float]:
        """Return the hours for ``steps`` steps before and after."""
        return steps * self.before_ms / 3.6e6, steps * self.after_ms / 3.6e6


def combined_prediction(
    library: Library, rank: RankResult, gpus: int, findings: Sequence[Finding]
) -> CombinedPrediction | None:
    """Return the combined gain of the changes of all ``findings``; a shared change counts once.

    ``gpus`` is the job's number of GPUs. None if the step cannot be replayed. The interval is that of a plan of these changes, if
    there is one.
    """
    best = rank.best
    edits = tuple(dict.fromkeys(edit for finding in findings for edit in finding.edits))
    if best.ms is None:
        return None
    with library.open(rank.recording_id) as recording:
        whatif = whatif_of(recording, rank)
    predicted_ms = whatif.predict_ms(best, edits) if whatif is not None else None
    if whatif is None or predicted_ms is None or predicted_ms <= 0:
        return None
    plan = plan_of(whatif, best, findings)
    low: float | None = None
    high: float | None = None
    if plan and math.isclose(plan[-1].predicted_step_ms, predicted_ms):  # the plan contains every change
        low, high = plan[-1].predicted_low_ms, plan[-1].predicted_high_ms
    elif (between := whatif.predict_range_ms(best, edits)) is not None:
        low, high = whatif.of_another_run(best, edits, between)
    return CombinedPrediction(best.ms, predicted_ms, mfu_of(rank, findings), gpus, low, high)


def mfu_of(rank: RankResult, findings: Sequence[Finding]) -> float | None:
    """Return the run's present MFU, which a shorter step raises in proportion.

    None if it is unknown, or if a change of ``findings`` removes FLOPs: then the MFU does not rise in proportion.
    """
    return None if any("fewer_flops" in finding.explains.topics for finding in findings) else rank.metrics["mfu"].value
