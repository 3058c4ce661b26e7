"""The ledger's unprofiled column, scaled to the run's best step time so that all pages show one step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from sawtooth.analysis.knowledge.lost_time import UNATTRIBUTED
from sawtooth.analysis.knowledge.owners import LOST_OWNERS
from sawtooth.analysis.metrics.step_sources import STEP_SOURCES
from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.metrics.step_time_evidence import HOST_SPEED_FACTOR
from sawtooth.analysis.run.model import LedgerRow

NOTHING_MS = 1e-9  # A picosecond: smaller times are rounding errors and cannot be divided in proportion.


def at_best(ledger: Sequence[LedgerRow], best: BestStepTime) -> list[LedgerRow]:
    """Return the ledger with an unprofiled column that sums to the best step time.

    The GPU's work is unchanged. Lost time shrinks or grows in proportion, but not beyond the lost time of the profiled steps,
    because the profiler only ever slows a host. Copies and launch latency do not grow, because a slower host does not make
    them longer. No lost time grows if only such time was lost, or if the profiled steps do not represent the run. A slower
    host is then not the reason for the run's longer steps. The rest of the step is time that no profiled step shows. If the
    work alone is longer than the step, it shrinks to the step.

    The rest may be no more than the error of the best step time: without it, the step is still in its interval. Then it is
    not shown as time of its own. This rest is added to the host's lost time if a host's speed varies that much. Otherwise it
    is unattributed.

    The ledger is unchanged if the profile is itself the strongest evidence, or if nothing was replayed.
    """
    if best.ms is None or STEP_SOURCES[best.source].of_trace:
        return list(ledger)
    return scaled_to(
        ledger, best.ms, slower_host=best.represented, outside_ms=_outside_ms(best), least_ms=best.reading.low or math.inf
    )


def _outside_ms(best: BestStepTime) -> float:
    """Return the time of the run's step that its marks show to lie outside the profiled steps."""
    return best.parts.unprofiled_ms if best.parts is not None else 0.0


def scaled_to(
    ledger: Sequence[LedgerRow],
    step_ms: float,
    *,
    slower_host: bool = True,
    outside_ms: float = 0.0,
    least_ms: float = math.inf,
) -> list[LedgerRow]:
    """Return the ledger with an unprofiled column that sums to ``step_ms``.

    The rules are those of ``at_best``; without ``slower_host`` no lost time grows. At least ``outside_ms`` of the step are time
    that no profiled step shows. ``least_ms`` is the low end of the step's interval. The ledger is unchanged if nothing was
    replayed.
    """
    estimated_rows = [row for row in ledger if row.ms_per_step_unprofiled_est is not None]
    if not estimated_rows:
        return list(ledger)
    lost = math.fsum(row.ms_per_step_unprofiled_est or 0.0 for row in estimated_rows if row.owner in LOST_OWNERS)
    works = math.fsum(row.ms_per_step_unprofiled_est or 0.0 for row in estimated_rows) - lost
    recorded = math.fsum(row.ms_per_step or 0.0 for row in ledger if row.owner in LOST_OWNERS)
    idle_ms = max(step_ms - works, 0.0)
    estimated_ms = math.fsum(row.ms_per_step_unprofiled_est or 0.0 for row in estimated_rows if _of_the_gpu(row))
    room_ms, grows = max(idle_ms - outside_ms, 0.0), slower_host and _of_the_host(estimated_rows) > NOTHING_MS
    shown_ms = min(room_ms, max(lost, recorded) if grows else lost)
    if grows and step_ms - (room_ms - shown_ms) >= least_ms and room_ms <= HOST_SPEED_FACTOR * shown_ms:
        shown_ms = room_ms
    of_lost = shown_ms / lost if lost > NOTHING_MS else 0.0
    of_work = min(1.0, step_ms / works) if works > NOTHING_MS else 1.0
    grows = shown_ms > lost
    of_host = (shown_ms - estimated_ms) / (lost - estimated_ms) if grows else of_lost
    rows = []
    for row in ledger:
        if (ms := row.ms_per_step_unprofiled_est) is not None:
            factor = of_work if row.owner not in LOST_OWNERS else 1.0 if grows and _of_the_gpu(row) else of_host
            row = replace(row, ms_per_step_unprofiled_est=ms * factor)
        rows.append(row)
    return _with_unseen(rows, idle_ms - shown_ms)


def _of_the_gpu(row: LedgerRow) -> bool:
    """Return whether the length of this lost time depends on the GPU and not on the host."""
    return row.owner == "exposed_memcpy" or (row.owner == "idle" and row.cause == "launch_latency")


def _of_the_host(rows: Sequence[LedgerRow]) -> float:
    """Return the lost time that a slower host makes longer, ms per step without the profiler."""
    lost = (row for row in rows if row.owner in LOST_OWNERS and not _of_the_gpu(row) and row.cause != UNATTRIBUTED)
    return math.fsum(row.ms_per_step_unprofiled_est or 0.0 for row in lost)


def _with_unseen(rows: list[LedgerRow], unseen_ms: float) -> list[LedgerRow]:
    """Add the time that no profiled step shows to the unattributed time."""
    if unseen_ms <= NOTHING_MS:
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
    """Return the part of the best step time that no profiled step shows, ms.

    ``at_best`` includes it in the unattributed time of its rows. It is 0 if it is no more than the error of the best step time.
    """
    estimate_ms = best.estimate.value
    if best.ms is None or estimate_ms is None or STEP_SOURCES[best.source].of_trace:
        return 0.0
    works = math.fsum(row.ms_per_step_unprofiled_est or 0.0 for row in ledger if row.owner not in LOST_OWNERS)
    recorded = math.fsum(row.ms_per_step or 0.0 for row in ledger if row.owner in LOST_OWNERS)
    lost = max(estimate_ms - works, 0.0)
    idle_ms = max(best.ms - works, 0.0)
    room_ms = max(idle_ms - _outside_ms(best), 0.0)
    shown_ms = max(lost, recorded) if best.represented and _of_the_host(ledger) > NOTHING_MS else lost
    shown_ms = min(shown_ms, room_ms)
    if best.represented and best.ms - (room_ms - shown_ms) >= (best.reading.low or math.inf):
        shown_ms = room_ms
    return idle_ms - shown_ms
