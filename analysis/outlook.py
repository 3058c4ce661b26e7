"""What several changes bring when they are made together: their gains do not add up, since removing one wait uncovers another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sawtooth.analysis.findings.plan import plan_of
from sawtooth.analysis.run.model import Finding, RankResult
from sawtooth.analysis.run_analysis import whatif_of
from sawtooth.analysis.store.library import Library


@dataclass(frozen=True)
class Outlook:
    """A run with changes made: ms per step and MFU (None where unknown) before and after, and the GPUs that the job holds.

    What it says of a day holds for time spent in such steps. ``low_ms`` and ``high_ms`` are between which another run's step lies after
    several changes, None where that is not known.
    """

    before_ms: float
    after_ms: float
    mfu_before: float | None
    gpus: int
    low_ms: float | None = None
    high_ms: float | None = None

    @property
    def speedup(self) -> float:
        """How many times as fast a step is."""
        return self.before_ms / self.after_ms

    @property
    def mfu(self) -> float | None:
        """The MFU afterwards: the same model FLOPs in the shorter step."""
        return self.mfu_before * self.speedup if self.mfu_before is not None else None

    def hours_of(self, steps: float) -> tuple[float, float]:
        """Return how many hours ``steps`` steps take before and after."""
        return steps * self.before_ms / 3.6e6, steps * self.after_ms / 3.6e6


def outlook(library: Library, rank: RankResult, gpus: int, findings: Sequence[Finding]) -> Outlook | None:
    """Return what the changes of all ``findings`` bring together, a change that two share made once; ``gpus`` is how many the job has.

    None where that cannot be replayed. The interval is that of a plan of these changes, where there is one.
    """
    best = rank.best
    edits = tuple(dict.fromkeys(edit for finding in findings for edit in finding.edits))
    if best.ms is None:
        return None
    with library.open(rank.recording_id) as recording:
        whatif = whatif_of(recording, rank)
    after = whatif.predict_ms(best, edits) if whatif is not None else None
    if whatif is None or after is None or after <= 0:
        return None
    plan = plan_of(whatif, best, findings)
    low: float | None = None
    high: float | None = None
    if plan and math.isclose(plan[-1].predicted_step_ms, after):  # every change is in it
        low, high = plan[-1].predicted_low_ms, plan[-1].predicted_high_ms
    elif (between := whatif.predict_range_ms(best, edits)) is not None:
        low, high = whatif.of_another_run(best, edits, between)
    return Outlook(best.ms, after, mfu_of(rank, findings), gpus, low, high)


def mfu_of(rank: RankResult, findings: Sequence[Finding]) -> float | None:
    """Return the MFU that rises as the step gets shorter by the changes of ``findings``; None where it is not known, and where they take FLOPs away."""
    return None if any("fewer_flops" in finding.explains.topics for finding in findings) else rank.metrics["mfu"].value
