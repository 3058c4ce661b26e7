"""The ledger's unprofiled column, brought to the run's best step time, so that one step is spoken of everywhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from sawtooth.analysis.knowledge.lost_time import UNATTRIBUTED
from sawtooth.analysis.knowledge.owners import LOST_OWNERS
from sawtooth.analysis.metrics.step_sources import STEP_SOURCES
from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.run.model import LedgerRow

NOTHING_MS = 1e-9  # a femtosecond: what is less cannot be shared out


def at_best(ledger: Sequence[LedgerRow], best: BestStepTime) -> list[LedgerRow]:
    """Return the ledger with an unprofiled column that sums to the best step time.

    The GPU's work stays; what is lost shrinks or grows in proportion, but not beyond what the profiled steps lost: the profiler slows a host
    and never hurries it. Copies and the latency of launches do not grow: no slower host makes them longer. What is then left of the step is in
    no profiled step. Where the work alone is more than the step, it fills it.
    Unchanged where the profile itself is the best witness, or nothing was replayed.
    """
    if best.ms is None or STEP_SOURCES[best.source].of_trace:
        return list(ledger)
    return brought_to(ledger, best.ms)


def brought_to(ledger: Sequence[LedgerRow], step_ms: float) -> list[LedgerRow]:
    """Return the ledger with an unprofiled column that sums to ``step_ms``, as ``at_best`` says; unchanged where nothing was replayed."""
    known = [row for row in ledger if row.ms_per_step_unprofiled_est is not None]
    if not known:
        return list(ledger)
    lost = math.fsum(row.ms_per_step_unprofiled_est or 0.0 for row in known if row.owner in LOST_OWNERS)
    works = math.fsum(row.ms_per_step_unprofiled_est or 0.0 for row in known) - lost
    recorded = math.fsum(row.ms_per_step or 0.0 for row in ledger if row.owner in LOST_OWNERS)
    left = max(step_ms - works, 0.0)
    shown = min(left, max(lost, recorded)) if lost > NOTHING_MS else 0.0
    of_lost = shown / lost if lost > NOTHING_MS else 0.0
    of_work = min(1.0, step_ms / works) if works > NOTHING_MS else 1.0
    own = math.fsum(row.ms_per_step_unprofiled_est or 0.0 for row in known if _of_the_gpu(row))
    grows = shown > lost and lost - own > NOTHING_MS
    of_host = (shown - own) / (lost - own) if grows else of_lost
    rows = []
    for row in ledger:
        if (ms := row.ms_per_step_unprofiled_est) is not None:
            by = of_work if row.owner not in LOST_OWNERS else 1.0 if grows and _of_the_gpu(row) else of_host
            row = replace(row, ms_per_step_unprofiled_est=ms * by)
        rows.append(row)
    return _with_unseen(rows, left - shown)


def _of_the_gpu(row: LedgerRow) -> bool:
    """Tell whether lost time lasts as long as the GPU makes it, however slow the host is."""
    return row.owner == "exposed_memcpy" or (row.owner == "idle" and row.cause == "launch_latency")


def _with_unseen(rows: list[LedgerRow], unseen_ms: float) -> list[LedgerRow]:
    """Add the time that no profiled step shows to what is not attributed."""
    if unseen_ms <= 0:
        return rows
    for i, row in enumerate(rows):
        if row.owner == "idle" and row.cause == UNATTRIBUTED:
            rows[i] = replace(row, ms_per_step_unprofiled_est=(row.ms_per_step_unprofiled_est or 0.0) + unseen_ms)
            return rows
    return (
        [
            *rows,
            LedgerRow(
                device=rows[0].device,
                owner="idle",
                cause=UNATTRIBUTED,
                ns=0,
                ms_per_step=0.0,
                ms_per_step_unprofiled_est=unseen_ms,
                share=0.0,
            ),
        ]
        if rows
        else rows
    )


def unseen_ms(ledger: Sequence[LedgerRow], best: BestStepTime) -> float:
    """Return how much of the best step time ``at_best`` found in no profiled step: it is part of what its rows leave unattributed."""
    estimate_ms = best.estimate.value
    if best.ms is None or estimate_ms is None or STEP_SOURCES[best.source].of_trace:
        return 0.0
    works = math.fsum(row.ms_per_step_unprofiled_est or 0.0 for row in ledger if row.owner not in LOST_OWNERS)
    recorded = math.fsum(row.ms_per_step or 0.0 for row in ledger if row.owner in LOST_OWNERS)
    shown = max(estimate_ms - works, recorded) if estimate_ms > works else 0.0
    return max(best.ms - works - shown, 0.0)
