"""Detect findings that explain the same time: a fix of one leaves no gain for the other."""

from __future__ import annotations

from sawtooth.analysis.run.model import Finding, RunResult

NEARLY_ALL = 0.9  # Share of a finding's gain that another fix saves too.


def same_time(run: RunResult, finding: Finding) -> Finding | None:
    """Return the fix of the run's plan that saves the same time as ``finding``.

    After that fix, ``finding`` gains nothing more. None if its gain adds to the plan's.
    """
    planned = {step.rule for step in run.plan}
    # no plan contains such a finding
    if finding.rule in planned or finding.claims != "gain" or not finding.edits or finding.confidence == "low":
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


def shares_loss(run: RunResult, bounded: Finding, finding: Finding) -> bool:
    """Return whether ``finding`` saves the same time as ``bounded``, whose gain has only a bound.

    Both explain the same causes, and together they save more than the step loses to these.
    """
    causes = set(bounded.explains.causes)
    if bounded.claims != "ceiling" or bounded.edits or finding is bounded or finding.claims != "gain" or run.lead is None:
        return False
    rows = [row for row in run.lead.ledger if row.cause in causes]
    lost_ms = sum(row.ms_per_step_unprofiled_est or row.ms_per_step or 0.0 for row in rows)
    return causes == set(finding.explains.causes) and bounded.gain_ms + finding.gain_ms > lost_ms
