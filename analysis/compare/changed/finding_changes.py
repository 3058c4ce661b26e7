"""Findings that only one side of a comparison has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sawtooth.analysis.compare.changed.differences import unfollowed
from sawtooth.analysis.compare.changed.setup_traits import Trait
from sawtooth.analysis.compare.waterfall import RunRow, is_gone
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.run.overlapping_findings import same_time


class FindingChanges(NamedTuple):
    """Findings that only A has, findings that only B has, and rules that one side could not check."""

    fixed: tuple[Finding, ...]
    new: tuple[Finding, ...]
    not_comparable: tuple[str, ...]


def finding_changes(a: RunResult, b: RunResult, of_run: Sequence[RunRow]) -> FindingChanges:
    """Compare both sides' findings; one that B could not check is fixed if B's step lost no time by it."""
    rules_a, rules_b = {f.rule for f in a.findings}, {f.rule for f in b.findings}
    unchecked_a, unchecked_b = {n.rule for n in a.not_checked}, {n.rule for n in b.not_checked}
    divided = b.lead is not None and len(b.lead.counted) > 0
    gone = {f.rule for f in a.findings if f.rule in unchecked_b and divided and f.claims == "gain" and is_gone(f, of_run)}
    fixed = tuple(f for f in a.findings if f.rule in gone or f.rule not in rules_b | unchecked_b)
    new = tuple(f for f in b.findings if f.rule not in rules_a | unchecked_a)
    if (a.lead is None) != (b.lead is None):  # Nearly all rules apply only to the side with GPU work.
        return FindingChanges(fixed if a.lead is None else (), new if b.lead is None else (), ())
    one_sided = sorted(((rules_a & unchecked_b) - gone) | (rules_b & unchecked_a))
    return FindingChanges(fixed, new, tuple(one_sided))


def followed_findings(
    run: RunResult, traits: tuple[Sequence[Trait], Sequence[Trait]], fixed: Sequence[Finding], *, grown: bool
) -> list[Finding]:
    """Return the ``fixed`` findings of ``run`` whose advice the other side followed, each loss once.

    ``traits`` are those of the run's side and of the other side. More work per step on the other side (``grown``) hides more of
    the host's time. Findings about a cause then do not count as fixed.
    """
    followed = [finding for finding in fixed if not unfollowed(finding, *traits)]
    return [
        finding for finding in followed if same_time(run, finding) not in followed and not (grown and finding.explains.causes)
    ]
