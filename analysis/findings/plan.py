"""One plan: the fixes made one after the other in one replay, so that each brings only what those before it left."""

from __future__ import annotations

from collections.abc import Sequence

from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.replay.edits import Edit
from sawtooth.analysis.replay.whatif import RUNS_DIFFER, WhatIf
from sawtooth.analysis.run.model import NO_GAIN, Finding, PlanStep


def plan_of(whatif: WhatIf | None, best: BestStepTime, findings: Sequence[Finding]) -> tuple[PlanStep, ...]:
    """Return the fixes in the findings' order, each with the step after it.

    A fix that brings nothing yet is tried once more after the others, which may have removed what hid its gain. Left out are fixes that cannot
    be replayed, findings that are no more than a guess, and what brings nothing even then. Empty without a replay.
    """
    if whatif is None or best.ms is None:
        return ()
    steps: list[PlanStep] = []
    most_ms = best.ms  # that the step takes so far, in this run
    made: tuple[Edit, ...] = ()
    tried = [
        finding for finding in findings if finding.edits and not (finding.severity == "info" and finding.confidence == "low")
    ]
    for _ in range(2):
        left = []
        for finding in tried:
            edits = tuple(dict.fromkeys((*made, *finding.edits)))
            now_ms = steps[-1].predicted_step_ms if steps else best.ms
            after_ms = whatif.predict_ms(best, edits)
            between = whatif.predict_range_ms(best, edits) if after_ms and after_ms * NO_GAIN < now_ms else None
            if after_ms is None or between is None or between[1] * (1 + RUNS_DIFFER) >= most_ms:
                left.append(finding)  # no faster than before, or only in the better case
                continue
            steps.append(PlanStep(finding.rule, now_ms, after_ms, *whatif.of_another_run(best, edits, between)))
            made, most_ms = edits, between[1] * (1 + RUNS_DIFFER)
        tried = left
    return tuple(steps)
