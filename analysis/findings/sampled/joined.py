"""Statements that telemetry alone makes about a run, checked against the profile of the same run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sawtooth.analysis.findings.sampled.from_telemetry import SampledHost, observed_slug
from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.run.model import Finding, RankResult, RunResult
from sawtooth.analysis.run.verdict import busy_share_of_best
from sawtooth.analysis.telemetry.diagnosis.observation import Observation
from sawtooth.analysis.telemetry.representativeness import StatementState, TelemetryStatement
from sawtooth.analysis.telemetry.summary import DeviceTelemetry
from sawtooth.analysis.units import in_words, percent

StateAndReason = tuple[StatementState, str]

# Share of the time. Utilization counts windows, while a profile counts kernels, so they differ by a few percent.
MAX_SHARE_DIFFERENCE = 0.1
SAME_PERIOD = 0.005  # Periods with a smaller relative difference have the same two or three digits.
MAX_PERIOD_DIFFERENCE = 0.2  # Periods that differ by at most this share belong to the same sawtooth.
SAME_ACTIVITY = 0.15  # Share of the SMs. The counter measures their activity, while the profile only gives an estimate.
# If dips are at most this many steps apart, they belong to the steps, so a profile of whole steps shows their cause.
SHORT_STEP = 3.0
# The causes and rules of a profile that agree with the likely source by the samples.
SAME_SOURCE = {
    "data loader": {"data_wait", "data-loader-starves-gpu", "batches-in-bursts", "samples-prepared-alone"},
    "checkpoint": {"checkpoint-in-the-loop"},
    "evaluation": {"evaluation-records-graph"},
    "checkpoint or evaluation": {"checkpoint-in-the-loop", "evaluation-records-graph"},
}
NOT_IN_PROFILE = {
    "idle-stretch": "The profile covers some steps, not that time.",
    "several-jobs": "The profile covers some steps of one job.",
    "irregular-dips": "The profile covers some steps, not those times.",
    "host-memory": "A profile does not record the host's memory.",
    "utilization-trend": "The profile covers some steps, not the change over time.",
    "memory-growth": "The profile has too few steps, or no allocations, to show it.",
    "narrow-pcie-link": "A profile does not record the state of the link.",
    "memory-errors": "A profile does not record error counters.",
    "xid-error": "A profile does not record errors of the driver.",
    "gpu-lost": "The profile covers some steps, not that time.",
    "several-processes": "The profile covers only one process.",
    "gpu-unlike-peers": "The profile has too few of these GPUs.",
}
NO_CLOCKS = "A profile does not record clocks or the reasons for throttling."


def statements(result: RunResult, lead: RankResult, hosts: Sequence[SampledHost], findings: Sequence[Finding]) -> tuple[TelemetryStatement, ...]:  # fmt: skip
    """Return the samples' statements, checked against the profile; empty if its GPU was not sampled."""
    sampled = lead.telemetry
    if sampled is None or sampled.profiled:
        return ()
    judged = list(_in_use(lead, sampled))
    for host in hosts:
        for observation in host.observed:
            is_lead_gpu = host.recording_id == sampled.recording_id and sampled.device in observation.devices
            state, reason = (
                _judgement(observation, result, lead, findings)
                if is_lead_gpu
                else ("telemetry alone", "The profile is of another GPU.")
            )
            judged.append(TelemetryStatement(host.name_gpus(observation.title), state, reason))
    return tuple(judged)


def _in_use(lead: RankResult, sampled: DeviceTelemetry) -> Iterator[TelemetryStatement]:
    """Yield the share of time in which the GPU works, compared with the profile's share of the run's step.

    A step time by telemetry uses the same samples. Then the profile confirms the share if its own estimate of the step agrees.
    """
    works, busy, represents = sampled.works_pct, busy_share_of_best(lead), lead.represents
    if works is None or busy is None:
        return
    title = f"The samples show the GPU in use {works:.0f} % of the time"
    state: StatementState = "confirmed" if abs(busy - works / 100) <= MAX_SHARE_DIFFERENCE else "corrected"
    only = "only " if busy < works / 100 - MAX_SHARE_DIFFERENCE else ""
    reason = f"The profile shows it busy {only}{percent(busy)} of the run's step."
    if represents is not None and represents.represents is False:
        state, reason = "telemetry alone", "The profiled steps do not represent the run, so they cannot show it."
    elif lead.best.source == "telemetry" and (represents is None or not represents.represents):
        state, reason = "telemetry alone", "The step time comes from the same samples, so the profile cannot check this share."
    yield TelemetryStatement(title, state, reason)


def _judgement(observation: Observation, result: RunResult, lead: RankResult, findings: Sequence[Finding]) -> StateAndReason:
    """Return the state of a statement about the profiled GPU, and the reason for it."""
    if observation.kind == "utilization-sawtooth":
        return _sawtooth(observation, result, lead, findings)
    if observation.kind in ("low-activity", "memory-bound"):
        return _activity(observation, lead)
    same_finding = next((f for f in findings if f.rule == observed_slug(observation.kind) and not f.observed), None)
    if same_finding is not None and observation.kind == "memory-growth":
        return "confirmed", f"The profile shows it too: {same_finding.title}"
    if observation.kind == "gpu-unlike-peers" and result.communication is not None and len(result.ranks) > 1:
        late_ranks = [rank for straggler in result.communication.stragglers for rank in straggler.ranks]
        if lead.rank in late_ranks:
            return "confirmed", f"The profile finds rank {lead.rank} late."
        return "corrected", "The profile of the ranks finds none of them late on this GPU."
    return "telemetry alone", NOT_IN_PROFILE.get(observation.kind, NO_CLOCKS)


def _sawtooth(observation: Observation, result: RunResult, lead: RankResult, findings: Sequence[Finding]) -> StateAndReason:
    """Compare the likely source of dips by the samples with the profile's cause of the lost time in dips."""
    period_ms, source = 1e3 * observation.value, str(observation.details["source"])
    troughs, step_ms = result.troughs, lead.best.ms
    same_causes = SAME_SOURCE.get(source, set())
    period_s = lead.telemetry.sawtooth.period_s if lead.telemetry is not None else None
    if (
        troughs is not None
        and troughs.causes
        and period_s
        and abs(period_s - observation.value) <= MAX_PERIOD_DIFFERENCE * observation.value
    ):
        cause, ns = troughs.causes[0]
        explanation = f"{CAUSE_OF[cause].label if cause in CAUSE_OF else cause}, {percent(ns / troughs.lost_ns)} of the lost time in the dips"
        if abs(period_s / observation.value - 1) > SAME_PERIOD:
            explanation += f". Without the profiled steps, the period is {in_words(1e3 * period_s)}"
    elif rule := next((f.rule for f in findings if f.rule in same_causes and not f.observed), None):
        return "confirmed", f"The profile finds the same source, the {source} ({rule})."
    elif step_ms and period_ms <= SHORT_STEP * step_ms and (lost := _most_lost(lead)) is not None:
        cause, explanation = lost, f"{CAUSE_OF[lost].label if lost in CAUSE_OF else lost}, which loses most time in a step"
    else:
        return "telemetry alone", "The profile contains no whole dip, so it does not show the source."
    if cause in same_causes:
        return "confirmed", f"The profile shows the same: {explanation}."
    return "corrected", f"The samples suggest the {source}; the profile shows {explanation}."


def _most_lost(lead: RankResult) -> str | None:
    lost: dict[str, int] = {}
    for row in lead.ledger:
        if row.device == lead.device and row.owner == "idle" and row.cause is not None:
            lost[row.cause] = lost.get(row.cause, 0) + row.ns
    return max(lost, key=lambda cause: lost[cause]) if lost else None


def _activity(observation: Observation, lead: RankResult) -> StateAndReason:
    """Judge a low activity of SMs or tensor cores by the profile's kernels."""
    sm, tensor = lead.metrics["sm_efficiency"].value, lead.metrics["tensor_core_time_share"].value
    if observation.kind == "memory-bound" or observation.unit != "percent":
        return "telemetry alone", "The profile has no counters of memory or power."
    if "tensor" in observation.title:
        if tensor is None:
            return "telemetry alone", "The profile does not show which kernels use tensor cores."
        agrees = tensor <= 2 * MAX_SHARE_DIFFERENCE
        return (
            "confirmed" if agrees else "corrected"
        ), f"Kernels that use tensor cores take {percent(tensor)} of the profile's kernel time."
    if sm is None:
        return "telemetry alone", "The profile does not show how many SMs its kernels use."
    profiled, of_run = lead.metrics["gpu_busy_share"].value, busy_share_of_best(lead)
    if profiled and of_run:
        sm = min(sm * of_run / profiled, 1.0)  # The samples are of the run, in which steps wait less.
    agrees = sm <= observation.value / 100 + SAME_ACTIVITY
    reason = f"According to their grid sizes, the profiled kernels use {percent(sm)} of the SMs on average over the run's step."
    return ("confirmed" if agrees else "corrected"), reason
