"""The step time of a job. Collectives make the steps of all ranks equal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from sawtooth.analysis.metrics import trust
from sawtooth.analysis.metrics.device_facts import StepEstimate
from sawtooth.analysis.metrics.metric import DeviceMeasurements
from sawtooth.analysis.metrics.pauses import Pauses
from sawtooth.analysis.metrics.registry import readings_of
from sawtooth.analysis.metrics.step_time import BestStepTime, choose_step_time
from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence, StepWork
from sawtooth.analysis.ranks.stragglers.detection import MIN_GAIN_SHARE
from sawtooth.analysis.ranks.stragglers.rare_stalls import rare_stalls
from sawtooth.analysis.run.job import Communication, EqualHostsStep
from sawtooth.analysis.run.model import LedgerRow, RankResult
from sawtooth.analysis.run.scaled_ledger import NOTHING_MS, at_best, scaled_to
from sawtooth.analysis.run.verdict import busy_ms
from sawtooth.analysis.telemetry.job_law import TracedDevice, by_utilization
from sawtooth.analysis.telemetry.run_telemetry import RunTelemetry, other_time_note
from sawtooth.ingest.loop.step_parts import STALL

if TYPE_CHECKING:
    from sawtooth.analysis.store.library import Library

# Share of a rank's pauses. If the other ranks' steps are shorter than this rank's by at least this share of its pauses, they
# do not wait for it.
SAME_LENGTH = 0.5
WAIT_FOR_RANKS = ("exposed_comm", "comm_wait")  # This owner and cause in the ledger is a rank's wait for other ranks.
LAUNCHES = ("idle", "launch_bound")  # The GPU waits for the host's launches.
PIPELINE_REASON = "in a pipeline, every stage waits at times"
SHARED_GPU_REASON = "another process shares one of the GPUs"
JOINT_REPLAY_NOTE = (
    "{ranks} ranks replayed together without the profiler's cost: in each collective a rank waits until the others arrive."
)


def at_job_step(
    library: Library,
    ranks: Sequence[RankResult],
    measured: Sequence[DeviceMeasurements],
    communication: Communication | None,
    telemetry: RunTelemetry,
) -> list[RankResult]:
    """Return the ranks with their job's step time, or with waits marked as uncertain if it is unknown.

    The joint replay shows the job's step time. ``measured`` has the inputs of the ranks' metrics, in the same order.
    """
    lead = leading_rank(ranks, communication)
    if lead is None or communication is None or communication.step_ms is None:
        return [replace(r, metrics=trust.unsure_of_waits(r.metrics, _may_wait_ms(r), r.best.source)) for r in ranks]
    works = own_works(ranks, communication)
    best = job_step_time(
        ranks, lead, works, communication.step_ms, _step_from_utilization(library, ranks, communication, telemetry)
    )
    if best.source == "marks" and (stalls := rare_stalls(library, ranks, telemetry)) is not None:
        best = with_stalls(best, stalls)
    results = []
    for rank, of_rank, waits in zip(ranks, measured, communication.ranks, strict=True):
        best_of_rank = replace(best, profiled=rank.best.profiled, mean_ms=rank.best.mean_ms)
        ledger = ledger_at_job_step(rank.ledger, best_of_rank, waits.equal_hosts)
        works_ms = busy_ms(best_of_rank, ledger, of_rank.counted) if of_rank.counted else None
        metrics = readings_of(replace(of_rank, best=best_of_rank, works_ms=works_ms))
        metrics = trust.apply(metrics, rank.facts, truncated=rank.trace.truncated, outlier_doubts=of_rank.outlier_doubts)
        results.append(replace(rank, best=best_of_rank, ledger=ledger, metrics=metrics))
    return results


def measured_step_ms(
    library: Library, ranks: Sequence[RankResult], communication: Communication, telemetry: RunTelemetry
) -> float | None:
    """Return the job's step from the run's step marks, else from its GPUs' utilization, else None."""
    marks = _longest_step(w for rank in ranks for w in rank.best.evidence if w.source == "marks")
    evidence = marks or _step_from_utilization(library, ranks, communication, telemetry)
    return evidence.ms if evidence is not None else None


def _step_from_utilization(
    library: Library, ranks: Sequence[RankResult], communication: Communication, telemetry: RunTelemetry
) -> StepTimeEvidence | None:
    """Return the job's step from GPU utilization.

    None if a rank's GPU work is unknown, or if telemetry and a profile are of different times.
    """
    works = own_works(ranks, communication)
    if len(works) < len(ranks):
        return None
    devices = [TracedDevice(rank.recording_id, rank.device, work) for rank, work in zip(ranks, works, strict=True)]
    on_same_clock = [rank.trace for rank in ranks if all(clock.shares(rank.trace.clock) for clock in telemetry.clocks.values())]
    profiles = [trace.span_ns for trace in on_same_clock if trace.span_ns is not None]
    if any(other_time_note(sampled, profile) for sampled in telemetry.devices for profile in profiles):
        return None
    only_bounds = PIPELINE_REASON if communication.pipeline else SHARED_GPU_REASON if _shares_gpu(communication) else None
    return by_utilization(library, telemetry, devices, profiles, communication.in_turn_ms * 1e6, only_bounds)


def _shares_gpu(communication: Communication) -> bool:
    """Return whether another process shares a GPU of the job; utilization then includes its work."""
    *shorter, longest = sorted(waits.interrupted_ms for waits in communication.ranks)
    return longest - median(shorter) >= MIN_GAIN_SHARE * (communication.step_ms or 0.0) > 0


def _may_wait_ms(rank: RankResult) -> float:
    """Return the exposed communication that may be waiting, in ms per step.

    That is all of it if no rank shows the transfer time.
    """
    rows = (row for row in rank.ledger if row.owner == "exposed_comm" and row.cause in trust.MAY_WAIT)
    return math.fsum(row.ms_per_step or 0.0 for row in rows)


def leading_rank(ranks: Sequence[RankResult], communication: Communication | None) -> RankResult | None:
    """Return the rank that determines the job's step; None without GPU work.

    That is the first straggler whose trace is in the run, else the rank that waits least. The step times do not show this rank,
    because collectives make them equal on all ranks. Without a joint replay, the profiled waits decide.
    """
    late = communication.stragglers if communication is not None else ()
    if (first := next((position for straggler in late for position in straggler.positions), None)) is not None:
        return ranks[first]
    if communication is None or communication.step_ms is None:
        return max(ranks, key=_step_ms_and_device) if ranks else None
    replayed = [waits for waits in communication.ranks if waits.unprofiled_wait_ms is not None]
    return ranks[min(replayed, key=lambda waits: waits.unprofiled_wait_ms or 0.0).position]


def _step_ms_and_device(rank: RankResult) -> tuple[float, int]:
    value = rank.metrics["step_time_ms"].value
    return (value - _waited_ms(rank) if value is not None else -1.0, rank.window_ns)


def _waited_ms(rank: RankResult) -> float:
    """Return the exposed time in which the rank waited for others, in ms per profiled step."""
    return math.fsum(row.ms_per_step or 0.0 for row in rank.ledger if (row.owner, row.cause) == WAIT_FOR_RANKS)


def own_works(ranks: Sequence[RankResult], communication: Communication) -> list[StepWork]:
    """Return the GPU work per step of each rank for which it is known.

    The work excludes waits for other ranks in collectives, and the time by which these waits slow kernels.
    """
    works = []
    for rank, waits in zip(ranks, communication.ranks, strict=True):
        excluded_ns = (_waited_ms(rank) + waits.slowed_ms) * 1e6
        if rank.work is not None:
            works.append(replace(rank.work, kernel_ns=rank.work.kernel_ns - excluded_ns, communication_ns=0.0))
    return works


def job_step_time(
    ranks: Sequence[RankResult],
    lead: RankResult,
    own: Sequence[StepWork],
    step_ms: float,
    telemetry: StepTimeEvidence | None = None,
) -> BestStepTime:
    """Return the job's step time.

    ``own`` is the work of the job's GPUs (of ``own_works``), ``step_ms`` the joint replay's step, and ``telemetry`` the step from
    utilization. The result is at least the work of the rank with the most work.
    """
    work = None
    if own:
        largest = max(own, key=lambda candidate: candidate.occupied_ns)
        work = replace(
            largest,
            hidden_loader=any(work_of_rank.hidden_loader for work_of_rank in own),
            loading_ns=max(work_of_rank.loading_ns for work_of_rank in own),
            loading_least_ns=max(work_of_rank.loading_least_ns for work_of_rank in own),
        )
    notes = [*lead.best.estimate.notes, JOINT_REPLAY_NOTE.format(ranks=len(ranks))]
    candidates = [evidence for rank in ranks for evidence in rank.best.evidence]
    user = next((evidence.ms for evidence in candidates if evidence.source == "user"), None)
    return choose_step_time(
        lead.steps,
        StepEstimate(step_ms * 1e6, notes=tuple(notes)),
        user,
        work=work,
        telemetry=telemetry or _longest_step(w for w in candidates if w.source == "telemetry" and w.ms is None),
        marks=marks_of_job([(rank.rank, w) for rank in ranks for w in rank.best.evidence if w.source == "marks"]),
    )


def ledger_at_job_step(
    ledger: Sequence[LedgerRow], best: BestStepTime, equal_hosts: EqualHostsStep | None = None
) -> list[LedgerRow]:
    """Return a rank's ledger with an unprofiled column that sums to the job's step.

    Time that the rank itself does not need is waiting for other ranks. The replay of the rank alone does not show this wait: it
    keeps the recorded lengths of collectives, which include the profiler's cost on other ranks.

    ``equal_hosts`` is the rank's step with equally fast hosts. It shows which part of a wait only fills the time in which the
    hosts launch.
    """
    job_ms, rows = best.estimate.value, list(ledger)
    if job_ms is None or not any(row.ms_per_step_unprofiled_est is not None for row in rows):
        return rows
    waits = [i for i, row in enumerate(rows) if (row.owner, row.cause) == WAIT_FOR_RANKS]
    needs = math.fsum(row.ms_per_step_unprofiled_est or 0.0 for i, row in enumerate(rows) if i not in waits)
    waited = job_ms - needs if job_ms - needs >= NOTHING_MS else 0.0
    if waits:
        rows[waits[0]] = replace(rows[waits[0]], ms_per_step_unprofiled_est=waited)
    elif waited:
        rows.append(LedgerRow(rows[0].device, *WAIT_FOR_RANKS, 0, 0.0, waited, 0.0))
    rows = at_best(scaled_to(rows, job_ms), best)
    return rows if equal_hosts is None else _as_launches(rows, equal_hosts)


def _as_launches(rows: list[LedgerRow], equal_hosts: EqualHostsStep) -> list[LedgerRow]:
    """Return ``rows`` with a part of the wait for other ranks as time of launches.

    With equally fast hosts, the rank waits for others for a shorter time, because its own host launches for a longer time. The
    part is at most the time by which this wait is shorter, and at most the time by which the GPU is idle for longer.
    """
    at = {(row.owner, row.cause): i for i, row in enumerate(rows)}
    if WAIT_FOR_RANKS not in at:
        return rows
    waits = rows[at[WAIT_FOR_RANKS]]
    waited = waits.ms_per_step_unprofiled_est or 0.0
    idle = math.fsum(row.ms_per_step_unprofiled_est or 0.0 for row in rows if row.owner == "idle")
    times = math.fsum(row.ms_per_step_unprofiled_est or 0.0 for row in rows) / equal_hosts.step_ms
    launched = min(waited - times * equal_hosts.wait_ms, times * equal_hosts.idle_ms - idle)
    if launched < NOTHING_MS:
        return rows
    if LAUNCHES not in at:
        at[LAUNCHES], rows = len(rows), [*rows, LedgerRow(waits.device, *LAUNCHES, 0, 0.0, 0.0, 0.0)]
    launches = rows[at[LAUNCHES]]
    rows[at[WAIT_FOR_RANKS]] = replace(waits, ms_per_step_unprofiled_est=waited - launched)
    rows[at[LAUNCHES]] = replace(launches, ms_per_step_unprofiled_est=(launches.ms_per_step_unprofiled_est or 0.0) + launched)
    return rows


def marks_of_job(by_rank: Sequence[tuple[int | None, StepTimeEvidence]]) -> StepTimeEvidence | None:
    """Return the step time of the job's marks, with the ranks of pauses that not all ranks have.

    It is that of a rank with the most kinds of known pauses, because ranks that wait for an evaluation cannot name it. Among
    equals, the longest step decides.
    """
    kinds = [{pause.reason for pause in marks.pauses} - {"unknown"} for _, marks in by_rank]
    if not by_rank:
        return None
    chosen = max(range(len(by_rank)), key=lambda i: (len(kinds[i]), by_rank[i][1].ms or 0.0))
    marks, pauses = by_rank[chosen][1], []
    for pause in marks.pauses:
        pausing = [rank for (rank, _), reasons in zip(by_rank, kinds, strict=True) if pause.reason in reasons]
        waiting = [w for (_, w), reasons in zip(by_rank, kinds, strict=True) if pause.reason not in reasons]
        as_long = _with_pauses_ms(marks) - SAME_LENGTH * pause.ms_per_step
        others_wait = pause.reason != "unknown" and waiting and all(_with_pauses_ms(w) >= as_long for w in waiting)
        pauses.append(replace(pause, ranks=tuple(rank for rank in pausing if rank is not None)) if others_wait else pause)
    # In a job with rounds all ranks make rollouts, so the evaluation of some ranks begins no round.
    of_some = any(pause.ranks for pause in pauses) and marks.round is not None and marks.round.evaluates
    return replace(marks, pauses=tuple(pauses), round=None if of_some else marks.round)


def with_stalls(best: BestStepTime, stalls: Pauses) -> BestStepTime:
    """Return the step time with the rare stalls of a rank, as pauses and as unprofiled time."""
    evidence = [replace(w, pauses=(*w.pauses, stalls)) if w.source == "marks" else w for w in best.evidence]
    parts = best.parts
    if parts is not None:
        parts = replace(parts, apart_ms=(*parts.apart_ms, (STALL, stalls.ms_per_step)))
    return replace(best, evidence=tuple(evidence), parts=parts)


def _with_pauses_ms(marks: StepTimeEvidence) -> float:
    """Return the mean step including the pauses between steps, in ms."""
    return (marks.ms or 0.0) + sum(pause.ms_per_step for pause in marks.pauses if not pause.in_step)


def _longest_step(candidates: Iterable[StepTimeEvidence]) -> StepTimeEvidence | None:
    return max(candidates, key=lambda w: w.ms if w.ms is not None else w.low_ms, default=None)
