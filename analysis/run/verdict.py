"""The verdict of a run as numbers: how a step's time is spent, and the largest loss.

The app writes the words. This module decides which column of the ledger represents the run, and what counts as lost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sawtooth.analysis.knowledge.causes import NOT_RANKED_FIRST
from sawtooth.analysis.knowledge.lost_time import UNATTRIBUTED, is_explained
from sawtooth.analysis.knowledge.owners import COMPUTE_OWNERS, LOST_OWNERS, OUTSIDE_PROFILE
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.step_sources import StepSource
from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.run.model import Finding, LedgerRow, RankResult
from sawtooth.analysis.run.scaled_ledger import unseen_ms

STARVED_BELOW = 0.5  # Share of the step. If the GPU is busy for less, the verdict is "starved": the run mostly waits.
# Share of the step. A smaller loss is as small as the effect of batch size or clocks, so the verdict is "compute".
MIN_NAMED_LOSS = 0.10
MAX_OWNS = 0.5  # Share of lost time. The verdict names a cause only if it has at least this share.
EXPLAINS_FROM = 0.5  # Share of the largest loss. A finding whose gain is at least as large explains the loss.
DISTORTED_ABOVE = 0.05  # Within 5 % of the estimate, the profiled step time is as accurate (docs/metrics.md).

Column = Literal["recorded", "unprofiled"]
Kind = Literal["starved", "loss", "compute", "unrepresentative"]


@dataclass(frozen=True)
class StepPart:
    """One part of a step: the time of an owner, or of a cause of lost time.

    The owner of a cause is the one with most of its time. ``ms`` is per step; if the recording has no steps, it is the time
    in the whole window. ``share`` is the share of the column's sum. ``transfer_ms`` is the part of lost time in which the GPU
    copies or communicates; it counts as busy.
    """

    owner: str
    cause: str | None
    ms: float
    share: float
    transfer_ms: float = 0.0

    @property
    def lost(self) -> bool:
        """Whether the time is not computing."""
        return self.owner in LOST_OWNERS or self.owner == OUTSIDE_PROFILE


@dataclass(frozen=True)
class RunJudgement:
    """The verdict on one device.

    ``column`` names the ledger column of ``parts`` (largest first). ``loss`` is the largest loss that a user can change; if no
    cause has most of the lost time, it is all of that time. ``tensor_unknown_share`` is the share of compute time in kernels
    whose tensor-core use is not known.
    """

    kind: Kind
    column: Column
    step: Reading
    profiled: Reading
    step_source: StepSource
    parts: tuple[StepPart, ...]
    busy_share: float
    tensor_share_of_compute: float | None
    loss: StepPart | None
    represented: bool = True
    tensor_unknown_share: float = 0.0

    @property
    def distortion(self) -> float | None:
        """Profiled ÷ best step time; None if they differ by no more than the profile's own uncertainty."""
        if self.step.value is None or self.profiled.value is None or self.step_source == "profile":
            return None
        ratio = self.profiled.value / self.step.value
        return ratio if abs(ratio - 1) > DISTORTED_ABOVE else None


def explains(verdict: RunJudgement, findings: Sequence[Finding]) -> Finding | None:
    """Return the first finding if it explains the verdict, so that both name the same cause.

    The finding must not have low confidence. Its gain must be most of the verdict's loss, or its own timing must show that it
    limits the step. A finding can explain idle time, but not copies or communication. A change that makes all of the host's
    work cheaper, such as a CUDA graph, explains only its own causes, although it gains time for every cause.
    """
    first = next(iter(findings), None)
    if first is None or first.severity == "info" or first.confidence == "low" or verdict.kind == "compute":
        return None
    if first.limits_the_step:
        return first
    lost = 0.0
    if verdict.loss is not None:
        if verdict.loss.owner != "idle":
            return None
        if "host_pace" in first.explains.topics and verdict.loss.cause not in (None, *first.explains.causes):
            return None
        lost = verdict.loss.ms
    if verdict.kind == "unrepresentative" and verdict.step.value is not None:
        lost = (1 - verdict.busy_share) * verdict.step.value
    return first if first.gain_ms >= EXPLAINS_FROM * lost else None


def uses_estimate(rank: RankResult) -> bool:
    """Return whether the ledger's unprofiled column represents this run."""
    return by_estimate(rank.best, rank.ledger)


def by_estimate(best: BestStepTime, ledger: Sequence[LedgerRow]) -> bool:
    """Return whether the ledger's unprofiled column represents a run with this step time."""
    return best.source != "profile" and any(r.ms_per_step_unprofiled_est is not None for r in ledger)


def busy_ms(best: BestStepTime, ledger: Sequence[LedgerRow], counted: int) -> float:
    """Return how long the GPU works in a step, ms, from the column that represents the run.

    Without the profiler, streams overlap differently.
    """
    working = [r for r in ledger if r.owner != "idle"]
    if by_estimate(best, ledger):
        return sum(r.ms_per_step_unprofiled_est or 0.0 for r in working)
    return sum(r.ns for r in working) / counted / 1e6


def busy_share_of_best(rank: RankResult) -> float | None:
    """Return the share of the run's step in which the GPU works; never above 1."""
    counted, best = len(rank.counted), rank.best.ms
    if not rank.ledger:  # A failed check of the recording has emptied it.
        return None
    if not counted or not best:
        return rank.metrics["gpu_busy_share"].value
    return min(busy_ms(rank.best, rank.ledger, counted) / best, 1.0)


def parts_of(rank: RankResult, column: Column) -> tuple[StepPart, ...]:
    """Return the ledger of a device as parts of ``column``, largest first.

    A cause is one part, even if the GPU copied in some of its time and idled in the rest. The run may lose time that no
    profiled step shows. Its owner is ``OUTSIDE_PROFILE``, because unattributed time is time inside the profiled steps.
    """
    merged: dict[tuple[str, str | None], float] = {}
    transfers: dict[tuple[str, str | None], float] = {}
    owners: dict[str, str] = {}
    for row in rank.ledger:
        if row.device == rank.device and (ms := _ms(row, column)):
            # Unexplained time is identified by its owner alone.
            owner = owners.setdefault(row.cause, row.owner) if is_explained(row.cause) else row.owner
            merged[owner, row.cause] = merged.get((owner, row.cause), 0.0) + ms
            if row.owner in LOST_OWNERS and row.owner != "idle":
                transfers[owner, row.cause] = transfers.get((owner, row.cause), 0.0) + ms
    if column == "unprofiled" and uses_estimate(rank) and ("idle", UNATTRIBUTED) in merged:
        unseen = min(unseen_ms(rank.ledger, rank.best), merged["idle", UNATTRIBUTED])
        merged |= {("idle", UNATTRIBUTED): merged["idle", UNATTRIBUTED] - unseen, (OUTSIDE_PROFILE, None): unseen}
    merged = {key: ms for key, ms in merged.items() if ms}
    total = sum(merged.values())
    parts = [StepPart(*key, ms, ms / total, transfers.get(key, 0.0)) for key, ms in merged.items()]
    return tuple(sorted(parts, key=lambda part: -part.ms))


def _ms(row: LedgerRow, column: Column) -> float:
    if column == "unprofiled":
        return row.ms_per_step_unprofiled_est or 0.0
    return row.ms_per_step if row.ms_per_step is not None else row.ns / 1e6


def columns_of(rank: RankResult) -> tuple[Column, ...]:
    """Return the columns of the ledger, the one that represents the run first."""
    if not any(row.ms_per_step_unprofiled_est is not None for row in rank.ledger):
        return ("recorded",)
    return ("unprofiled", "recorded") if uses_estimate(rank) else ("recorded", "unprofiled")


def judge(rank: RankResult) -> RunJudgement | None:
    """Return the verdict on one device; None where its ledger is empty."""
    column = columns_of(rank)[0]
    parts = parts_of(rank, column)
    busy = busy_share_of_best(rank)
    if not parts or busy is None:
        return None
    tensor = sum(p.ms for p in parts if p.owner == "tensor_core_compute")
    compute = sum(p.ms for p in parts if p.owner in COMPUTE_OWNERS)
    loss = _largest_loss(parts)
    return RunJudgement(
        kind=_kind(busy, loss, rank.best.represented),
        column=column,
        step=rank.metrics["best_step_time_ms"],
        profiled=rank.metrics["step_time_ms"],
        step_source=rank.best.source,
        parts=parts,
        busy_share=busy,
        tensor_share_of_compute=tensor / compute if compute else None,
        loss=loss,
        tensor_unknown_share=_unknown_share(rank),
        represented=rank.best.represented,
    )


def _unknown_share(rank: RankResult) -> float:
    """Return the share of compute time whose tensor-core use is not known; 1 if the names failed a check."""
    if rank.metrics["tensor_core_time_share"].value is None:
        return 1.0
    return rank.metrics["tensor_core_unknown_share"].value or 0.0


def _largest_loss(parts: Sequence[StepPart]) -> StepPart | None:
    """Return the largest loss that a user can change, if it has most of the lost time.

    Otherwise return all lost time. Its cause is ``UNATTRIBUTED`` if most of it is unexplained, else None. Time that the
    hardware or the profiler needs does not count as a loss.
    """
    lost = [p for p in parts if p.lost and (p.cause not in NOT_RANKED_FIRST or p.cause == UNATTRIBUTED)]
    if not lost:
        return None
    lost_ms = math.fsum(p.ms for p in lost)
    first = next((p for p in lost if not _is_unexplained(p)), None)
    if first is not None and first.ms >= MAX_OWNS * lost_ms:
        return first
    unexplained = math.fsum(p.ms for p in lost if _is_unexplained(p))
    cause = UNATTRIBUTED if unexplained >= MAX_OWNS * lost_ms else None
    return StepPart("idle", cause, lost_ms, math.fsum(p.share for p in lost), math.fsum(p.transfer_ms for p in lost))


def _is_unexplained(part: StepPart) -> bool:
    """Return whether nothing explains a part; a copy is always explained."""
    return part.owner == OUTSIDE_PROFILE or (part.owner == "idle" and part.cause == UNATTRIBUTED)


def _kind(busy: float, loss: StepPart | None, represented: bool) -> Kind:
    if not represented:
        return "unrepresentative"
    if busy < STARVED_BELOW:
        return "starved"
    return "loss" if loss is not None and loss.share >= MIN_NAMED_LOSS else "compute"
