"""Limit what a late rank's own findings bring to the gain of removing its lateness."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.judging import SEVERITIES
from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.run.job import Communication, Straggler
from sawtooth.analysis.run.model import Finding

LEADS = 0.5  # of all waiting: a rank that causes less of it is one of several late ones
ITS_OWN = 0.5  # of what it loses to a cause: where its peers lose no more, most of it is its own
BOUNDED = "The other ranks hardly lose it: the job gains no more than by “{title}”, which is the same time."


def waited_for_ms(communication: Communication, late: Straggler) -> float:
    """Return what each of the others, on average, waits in a recorded step for ``late``; 0 where most of the job's waiting is for other ranks."""
    waits = {each.position: each.late_ms for each in communication.ranks}
    of_late = math.fsum(waits.get(position, 0.0) for position in late.positions)
    return of_late if of_late > LEADS * math.fsum(waits.values()) else 0.0


def bounded_by_late(context: RuleContext, findings: list[Finding]) -> list[Finding]:
    """Return the findings, those on what a late rank alone loses with no more than what the job gains by that rank as fast as its peers.

    They are predicted of the late rank by itself; the others, who wait for it, do not get faster.
    """
    late = _late(findings)
    alone = _lost_alone(context) if late is not None else frozenset()
    return [_bounded(f, late) if late is not None and alone & set(f.explains.causes) else f for f in findings]


def is_seen_to_be_late(context: RuleContext, late: Finding, _pace: Finding) -> bool:
    """Tell whether the recording shows the others waiting for the rank, for a reason that recording does not make.

    What is seen comes before what an estimate tells, and no host that all ranks have explains it.
    """
    communication = context.run.communication
    if communication is None or late.predicted_step_ms is None:
        return False
    first = communication.stragglers[0]
    slowed = first.reason in CAUSE_OF and CAUSE_OF[first.reason].slowed
    return not slowed and bool(waited_for_ms(communication, first))


def _late(findings: Sequence[Finding]) -> Finding | None:
    return next((f for f in findings if "late_rank" in f.explains.topics and f.predicted_step_ms is not None), None)


def _lost_alone(context: RuleContext) -> frozenset[str]:
    """Return the causes that the rank in ``context`` is late by and its peers lose hardly anything to."""
    ranks, communication = context.run.ranks, context.run.communication
    mine = (context.rank.recording_id, context.rank.device)
    at = next((i for i, rank in enumerate(ranks) if (rank.recording_id, rank.device) == mine), -1)
    late = communication.stragglers if communication is not None else ()
    everyone = {position for each in late for position in each.positions}
    others = [rank for i, rank in enumerate(ranks) if i not in everyone]
    reasons = {each.reason for each in late if at in each.positions and each.reason in CAUSE_OF}
    return frozenset(
        reason
        for reason in reasons
        if reason is not None
        and others
        and median(context.lost_ms(reason, of=other) for other in others) <= ITS_OWN * context.lost_ms(reason)
    )


def _bounded(finding: Finding, late: Finding) -> Finding:
    """Return ``finding`` with no more severity and gain than ``late``'s, and out of what is replayed together: that is one rank's."""
    if finding is late or late.predicted_step_ms is None or (finding.predicted_step_ms or 0.0) >= late.predicted_step_ms:
        return finding
    predicted = finding.predicted_step_ms is not None
    return replace(
        finding,
        severity=max(finding.severity, late.severity, key=SEVERITIES.index),
        ceiling_ms_per_step=min(finding.ceiling_ms_per_step or late.gain_ms, late.gain_ms),
        predicted_step_ms=late.predicted_step_ms if predicted else None,
        predicted_speedup=late.predicted_speedup if predicted else None,
        predicted_low_ms=late.predicted_low_ms if predicted else None,
        predicted_high_ms=late.predicted_high_ms if predicted else None,
        prediction_note=" ".join(filter(None, (finding.prediction_note, BOUNDED.format(title=late.title)))),
        edits=(),
    )
