"""Findings that only one side of a comparison has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sawtooth.analysis.compare.changed.differences import was_not_followed
from sawtooth.analysis.compare.changed.setup_traits import Trait
from sawtooth.analysis.compare.waterfall import RunRow, is_gone
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.run.overlapping_findings import same_time

MOSTLY_THERE = 0.5  # Share of a finding's time. A run that still loses more than this share did not fix the finding.


class FindingChanges(NamedTuple):
    """Findings that only A has, findings that only B has, and rules that one side could not check."""

    fixed: tuple[Finding, ...]
    new: tuple[Finding, ...]
    not_comparable: tuple[str, ...]


def finding_changes(a: Sequence[RunResult], b: Sequence[RunResult], rows_of_run: Sequence[RunRow]) -> FindingChanges:
    """Compare the findings of both sides' first runs with all runs of the other side.

    A finding is fixed if B could check its rule and does not have the finding. If B could not check the rule, the finding is
    fixed if B's step no longer loses time to its causes. ``rows_of_run`` has the time of both steps by owner and cause.
    """
    first_a, first_b = a[0], b[0]
    rules_a, rules_b = ({f.rule for run in side for f in run.findings} for side in (a, b))
    unchecked_a, unchecked_b = _unchecked_rules(a, first_b), _unchecked_rules(b, first_a)
    b_has_steps = first_b.lead is not None and len(first_b.lead.counted) > 0
    gone_rules = {
        f.rule
        for f in first_a.findings
        if f.rule in unchecked_b and b_has_steps and f.claims == "gain" and is_gone(f, rows_of_run)
    }
    fixed = tuple(
        f for f in first_a.findings if f.rule in gone_rules or (f.rule not in rules_b | unchecked_b and not _remains(f, b))
    )
    new = tuple(f for f in first_b.findings if f.rule not in rules_a | unchecked_a)
    if (first_a.lead is None) != (first_b.lead is None):  # Nearly all rules apply only to the side with GPU work.
        return FindingChanges(fixed if first_a.lead is None else (), new if first_b.lead is None else (), ())
    one_sided = sorted(((rules_a & unchecked_b) - gone_rules) | (rules_b & unchecked_a))
    return FindingChanges(fixed, new, tuple(one_sided))


def _unchecked_rules(runs: Sequence[RunResult], other: RunResult) -> set[str]:
    """Return the rules that none of ``runs`` could check.

    A rule also counts as unchecked if its finding in ``other`` needs samples, and ``runs`` have none.
    """
    unchecked = set.intersection(*({n.rule for n in run.not_checked} for run in runs))
    return unchecked | {f.rule for f in other.findings if not any(_has_samples_of(f, run) for run in runs)}


def _has_samples_of(finding: Finding, run: RunResult) -> bool:
    """Return whether ``run`` has the samples that a finding of another run was computed from.

    True for a finding that was computed from a trace.
    """
    row = finding.evidence[0] if finding.evidence else {}
    if "quantity" in row:
        return run.telemetry.host is not None and row["quantity"] in run.telemetry.host.means
    return "recording" not in row or any(ref.kind == "telemetry" for ref in run.manifest.telemetry)


def _remains(finding: Finding, runs: Sequence[RunResult]) -> bool:
    """Return whether a run still loses most of the finding's time, but less than the finding's threshold."""
    lost_ms = finding.ceiling_ms_per_step or 0.0
    return lost_ms > 0 and any(run.below_threshold.get(finding.rule, 0.0) >= MOSTLY_THERE * lost_ms for run in runs)


def followed_findings(
    run: RunResult, traits: tuple[Sequence[Trait], Sequence[Trait]], fixed: Sequence[Finding], *, grown: bool
) -> list[Finding]:
    """Return the ``fixed`` findings of ``run`` whose advice the other side followed.

    ``traits`` are the traits of the run's side and of the other side. If a step of the other side does more work (``grown``),
    more of the host's time is hidden behind it. Then findings about a cause do not count as fixed. If several findings are
    about the same lost time, only one of them is returned.
    """
    followed = [finding for finding in fixed if not was_not_followed(finding, *traits)]
    return [
        finding for finding in followed if same_time(run, finding) not in followed and not (grown and finding.explains.causes)
    ]
