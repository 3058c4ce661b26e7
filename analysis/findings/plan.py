"""The plan: the fixes applied one after the other in one replay, each with its remaining gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.replay.edits import Edit
from sawtooth.analysis.replay.whatif import RUNS_DIFFER, WhatIf
from sawtooth.analysis.run.model import NO_GAIN, Finding, PlanStep, may_gain_nothing


def plan_of(whatif: WhatIf | None, best: BestStepTime, findings: Sequence[Finding]) -> tuple[PlanStep, ...]:
    """Return the fixes in the findings' order, each with the step time after it.

    The first step of the plan has the time that its finding predicts. A fix without a gain is tried once more after the others,
    because they may have removed the reason. The plan omits fixes that cannot be replayed, findings of low confidence, and fixes
    whose gain at their place is not sure. Only a change that others need may start the plan without a sure gain. A change that
    must come before a fix is a separate step, even if the replay predicts no gain for this change. The plan is empty without a
    replay.
    """
    if whatif is None or best.ms is None:
        return ()
    steps: list[PlanStep] = []
    most_ms = best.ms  # Upper limit of the step time so far, in this run.
    applied: tuple[Edit, ...] = ()
    tried = [finding for finding in findings if finding.edits and finding.confidence != "low"]
    needed = {rule for finding in findings for rule in finding.needs_first}
    done = set[str]()
    for _ in range(2):
        remaining = []
        for finding in tried:
            if finding.rule in done:  # It is a part of a change that is planned already.
                continue
            edits = tuple(dict.fromkeys((*applied, *finding.edits)))
            now_ms = steps[-1].predicted_step_ms if steps else best.ms
            after_ms = whatif.predict_ms(best, edits)
            predicted_range = whatif.predict_range_ms(best, edits) if after_ms and after_ms * NO_GAIN < now_ms else None
            if after_ms is None or predicted_range is None or predicted_range[1] * (1 + RUNS_DIFFER) >= most_ms:
                remaining.append(finding)  # Not faster, or faster only at the low end of the interval.
                continue
            prediction = whatif.range_of_another_run_ms(best, edits, predicted_range)
            if not steps and finding.rule not in needed and may_gain_nothing(prediction[1], best.ms):  # its finding says so
                remaining.append(finding)
                continue
            steps.append(with_doubt(PlanStep(finding.rule, now_ms, after_ms, *prediction), steps, whatif.least_ms(best, edits)))
            applied, most_ms = edits, predicted_range[1] * (1 + RUNS_DIFFER)
            done |= {f.rule for f in needed_before(finding, findings) if f.rule in finding.enabled_by}
        tried = remaining
    return tuple(_with_needed(steps, findings))


def _with_needed(steps: Sequence[PlanStep], findings: Sequence[Finding]) -> list[PlanStep]:
    """Return the plan with the required changes inserted before the steps that need them.

    A required change that already is a step of the plan is not repeated.
    """
    planned = {step.rule for step in steps}
    whole: list[PlanStep] = []
    for step in steps:
        finding = next(finding for finding in findings if finding.rule == step.rule)
        first = [f.rule for f in needed_before(finding, findings) if f.rule not in planned]
        ends = (whole[-1].predicted_low_ms, whole[-1].predicted_high_ms) if whole else (step.before_ms, step.before_ms)
        whole += [*(PlanStep(rule, step.before_ms, step.before_ms, *ends) for rule in first), step]
    return whole


def needed_before(finding: Finding, findings: Sequence[Finding]) -> list[Finding]:
    """Return the earlier findings whose change must be made before the change of ``finding``."""
    if not finding.needs_first:
        return []
    return [f for f in findings[: findings.index(finding)] if f.rule in finding.needs_first]


def with_doubt(step: PlanStep, earlier: Sequence[PlanStep], least_ms: float) -> PlanStep:
    """Return ``step`` with an interval that is relatively as wide as the interval of any earlier step.

    The interval stays below the previous step's high end, and above ``least_ms``, the GPU's own work after this step. The
    uncertainty of an earlier change remains after further changes.
    """
    if not earlier:
        return step
    low_ratio = min(earlier_step.predicted_low_ms / earlier_step.predicted_step_ms for earlier_step in earlier)
    high_ratio = max(earlier_step.predicted_high_ms / earlier_step.predicted_step_ms for earlier_step in earlier)
    low, high = step.predicted_step_ms * low_ratio, step.predicted_step_ms * high_ratio
    return replace(
        step,
        predicted_low_ms=min(step.predicted_low_ms, max(low, least_ms)),
        predicted_high_ms=min(max(step.predicted_high_ms, high), max(earlier[-1].predicted_high_ms, step.predicted_step_ms)),
    )
