"""Limit the predicted gain of a straggler's own findings to the job's gain without the straggler."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.judging import SEVERITIES
from sawtooth.analysis.findings.recorded.source_lines import heaviest_function
from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.metrics.step_sources import STEP_SOURCES
from sawtooth.analysis.run.job import Communication, Straggler
from sawtooth.analysis.run.model import Finding

PROFILED_FACTOR = 2.0  # The largest ratio of host time in the profile to the same time outside it.
LEADS = 0.5  # A rank that causes at most this share of all waiting is only one of several late ranks.
# If the peers lose at most this share of the rank's loss to a cause, most of the loss belongs to the rank alone.
PEERS_LOSE = 0.5
SAME_GAIN = 1.05  # Largest ratio of two predicted gains of the same change.
# Causes whose own finding has the change for the whole delay of a late rank, so that both findings are one.
SAME_WORK = frozenset({"blocking_copy"})
WAITS = "the other ranks wait for it"
BOUNDED = "The other ranks hardly lose this time. The job's gain is at most that of “{title}”, which includes the same time."


def waited_for_ms(communication: Communication, straggler: Straggler) -> float:
    """Return the average wait of each other rank for ``straggler``, ms per recorded step.

    0 if most of the job's waiting is for other ranks.
    """
    waits = {rank.position: rank.late_ms for rank in communication.ranks}
    of_late = math.fsum(waits.get(position, 0.0) for position in straggler.positions)
    return of_late if of_late > LEADS * math.fsum(waits.values()) else 0.0


def waits_apart_ms(communication: Communication) -> float | None:
    """Return the largest difference of the ranks' replayed waits, ms per step; None if one is missing."""
    waits = [waits.unprofiled_wait_ms for waits in communication.ranks]
    known_ms = [ms for ms in waits if ms is not None]
    return max(known_ms) - min(known_ms) if len(known_ms) == len(waits) else None


def knows_run(context: RuleContext) -> bool:
    """Return whether the run's own step time is known, from telemetry, marks or a stopwatch.

    The ranks are compared at this step time, so telemetry would show no more about them.
    """
    return context.telemetry is not None or STEP_SOURCES[context.rank.best.source].timed


def explained_by_pauses(context: RuleContext, late: Straggler) -> bool:
    """Return whether evaluations or checkpoints that only ``late`` marks explain that it is late."""
    return any(
        pause.ranks and set(late.ranks) <= set(pause.ranks) and late.own_ms <= PROFILED_FACTOR * pause.ms_per_step
        for pause in context.rank.best.pauses
    )


def stalls_in_few_steps(context: RuleContext, *reasons: str) -> Straggler | None:
    """Return the straggler that is the analysed rank alone, if it stalls in a few steps.

    With ``reasons``, only stalls for one of them count.
    The finding that names the rank states the size of these stalls in the whole run, which the few profiled steps do not show.
    """
    ranks, communication = context.run.ranks, context.run.communication
    stragglers = communication.stragglers if communication is not None else ()
    alone = (late for late in stragglers if len(late.positions) == 1 and ranks[late.positions[0]] is context.rank)
    return next((late for late in alone if not late.in_most_steps and (not reasons or late.reason in reasons)), None)


def lines_of(context: RuleContext, straggler: Straggler) -> str:
    """Return a sentence about the lines of a late rank's Python.

    It is empty if the trace has no Python calls, or if the rank is late for another reason.
    """
    ranks = [context.run.ranks[position] for position in straggler.positions]
    is_of_this_rank = len(ranks) == 1 and ranks[0] is context.rank
    if straggler.reason != "python_host" or not is_of_this_rank or not context.rank.trace.with_stack:
        return ""
    line = heaviest_function(context.recording, context.rank.device, "python_host")
    return f" Of its Python time, {line}." if line else ""


def bounded_by_late(context: RuleContext, findings: list[Finding]) -> list[Finding]:
    """Return the findings, with the gains of a late rank's own losses limited.

    The limit is the job's gain if this rank were as fast as its peers. The replay predicts the findings for the late rank alone,
    but the ranks that wait for it do not get faster.
    """
    late_finding = _late_finding(findings)
    single = _lost_alone(context) if late_finding is not None else frozenset()
    if (one := _same_work(findings, late_finding, single & SAME_WORK)) is not None:
        return [*(finding for finding in findings if finding not in one), _as_one(*one)]
    return [
        _limit_finding(f, late_finding) if late_finding is not None and single & set(f.explains.causes) else f for f in findings
    ]


def _same_work(findings: Sequence[Finding], late: Finding | None, causes: frozenset[str]) -> tuple[Finding, Finding] | None:
    """Return the late rank's own finding with the largest gain about ``causes``, and ``late``."""
    own = [each for each in findings if causes & set(each.explains.causes) and each.predicted_step_ms is not None]
    largest = max(own, key=lambda finding: finding.gain_ms, default=None)
    return (largest, late) if largest is not None and late is not None and largest is not late else None


def _as_one(own: Finding, late: Finding) -> Finding:
    """Return the late rank's own finding as the finding on the late rank: its change removes the delay."""
    limited = _limit_finding(own, late)
    return replace(
        limited,
        title=f"{own.title}; {WAITS}",
        severity=min(limited.severity, late.severity, key=SEVERITIES.index),
        explains=replace(own.explains, topics=own.explains.topics | late.explains.topics),
        evidence=(*own.evidence, *late.evidence),
        prediction_note=" ".join(filter(None, (limited.prediction_note, f"{late.title}."))),
    )


def is_seen_to_be_late(context: RuleContext, late_finding: Finding, _host: Finding) -> bool:
    """Return whether the recording shows other ranks waiting for a rank that its own work makes late.

    It is false if recording may have made the rank late. Other findings about the host are estimates, and a slow host of all
    ranks does not explain such waits.
    """
    communication = context.run.communication
    if communication is None or late_finding.predicted_step_ms is None:
        return False
    first = communication.stragglers[0]
    slowed = first.reason in CAUSE_OF and CAUSE_OF[first.reason].slowed
    return not slowed and bool(waited_for_ms(communication, first))


def _late_finding(findings: Sequence[Finding]) -> Finding | None:
    return next((f for f in findings if "late_rank" in f.explains.topics and f.predicted_step_ms is not None), None)


def _lost_alone(context: RuleContext) -> frozenset[str]:
    """Return the causes that make the analysed rank late and cost its peers much less time."""
    ranks, communication = context.run.ranks, context.run.communication
    own_device = (context.rank.recording_id, context.rank.device)
    at = next((i for i, rank in enumerate(ranks) if (rank.recording_id, rank.device) == own_device), -1)
    stragglers = communication.stragglers if communication is not None else ()
    everyone = {position for straggler in stragglers for position in straggler.positions}
    peers = [rank for i, rank in enumerate(ranks) if i not in everyone]
    reasons = {rank.reason for rank in stragglers if at in rank.positions and rank.reason in CAUSE_OF}
    return frozenset(
        reason
        for reason in reasons
        if reason is not None
        and peers
        and median(context.lost_ms(reason, of=other) for other in peers) <= PEERS_LOSE * context.lost_ms(reason)
    )


def _limit_finding(finding: Finding, late_finding: Finding) -> Finding:
    """Return ``finding`` with at most the severity and gain of ``late_finding``, and without edits.

    Joint predictions use edits, but this gain belongs to one rank only.
    """
    predicted = finding.predicted_step_ms is not None
    if finding is late_finding or late_finding.predicted_step_ms is None:
        return finding
    if predicted and finding.gain_ms <= SAME_GAIN * late_finding.gain_ms:
        return finding
    return replace(
        finding,
        severity=max(finding.severity, late_finding.severity, key=SEVERITIES.index),
        ceiling_ms_per_step=min(finding.ceiling_ms_per_step or late_finding.gain_ms, late_finding.gain_ms),
        predicted_step_ms=late_finding.predicted_step_ms if predicted else None,
        predicted_speedup=late_finding.predicted_speedup if predicted else None,
        predicted_low_ms=late_finding.predicted_low_ms if predicted else None,
        predicted_high_ms=late_finding.predicted_high_ms if predicted else None,
        prediction_note=" ".join(filter(None, (finding.prediction_note, BOUNDED.format(title=late_finding.title)))),
        edits=(),
    )
