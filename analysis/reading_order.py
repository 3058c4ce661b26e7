"""The order of a run's findings, which is the same on every page, in every report and in the plan.

The first change is that of the headline. The next ones are the plan's changes, other sure changes by gain, unsure changes, and
information.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sawtooth.analysis.findings.ordering import is_much_surer
from sawtooth.analysis.findings.ordering import sure_gain_ms as sure_gain_ms
from sawtooth.analysis.findings.plan import needed_before, plan_of
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.analysis.replay.whatif import WhatIf
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.run.verdict import explains, judge

MIN_SHARE = 0.03  # A gain below this share of the step is lost in the noise of most measurements.


def in_reading_order(result: RunResult, whatif: WhatIf | None) -> RunResult:
    """Return the result with its plan, and its findings in the order in which to make their changes.

    ``result.findings`` must be in the order of ``findings.ordering``.
    """
    lead = lead_finding(result)
    first = [*_prerequisites(lead, result), lead] if lead is not None else []
    findings = [*first, *(finding for finding in result.findings if finding not in first)]
    plan = plan_of(whatif, result.lead.best, findings) if result.lead is not None else ()
    return _sorted(replace(result, findings=findings, plan=plan), lead)


def _sorted(result: RunResult, lead: Finding | None) -> RunResult:
    planned = {step.rule: place for place, step in enumerate(result.plan)}

    def place(finding: Finding) -> tuple[bool, bool, bool, bool, int, bool, bool, bool, float]:
        return (
            not is_advice(finding),
            finding is not lead,
            # The topic "hidden" is time that the profiled steps do not show.
            lead is not None or "hidden" not in finding.explains.topics,
            lead is not None or "schedule" not in finding.explains.topics,  # Such a finding costs more than small gains.
            planned.get(finding.rule, len(planned)),
            finding.claims == "caution" and not finding.ends_the_run,
            same_as_delay(result, finding),
            finding.confidence == "low",
            -finding.gain_ms,
        )

    ordered = sorted(result.findings, key=place)
    for finding in result.findings:
        for prerequisite in _prerequisites(finding, result):  # It has no gain alone, but must be done before ``finding``.
            ordered.remove(prerequisite)
            ordered.insert(ordered.index(finding), prerequisite)
    return replace(result, findings=ordered)


def _prerequisites(finding: Finding, result: RunResult) -> list[Finding]:
    """Return the findings whose changes must be made before that of ``finding``, and gain little alone."""
    first = prepared_by(finding, result)
    others_needed = (
        needed for needed in needed_before(finding, result.findings) if needed is not first and makes_possible(needed, finding)
    )
    return [prerequisite for prerequisite in (first, *others_needed) if prerequisite is not None and is_advice(prerequisite)]


def makes_possible(first: Finding, finding: Finding) -> bool:
    """Return whether the change of ``first`` predicts no gain alone and enables the change of ``finding``."""
    return first.rule in finding.enabled_by and first.claims != "gain"


def is_advice(finding: Finding) -> bool:
    """Return whether a finding advises a change, and is not only information."""
    return finding.claims != "caution" or finding.severity != "info"


def lead_finding(result: RunResult) -> Finding | None:
    """Return the finding whose change comes first: the first sure gain, or a much larger later one.

    A finding of low confidence comes first only if no surer one can come first or predicts a larger gain. A finding whose gain is only an upper
    limit does not come first if another is predicted to gain more. None if the run is healthy or no change has a sure gain.
    """
    rank, findings = result.lead, result.findings
    verdict = judge(rank) if rank is not None else None
    if result.withdrawn_by is not None or (rank is not None and verdict is None) or is_healthy(result):
        return None
    if verdict is not None and verdict.kind == "unrepresentative":  # A gain in the profiled steps may not exist in the run.
        sure = explains(verdict, findings)
        findings = [sure] if sure is not None and sure.claims == "gain" else []
    claimed = [finding for finding in findings if not finding.may_gain_nothing and can_be_first(finding, best_ms(result))]
    first = next((finding for finding in claimed if finding.confidence != "low"), next(iter(claimed), None))
    if first is not None and first.confidence == "low" and any(_is_more(finding, first) for finding in findings):
        return None  # The larger change should be tried first, although it may gain nothing.
    if first is not None and first.claims == "ceiling" and not first.ends_the_run and "late_rank" not in first.explains.topics:
        first = next((finding for finding in claimed if _is_more(finding, first)), first)
    if first is None or first.claims != "gain" or first.ends_the_run or "late_rank" in first.explains.topics:
        return first
    surer = [f for f in claimed if _is_surer(f, first) and not any(n in claimed for n in _needed_apart(f, result))]
    return max(surer, key=sure_gain_ms, default=first)


def can_be_first(finding: Finding, step_ms: float | None) -> bool:
    """Return whether a finding can be the first change: it ends the run, or its gain is noticeable."""
    if finding.ends_the_run:
        return True
    if not step_ms or finding.gain_ms < MIN_SHARE * step_ms:
        return False
    # A change whose gain the loader limits is important, even if its severity is low.
    bounded = finding.claims == "ceiling" and (finding.severity != "info" or finding.fed_every_ms is not None)
    return bounded or finding.claims == "gain"


def _is_more(finding: Finding, other: Finding) -> bool:
    """Return whether the gain of ``finding`` is larger than the largest possible gain of ``other``.

    False if both explain the same cause, because ``other`` is then more specific and keeps its place.
    """
    predicted = finding.claims == "gain" and finding.confidence != "low" and finding.gain_ms > other.gain_ms
    return predicted and set(finding.explains.causes).isdisjoint(other.explains.causes)


def _is_surer(finding: Finding, first: Finding) -> bool:
    """Return whether the lower bound of a gain is much larger than that of the first change.

    False for a choice that has costs, such as compiling, because a fault comes before a choice.
    """
    return "choice" not in finding.explains.topics and is_much_surer(finding, first)


def _needed_apart(finding: Finding, result: RunResult) -> list[Finding]:
    """Return the findings whose changes come before ``finding`` but are no part of its change."""
    return [needed for needed in needed_before(finding, result.findings) if needed.rule not in finding.enabled_by]


def prepared_by(finding: Finding, result: RunResult) -> Finding | None:
    """Return the finding whose change is a part of ``finding``; None if there is none.

    The returned finding's change enables that of ``finding``, and gains much less alone.
    """
    little = MIN_SHARE * (best_ms(result) or 0.0)
    needed = needed_before(finding, result.findings)
    enabling = (f for f in needed if f.rule in finding.enabled_by)
    return next(enabling, next((f for f in needed if f.claims != "gain" or f.gain_ms < little or f.may_gain_nothing), None))


def same_as_delay(result: RunResult, finding: Finding) -> bool:
    """Return whether a finding describes the same lost time as the finding about the lead rank's delay."""
    delay_is_reported = any("late_rank" in other.explains.topics and other.claims == "gain" for other in result.findings)
    if not delay_is_reported or "late_rank" in finding.explains.topics or result.communication is None:
        return False
    return any(
        straggler.reason in finding.explains.causes
        and any(result.ranks[position] is result.lead for position in straggler.positions)
        for straggler in result.communication.stragglers
    )


def is_healthy(result: RunResult) -> bool:
    """Return whether the run is busy and fast, and no sure change has a noticeable gain."""
    rank = result.lead
    verdict = judge(rank) if rank is not None else None
    mfu = result.metrics["mfu"].value
    if verdict is None or verdict.kind != "compute" or not verdict.step.value or mfu is None:
        return False
    busy_from, mfu_from = (METRICS[key].good or 1.0 for key in ("gpu_busy_share", "mfu"))
    if verdict.busy_share < busy_from or mfu < mfu_from or any(finding.ends_the_run for finding in result.findings):
        return False
    return largest_sure_gain(result.findings) / verdict.step.value < MIN_SHARE


def largest_sure_gain(findings: Sequence[Finding]) -> float:
    """Return the largest gain of the findings without low confidence, ms per step; 0 if there is none."""
    return max((finding.gain_ms for finding in findings if finding.confidence != "low"), default=0.0)


def best_ms(result: RunResult) -> float | None:
    """Return the run's step time in ms, with or without a GPU."""
    return result.lead.best.ms if result.lead is not None else result.metrics["best_step_time_ms"].value
