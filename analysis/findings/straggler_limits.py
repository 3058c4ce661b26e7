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

PROFILED_FACTOR = 2.0  # Largest ratio of host time in the profile to the same time outside it.
MIN_LEADER_SHARE = 0.5  # Share of all waiting. A rank that causes less is only one of several late ranks.
MAX_PEER_SHARE = 0.5  # Of a rank's loss to a cause. If the peers lose at most this share, the rank loses the time alone.
SAME_GAIN = 1.05  # Largest ratio of two predicted gains of the same change.
# If such a cause makes a rank late, one change removes the whole delay. The two findings then become one.
WHOLE_DELAY_CAUSES = frozenset({"blocking_copy"})
OTHERS_WAIT = "the other ranks wait for it"
LIMITED_NOTE = (
    "The other ranks hardly lose this time. The job's gain is at most that of “{title}”, which includes the same time."
)


def waited_for_ms(communication: Communication, straggler: Straggler) -> float:
    """Return the average wait of each other rank for ``straggler``, ms per recorded step.

    0 if most of the job's waiting is for other ranks.
    """
    waits = {rank.position: rank.late_ms for rank in communication.ranks}
    for_straggler_ms = math.fsum(waits.get(position, 0.0) for position in straggler.positions)
    return for_straggler_ms if for_straggler_ms > MIN_LEADER_SHARE * math.fsum(waits.values()) else 0.0


def wait_difference_ms(communication: Communication) -> float | None:
    """Return the largest difference of the ranks' replayed waits, ms per step; None if one is missing."""
    waits = [waits.unprofiled_wait_ms for waits in communication.ranks]
    known_ms = [ms for ms in waits if ms is not None]
    return max(known_ms) - min(known_ms) if len(known_ms) == len(waits) else None


def is_run_step_known(context: RuleContext) -> bool:
    """Return whether the run's own step time is known, from telemetry, marks or a stopwatch."""
    return context.telemetry is not None or STEP_SOURCES[context.rank.best.source].timed


def explained_by_pauses(context: RuleContext, late: Straggler) -> bool:
    """Return whether evaluations or checkpoints of only the rank ``late`` explain its delay."""
    return any(
        pause.ranks and set(late.ranks) <= set(pause.ranks) and late.own_ms <= PROFILED_FACTOR * pause.ms_per_step
        for pause in context.rank.best.pauses
    )


def stalls_in_few_steps(context: RuleContext, *reasons: str) -> Straggler | None:
    """Return the straggler that is the analysed rank alone and stalls in a few steps, or None.

    With ``reasons``, only stalls for one of the reasons count. Another finding, which names the rank, states the size of
    these stalls in the whole run. The few profiled steps do not show it.
    """
    ranks, communication = context.run.ranks, context.run.communication
    stragglers = communication.stragglers if communication is not None else ()
    alone = (late for late in stragglers if len(late.positions) == 1 and ranks[late.positions[0]] is context.rank)
    return next((late for late in alone if not late.in_most_steps and (not reasons or late.reason in reasons)), None)


def function_sentence(context: RuleContext, straggler: Straggler) -> str:
    """Return a sentence about the function with most of a late rank's Python time.

    Empty if the trace has no Python calls, or if the rank is late for another reason.
    """
    ranks = [context.run.ranks[position] for position in straggler.positions]
    is_analysed_rank = len(ranks) == 1 and ranks[0] is context.rank
    if straggler.reason != "python_host" or not is_analysed_rank or not context.rank.trace.with_stack:
        return ""
    function = heaviest_function(context.recording, context.rank.device, "python_host")
    return f" Of its Python time, {function}." if function else ""


def limit_straggler_gains(context: RuleContext, findings: list[Finding]) -> list[Finding]:
    """Limit the gains of a late rank's own losses to the job's gain without the delay.

    The replay predicts these gains for the late rank alone, but the ranks that wait for this rank do not get faster.
    """
    late_finding = _late_finding(findings)
    if late_finding is None:
        return findings
    own_causes = _causes_lost_alone(context)
    if (own_finding := _own_finding(findings, late_finding, own_causes & WHOLE_DELAY_CAUSES)) is not None:
        other_findings = [finding for finding in findings if finding not in (own_finding, late_finding)]
        return [*other_findings, _merged_finding(own_finding, late_finding)]
    return [
        _limited_finding(finding, late_finding) if own_causes & set(finding.explains.causes) else finding
        for finding in findings
    ]


def _own_finding(findings: Sequence[Finding], late: Finding, causes: frozenset[str]) -> Finding | None:
    """Return the late rank's own finding with the largest gain about ``causes``."""
    about_causes = [
        finding for finding in findings if causes & set(finding.explains.causes) and finding.predicted_step_ms is not None
    ]
    largest = max(about_causes, key=lambda finding: finding.gain_ms, default=None)
    return largest if largest is not late else None


def _merged_finding(own_finding: Finding, late: Finding) -> Finding:
    """Return one finding for the late rank's own finding and the finding on its delay."""
    limited = _limited_finding(own_finding, late)
    return replace(
        limited,
        title=f"{own_finding.title}; {OTHERS_WAIT}",
        severity=min(limited.severity, late.severity, key=SEVERITIES.index),
        explains=replace(own_finding.explains, topics=own_finding.explains.topics | late.explains.topics),
        evidence=(*own_finding.evidence, *late.evidence),
        prediction_note=" ".join(filter(None, (limited.prediction_note, f"{late.title}."))),
    )


def is_visibly_late(context: RuleContext, late_finding: Finding, _host: Finding) -> bool:
    """Return whether other ranks wait for a rank, and recording did not make that rank late.

    Other findings on the host are estimates, and a slow host of all ranks does not explain such waits.
    """
    communication = context.run.communication
    if communication is None or late_finding.predicted_step_ms is None:
        return False
    first = communication.stragglers[0]
    may_be_recording = first.reason in CAUSE_OF and CAUSE_OF[first.reason].slowed
    return not may_be_recording and bool(waited_for_ms(communication, first))


def _late_finding(findings: Sequence[Finding]) -> Finding | None:
    return next((f for f in findings if "late_rank" in f.explains.topics and f.predicted_step_ms is not None), None)


def _causes_lost_alone(context: RuleContext) -> frozenset[str]:
    """Return the causes that make the analysed rank late and cost its peers much less time."""
    ranks, communication = context.run.ranks, context.run.communication
    own_device = (context.rank.recording_id, context.rank.device)
    own_position = next((i for i, rank in enumerate(ranks) if (rank.recording_id, rank.device) == own_device), -1)
    stragglers = communication.stragglers if communication is not None else ()
    late_positions = {position for straggler in stragglers for position in straggler.positions}
    peers = [rank for i, rank in enumerate(ranks) if i not in late_positions]
    if not peers:
        return frozenset()
    own_reasons = {straggler.reason for straggler in stragglers if own_position in straggler.positions}
    causes = [reason for reason in own_reasons if reason is not None and reason in CAUSE_OF]

    def peers_hardly_lose(cause: str) -> bool:
        peer_ms = median(context.lost_ms(cause, rank=peer) for peer in peers)
        return peer_ms <= MAX_PEER_SHARE * context.lost_ms(cause)

    return frozenset(cause for cause in causes if peers_hardly_lose(cause))


def _limited_finding(finding: Finding, late_finding: Finding) -> Finding:
    """Return ``finding`` with at most the severity and gain of ``late_finding``, and without edits.

    Joint predictions use edits, but this gain belongs to one rank only.
    """
    is_predicted = finding.predicted_step_ms is not None
    if finding is late_finding or late_finding.predicted_step_ms is None:
        return finding
    if is_predicted and finding.gain_ms <= SAME_GAIN * late_finding.gain_ms:
        return finding
    return replace(
        finding,
        severity=max(finding.severity, late_finding.severity, key=SEVERITIES.index),
        ceiling_ms_per_step=min(finding.ceiling_ms_per_step or late_finding.gain_ms, late_finding.gain_ms),
        predicted_step_ms=late_finding.predicted_step_ms if is_predicted else None,
        predicted_speedup=late_finding.predicted_speedup if is_predicted else None,
        predicted_low_ms=late_finding.predicted_low_ms if is_predicted else None,
        predicted_high_ms=late_finding.predicted_high_ms if is_predicted else None,
        prediction_note=" ".join(filter(None, (finding.prediction_note, LIMITED_NOTE.format(title=late_finding.title)))),
        edits=(),
    )
