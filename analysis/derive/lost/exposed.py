"""Causes of exposed copies and exposed communication."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import TraceEvents
from sawtooth.analysis.derive.host import matches_of
from sawtooth.analysis.derive.lost.schedule import CODE, LostIntervals, Pieces, Schedule
from sawtooth.analysis.derive.unprofiled.problem import HOST_TO_DEVICE
from sawtooth.analysis.derive.unprofiled.waits import PAGEABLE
from sawtooth.analysis.knowledge.owners import OWNER_KEYS
from sawtooth.analysis.replay.simulation import I64

TO_HOST = re.compile(r"DtoH|D2H|DeviceToHost", re.IGNORECASE)


def explain_exposed(
    *,
    events: TraceEvents,
    schedule: Schedule,
    order: I64,
    rows: I64,
    lost: LostIntervals,
    codes: NDArray[np.int8],
    read_back: I64,
    transfer_ns: dict[int, int] | None,
) -> Pieces:
    """Assign to exposed copies and communication the cause of the operation that ran.

    ``rows`` selects the exposed intervals of ``lost``. ``order`` has the GPU operations by start, ``codes`` their owners.
    ``read_back`` is the result of ``read_back_calls``. ``transfer_ns`` has each collective's shortest duration over all ranks.
    """
    start, end = lost.start[rows], lost.end[rows]
    comm = lost.owner[rows] == OWNER_KEYS.index("exposed_comm")
    names, gpu = events.names, events.gpu
    op_of = np.full(len(rows), -1, dtype=np.int64)
    for selected, owner in ((~comm, "exposed_memcpy"), (comm, "exposed_comm")):
        op_of[selected] = _running_candidates(schedule, order[codes[order] == OWNER_KEYS.index(owner)], start[selected])
    cause = np.full(len(rows), CODE["unattributed"], dtype=np.int8)
    if len(gpu):
        call = np.where(op_of >= 0, gpu.call[op_of], -1)
        waited = np.zeros(len(events.calls) + 1, dtype=bool)
        waited[schedule.waits.call] = True
        blocking = np.zeros(len(events.calls) + 1, dtype=bool)
        blocking[schedule.waits.call[schedule.waits.cause == CODE["blocking_copy"]]] = True
        has_operation = ~comm & (op_of >= 0)
        name = gpu.name[op_of]
        to_device = has_operation & matches_of(names, HOST_TO_DEVICE)[name]
        to_host = has_operation & matches_of(names, TO_HOST)[name]
        synchronous = matches_of(names, PAGEABLE)[name] | blocking[call]
        cause[to_device & synchronous] = CODE["blocking_copy"]
        cause[to_host & (synchronous | waited[call] | (read_back[op_of] >= 0))] = CODE["host_sync"]
    none = np.full(len(rows), -1, dtype=np.int64)
    pieces = Pieces(rows, start, end, cause, next_op=op_of, host_at=start, wait_call=none)
    return _split_communication(schedule, pieces, comm, transfer_ns) if transfer_ns else pieces


def _running_candidates(schedule: Schedule, candidates: I64, at: I64) -> I64:
    """Return, for each moment, the running candidate that started last, else -1.

    ``candidates`` are ordered by start.
    """
    index = np.searchsorted(schedule.start[candidates], at, side="right") - 1
    open_rows = np.flatnonzero(index >= 0)
    while len(open_rows):
        open_rows = open_rows[schedule.end[candidates[index[open_rows]]] <= at[open_rows]]
        index[open_rows] -= 1
        open_rows = open_rows[index[open_rows] >= 0]
    return (
        np.where(index >= 0, candidates[np.maximum(index, 0)], -1) if len(candidates) else np.full(len(at), -1, dtype=np.int64)
    )


def read_back_calls(events: TraceEvents, schedule: Schedule) -> I64:
    """Return, for each copy to the host, the call that waits for the copy; -1 for other operations."""
    to_host = matches_of(events.names, TO_HOST)[events.gpu.name] & (events.gpu.kind == 1)
    return np.where(to_host, schedule.awaited_by, -1)


def _split_communication(schedule: Schedule, pieces: Pieces, comm: NDArray[np.bool_], transfer_ns: dict[int, int]) -> Pieces:
    """Split exposed communication into waiting and transfer.

    The transfer takes the collective's shortest duration over all ranks; the time before it is waiting.
    """
    op = pieces.next_op
    has_transfer = comm & np.array([int(o) in transfer_ns for o in op], dtype=bool)
    shortest = np.array([transfer_ns.get(int(o), 0) for o in op], dtype=np.int64)
    cut = np.where(has_transfer, np.clip(schedule.end[op] - shortest, pieces.start, pieces.end), pieces.end)
    waited = replace(pieces, end=cut, cause=np.where(has_transfer, CODE["comm_wait"], pieces.cause).astype(np.int8))
    transferred = replace(pieces, start=cut, cause=np.full(len(pieces), CODE["comm_transfer"], np.int8), host_at=cut)
    return Pieces.joined([waited.rows(cut > pieces.start), transferred.rows(has_transfer & (cut < pieces.end))])
