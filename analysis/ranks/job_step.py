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
from sawtooth.analysis.metrics.registry import readings_of
from sawtooth.analysis.metrics.step_time import BestStepTime, choose_step_time
from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence, StepWork
from sawtooth.analysis.ranks.stragglers.detection import LEAST_SHARE
from sawtooth.analysis.run.job import Communication
from sawtooth.analysis.run.model import LedgerRow, RankResult
from sawtooth.analysis.run.scaled_ledger import NOTHING_MS, at_best, scaled_to
from sawtooth.analysis.run.verdict import busy_ms
from sawtooth.analysis.telemetry.job_law import TracedDevice, by_utilization
from sawtooth.analysis.telemetry.run_telemetry import RunTelemetry, other_time_note

if TYPE_CHECKING:
    from sawtooth.analysis.store.library import Library

WAITS = ("exposed_comm", "comm_wait")  # owner and cause of the time that a rank waits for others
PIPELINE = "in a pipeline, every stage waits at times"
SHARED = "another process shares one of the GPUs"
TOGETHER = (
    "{ranks} ranks replayed together without the profiler's cost: in each collective a rank waits until the others arrive."
)


def at_job_step(
    library: Library,
    ranks: Sequence[RankResult],
    measured: Sequence[DeviceMeasurements],
    communication: Communication | None,
    telemetry: RunTelemetry,
) -> list[RankResult]:
    """Return the ranks with their job's step time if the joint replay shows it, else with uncertain waits.

    ``measured`` has the inputs of the ranks' metrics, in the same order.
    """
    lead = leading(ranks, communication)
    if lead is None or communication is None or communication.step_ms is None:
        return [replace(r, metrics=trust.unsure_of_waits(r.metrics, _may_wait_ms(r), r.best.source)) for r in ranks]
    works = own_works(ranks, communication)
    best = job_step_time(ranks, lead, works, communication.step_ms, _by_gpus(library, ranks, communication, telemetry))
    results = []
    for rank, of_rank in zip(ranks, measured, strict=True):
        mine = replace(best, profiled=rank.best.profiled, mean_ms=rank.best.mean_ms)
        ledger = in_job(rank.ledger, mine)
        works_ms = busy_ms(mine, ledger, of_rank.counted) if of_rank.counted else None
        metrics = readings_of(replace(of_rank, best=mine, works_ms=works_ms))
        metrics = trust.apply(metrics, rank.facts, truncated=rank.trace.truncated, outlier_doubts=of_rank.outlier_doubts)
        results.append(replace(rank, best=mine, ledger=ledger, metrics=metrics))
    return results


def measured_ms(
    library: Library, ranks: Sequence[RankResult], communication: Communication, telemetry: RunTelemetry
) -> float | None:
    """Return the job's step from the run's own marks, else from its GPUs' utilization, else None."""
    marks = _highest(w for rank in ranks for w in rank.best.evidence if w.source == "marks")
    evidence = marks or _by_gpus(library, ranks, communication, telemetry)
    return evidence.ms if evidence is not None else None


def _by_gpus(
    library: Library, ranks: Sequence[RankResult], communication: Communication, telemetry: RunTelemetry
) -> StepTimeEvidence | None:
    works = own_works(ranks, communication)
    if len(works) < len(ranks):
        return None
    workers = [TracedDevice(rank.recording_id, rank.device, work) for rank, work in zip(ranks, works, strict=True)]
    shared = [rank.trace for rank in ranks if all(clock.shares(rank.trace.clock) for clock in telemetry.clocks.values())]
    profiles = [trace.span_ns for trace in shared if trace.span_ns is not None]
    if any(other_time_note(sampled, profile) for sampled in telemetry.devices for profile in profiles):
        return None
    only_bounds = PIPELINE if communication.pipeline else SHARED if _shared(communication) else None
    return by_utilization(library, telemetry, workers, profiles, communication.in_turn_ms * 1e6, only_bounds)


def _shared(communication: Communication) -> bool:
    """Return whether another process shares a GPU of the job; utilization then includes its work."""
    *shorter, longest = sorted(waits.held_ms for waits in communication.ranks)
    return longest - median(shorter) >= LEAST_SHARE * (communication.step_ms or 0.0) > 0


def _may_wait_ms(rank: RankResult) -> float:
    """Return the exposed communication per step that may be waiting (all, if no rank shows the transfer)."""
    rows = (row for row in rank.ledger if row.owner == "exposed_comm" and row.cause in trust.MAY_WAIT)
    return math.fsum(row.ms_per_step or 0.0 for row in rows)


def leading(ranks: Sequence[RankResult], communication: Communication | None) -> RankResult | None:
    """Return the rank that determines the job's step; None without GPU work.

    That is the first straggler whose trace is in the run, else the rank that waits least. The steps do not show it, because
    collectives make them equal on all ranks. Without a joint replay, the profiled waits decide.
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
    """Return the exposed time per step, as recorded, in which the rank waited for others."""
    return math.fsum(row.ms_per_step or 0.0 for row in rank.ledger if (row.owner, row.cause) == WAITS)


def own_works(ranks: Sequence[RankResult], communication: Communication) -> list[StepWork]:
    """Return the known GPU work of each rank in a step.

    It excludes waits for others in collectives, and the time that kernels lose to these waits.
    """
    works = []
    for rank, waits in zip(ranks, communication.ranks, strict=True):
        spared_ns = (_waited_ms(rank) + waits.slowed_ms) * 1e6
        if rank.work is not None:
            works.append(replace(rank.work, kernel_ns=rank.work.kernel_ns - spared_ns, communication_ns=0.0))
    return works


def job_step_time(
    ranks: Sequence[RankResult],
    lead: RankResult,
    own: Sequence[StepWork],
    step_ms: float,
    telemetry: StepTimeEvidence | None = None,
) -> BestStepTime:
    """Return the job's step time.

    ``own`` is its GPUs' own work, ``step_ms`` the joint replay's step, ``telemetry`` the step from utilization. No step is
    shorter than the work of the rank with the most work.
    """
    work = None
    if own:
        largest = max(own, key=lambda candidate: candidate.occupied_ns)
        work = replace(
            largest,
            hidden_loader=any(w.hidden_loader for w in own),
            loading_ns=max(w.loading_ns for w in own),
            loading_least_ns=max(w.loading_least_ns for w in own),
        )
    notes = [*lead.best.estimate.notes, TOGETHER.format(ranks=len(ranks))]
    candidates = [evidence for rank in ranks for evidence in rank.best.evidence]
    user = next((evidence.ms for evidence in candidates if evidence.source == "user"), None)
    return choose_step_time(
        lead.steps,
        StepEstimate(step_ms * 1e6, notes=tuple(notes)),
        user,
        work=work,
        telemetry=telemetry or _highest(w for w in candidates if w.source == "telemetry" and w.ms is None),
        marks=_highest(w for w in candidates if w.source == "marks"),
    )


def in_job(ledger: Sequence[LedgerRow], best: BestStepTime) -> list[LedgerRow]:
    """Return a rank's ledger with an unprofiled column that sums to the job's step.

    Time that the rank itself does not need is waiting. The replay of one rank would keep its collectives as long as recorded, with
    the profiler's cost on other ranks.
    """
    job_ms, rows = best.estimate.value, list(ledger)
    if job_ms is None or not any(row.ms_per_step_unprofiled_est is not None for row in rows):
        return rows
    waits = [i for i, row in enumerate(rows) if (row.owner, row.cause) == WAITS]
    needs = math.fsum(row.ms_per_step_unprofiled_est or 0.0 for i, row in enumerate(rows) if i not in waits)
    waited = job_ms - needs if job_ms - needs >= NOTHING_MS else 0.0
    if waits:
        rows[waits[0]] = replace(rows[waits[0]], ms_per_step_unprofiled_est=waited)
    elif waited:
        rows.append(LedgerRow(rows[0].device, *WAITS, 0, 0.0, waited, 0.0))
    return at_best(scaled_to(rows, job_ms), best)


def _highest(candidates: Iterable[StepTimeEvidence]) -> StepTimeEvidence | None:
    return max(candidates, key=lambda w: w.ms if w.ms is not None else w.low_ms, default=None)
