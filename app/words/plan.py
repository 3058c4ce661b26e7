"""The plan of a run in words: its fixes in order, each with what it leaves of the step."""

from __future__ import annotations

from sawtooth.analysis.run.model import RunResult
from sawtooth.app import format as fmt
from sawtooth.app.words.headline import action


def title(result: RunResult) -> str | None:
    """Return what all fixes of the plan come to: 40.0 ms → ≈ 28.0 ms a step with 3 changes; None without a plan."""
    if not result.plan:
        return None
    steps = f"{fmt.duration_ms(result.plan[0].before_ms)} → ≈ {fmt.duration_ms(result.plan[-1].predicted_step_ms)}"
    return f"One plan: {steps} a step with {fmt.many(len(result.plan), 'change')}"


def lines(result: RunResult) -> list[str]:
    """Return the fixes of the plan in order, each with the step before and after it; what a fix brings depends on those before it."""
    actions = {finding.rule: fmt.clean(action(finding)) for finding in result.findings}
    ordered = []
    for step in result.plan:
        between = f"{fmt.duration_ms(step.predicted_low_ms)} to {fmt.duration_ms(step.predicted_high_ms)}"
        times = f"{fmt.duration_ms(step.before_ms)} → ≈ {fmt.duration_ms(step.predicted_step_ms)} ({between})"
        ordered.append(f"{actions.get(step.rule, step.rule)}: {times}")
    return ordered
