"""Which findings are one and the same time: removing either cause leaves nothing for the other to bring."""

from __future__ import annotations

from sawtooth.analysis.run.model import Finding, RunResult

NEARLY_ALL = 0.9  # of a finding's gain, that another one brings too


def same_time(run: RunResult, finding: Finding) -> Finding | None:
    """Return the fix of the run's plan that saves the same time as ``finding``, which brings nothing more after it; None where its gain adds."""
    planned = {step.rule for step in run.plan}
    if finding.rule in planned or finding.claims != "gain" or not finding.edits or finding.confidence == "low":  # in no plan
        return None
    causes = set(finding.explains.causes)
    return next(
        (
            other
            for other in run.findings
            if other.rule in planned and causes & set(other.explains.causes) and other.gain_ms >= NEARLY_ALL * finding.gain_ms
        ),
        None,
    )
