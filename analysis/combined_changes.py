"""The combined gain of several changes, which is not the sum of their single gains."""

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
    """The predicted effect of several changes: step time before and after, and the MFU before.

    ``gpus`` is the job's number of GPUs. ``low_ms`` to ``high_ms`` is the interval for a new run with these changes, None if
    unknown.
    """

    before_ms: float
    after_ms: float
    mfu_before: float | None
    gpus: int
    low_ms: float | None = None
    high_ms: float | None = None

    @property
    def speedup(self) -> float:
        """The step time before ÷ the step time after."""
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
    """Return the combined gain of the changes of all ``findings``; None if the step cannot be replayed.

    A change that several findings share counts once. ``gpus`` is the job's number of GPUs. If a plan contains all these changes,
    its interval is used.
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
    if plan and math.isclose(plan[-1].predicted_step_ms, predicted_ms):  # The plan contains every change.
        low, high = plan[-1].predicted_low_ms, plan[-1].predicted_high_ms
    elif (between := whatif.predict_range_ms(best, edits)) is not None:
        low, high = whatif.range_of_another_run_ms(best, edits, between)
    return CombinedPrediction(best.ms, predicted_ms, mfu_of(rank, findings), gpus, low, high)


def mfu_of(rank: RankResult, findings: Sequence[Finding]) -> float | None:
    """Return the run's MFU if it will grow in proportion to the speedup; else None.

    None if the MFU is unknown, or if a change of ``findings`` removes FLOPs.
    """
    return None if any("fewer_flops" in finding.explains.topics for finding in findings) else rank.metrics["mfu"].value
