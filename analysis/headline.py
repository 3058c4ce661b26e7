"""The first sentence about a run: how much of a step the GPU works, and what it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.results import LedgerRow, RankResult

# What each cause says in the sentence "It waits for …"; the words of people, not of the table.
WAITS_FOR = {
    "data_wait": "the data loader",
    "host_sync": "the host, which had stopped to wait for the GPU",
    "blocking_copy": "blocking copies",
    "allocator": "the memory allocator",
    "compilation": "compilation",
    "launch_bound": "the host to launch kernels",
    "python_host": "Python on the host",
    "comm_wait": "other ranks",
    "comm_transfer": "communication",
    "launch_latency": "kernels to start",
    "profiler": "the profiler itself",
    "unattributed": "something the trace does not show",
}
HEALTHY_BUSY = 0.95  # above this, what is lost to waiting is below what changing kernels brings


def losses(rank: RankResult, *, unprofiled: bool | None = None) -> list[LedgerRow]:
    """Return the ledger's lost-time rows, largest first, by the column that speaks for the run.

    That is the unprofiled estimate where there is one, unless ``unprofiled`` chooses.
    """
    rows = [r for r in rank.ledger if r.owner in ("idle", "exposed_memcpy", "exposed_comm")]
    use_estimate = uses_estimate(rank) if unprofiled is None else unprofiled
    key = (lambda r: r.ms_per_step_unprofiled_est or 0.0) if use_estimate else (lambda r: float(r.ns))
    # Launch latency is the hardware's: it is never the answer while anything else was lost.
    return sorted((r for r in rows if key(r) > 0), key=lambda r: (r.cause != "launch_latency", key(r)), reverse=True)


def uses_estimate(rank: RankResult) -> bool:
    """Tell whether the ledger's unprofiled column speaks for this run."""
    return rank.best.source == "estimate" and any(r.ms_per_step_unprofiled_est is not None for r in rank.ledger)


def busy_share_of_best(rank: RankResult) -> float | None:
    """Return the share of the run's own step in which the GPU works; never above 1."""
    counted, best = len(rank.counted), rank.best.ms
    if not counted or not best:
        return rank.metrics["gpu_busy_share"].value
    busy_ns = sum(r.ns for r in rank.ledger if r.owner != "idle")
    return min(busy_ns / counted / 1e6 / best, 1.0)


def waits_for(row: LedgerRow) -> str:
    """Return what the GPU waits for in this row, in words."""
    if row.cause is not None:
        return WAITS_FOR.get(row.cause, row.cause)
    return {"exposed_comm": "communication", "exposed_memcpy": "copies"}.get(row.owner, "the host")
