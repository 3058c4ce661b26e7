"""The plan: the changes applied one after the other in a replay, each with the step time after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.replay.edits import Edit
from sawtooth.analysis.replay.whatif import GPU_LIMITED_STEP_DIFFERENCE, WhatIf
from sawtooth.analysis.run.model import NO_GAIN, Finding, PlanStep, may_gain_nothing


def plan_of(whatif: WhatIf | None, best: BestStepTime, findings: Sequence[Finding]) -> tuple[PlanStep, ...]:
    """Return the changes in the findings' order, each with the step time after it; empty without a replay.

    The plan omits changes that cannot be replayed, findings of low confidence, and changes whose gain at their place is not
    sure. A change without a gain is tried once more after the others. They may have removed the reason why it gained nothing.
    The plan may start with a change without a sure gain only if other changes need this change. A change that another one
    needs first is a separate step, even without a gain.
    """
    if whatif is None or best.ms is None:
        return ()
    steps: list[PlanStep] = []
    high_ms = best.ms  # Upper limit of this run's step after the planned changes.
    applied: tuple[Edit, ...] = ()
    candidates = [finding for finding in findings if finding.edits and finding.confidence != "low"]
    needed = {rule for finding in findings for rule in finding.needs_first}
    included = set[str]()
    for _ in range(2):
        remaining = []
        for finding in candidates:
            if finding.rule in included:  # A planned change includes this change.
                continue
            edits = tuple(dict.fromkeys((*applied, *finding.edits)))
            now_ms = steps[-1].predicted_step_ms if steps else best.ms
            after_ms = whatif.predict_ms(best, edits)
            predicted_range = whatif.predict_range_ms(best, edits) if after_ms and after_ms * NO_GAIN < now_ms else None
            if after_ms is None or predicted_range is None or predicted_range[1] * (1 + GPU_LIMITED_STEP_DIFFERENCE) >= high_ms:
                remaining.append(finding)  # Not surely faster.
                continue
            prediction = whatif.range_of_another_run_ms(best, edits, predicted_range)
            if not steps and finding.rule not in needed and may_gain_nothing(prediction[1], best.ms):
                remaining.append(finding)
                continue
            steps.append(
                with_earlier_uncertainty(
                    PlanStep(finding.rule, now_ms, after_ms, *prediction), steps, whatif.least_ms(best, edits)
                )
            )
            applied, high_ms = edits, predicted_range[1] * (1 + GPU_LIMITED_STEP_DIFFERENCE)
            included |= {f.rule for f in needed_before(finding, findings) if f.rule in finding.enabled_by}
        candidates = remaining
    return tuple(_with_needed(steps, findings))


def _with_needed(steps: Sequence[PlanStep], findings: Sequence[Finding]) -> list[PlanStep]:
    """Return the plan with each required change that is not a step, before the step that needs it."""
    planned = {step.rule for step in steps}
    plan: list[PlanStep] = []
    for step in steps:
        finding = next(finding for finding in findings if finding.rule == step.rule)
        required = [f.rule for f in needed_before(finding, findings) if f.rule not in planned]
        interval = (plan[-1].predicted_low_ms, plan[-1].predicted_high_ms) if plan else (step.before_ms, step.before_ms)
        plan += [*(PlanStep(rule, step.before_ms, step.before_ms, *interval) for rule in required), step]
    return plan


def needed_before(finding: Finding, findings: Sequence[Finding]) -> list[Finding]:
    """Return the earlier findings whose change must be made before the change of ``finding``."""
    if not finding.needs_first:
        return []
    return [f for f in findings[: findings.index(finding)] if f.rule in finding.needs_first]


def with_earlier_uncertainty(step: PlanStep, earlier: Sequence[PlanStep], least_ms: float) -> PlanStep:
    """Return ``step`` with an interval whose relative width is at least that of the ``earlier`` steps.

    The uncertainty of an earlier change remains after further changes. The interval stays below the previous step's high end, and
    above ``least_ms``, the GPU's own work after this step.
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
