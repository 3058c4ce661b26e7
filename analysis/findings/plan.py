"""One plan: the fixes made one after the other in one replay, so that each brings only what those before it left."""

from __future__ import annotations

from collections.abc import Sequence

from sawtooth.analysis.findings.rule import RUNS_DIFFER
from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.replay.edits import Edit
from sawtooth.analysis.replay.whatif import WhatIf
from sawtooth.analysis.run.model import NO_GAIN, Finding, PlanStep


def plan_of(whatif: WhatIf | None, best: BestStepTime, findings: Sequence[Finding]) -> tuple[PlanStep, ...]:
    """Return the fixes in the findings' order, each with the step after it.

    A fix that brings nothing yet is tried once more after the others, which may have removed what hid its gain. Left out are fixes that cannot
    be replayed, findings that are no more than a guess, and what brings nothing even then. Empty without a replay.
    """
    if whatif is None or best.ms is None:
        return ()
    steps: list[PlanStep] = []
    made: tuple[Edit, ...] = ()
    tried = [
        finding for finding in findings if finding.edits and not (finding.severity == "info" and finding.confidence == "low")
    ]
    for _ in range(2):
        left = []
        for finding in tried:
            edits = tuple(dict.fromkeys((*made, *finding.edits)))
            step = _step(whatif, best, finding.rule, edits, steps)
            if step is None:
                left.append(finding)
            else:
                steps.append(step)
                made = edits
        tried = left
    return tuple(steps)


def _step(
    whatif: WhatIf, best: BestStepTime, rule: str, edits: tuple[Edit, ...], before: Sequence[PlanStep]
) -> PlanStep | None:
    """Return the step of the plan with ``edits`` made, None where it is no faster than before, or only in the better case."""
    now_ms = before[-1].predicted_step_ms if before else best.ms
    after_ms = whatif.predict_ms(best, edits)
    if now_ms is None or not after_ms or after_ms * NO_GAIN >= now_ms:
        return None
    between = whatif.predict_range_ms(best, edits)
    most_before = before[-1].predicted_high_ms if before else now_ms
    if between is None or between[1] * (1 + RUNS_DIFFER) >= most_before:
        return None
    return PlanStep(rule, now_ms, after_ms, between[0] * (1 - RUNS_DIFFER), between[1] * (1 + RUNS_DIFFER))
