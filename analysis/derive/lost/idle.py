"""Causes of lost time (idle time, exposed copies and communication), cut where the cause changes.

The same rules explain recorded and replayed schedules. If an operation was launched before its gap began, it was queued in
time, so the hardware or another stream caused the gap. Otherwise the host caused it, and the cause is what the launching
thread did just before the launch. A wait for the GPU also explains idle time after the wait, for at most the wait's own
duration.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import TraceEvents
from sawtooth.analysis.derive.lost.exposed import explain_exposed, read_back_calls
from sawtooth.analysis.derive.lost.schedule import CODE, LostIntervals, Pieces, Schedule, Waits, merge
from sawtooth.analysis.distinct_rows import positions_by
from sawtooth.analysis.intervals import Intervals, overlaps
from sawtooth.analysis.knowledge.causes import CAUSES
from sawtooth.analysis.knowledge.owners import OWNER_KEYS
from sawtooth.analysis.replay.simulation import I32, I64, NEVER

# Hardware latencies are below 10 µs, so an operation that starts 20 µs late waited for another stream.
OTHER_STREAM_NS = 20_000
# In all measured traces, queued operations started within 20 µs, so a longer delay has an unknown cause.
MAX_LATENCY_NS = 50_000
SHIFT_LIMIT_NS = 10_000  # A launch returns 1.5 to 2.5 µs before its kernel starts, so more than 10 µs is not launch latency.
_NONE = np.empty(0, np.int64)
REMOVABLE_BY_RUNNING_AHEAD = [CODE[cause.key] for cause in CAUSES if cause.on_host is not None and cause.on_host.runs_ahead]


def explain(
    events: TraceEvents,
    schedule: Schedule,
    device: int,
    lost: LostIntervals,
    codes: NDArray[np.int8],
    transfer_ns: dict[int, int] | None = None,
) -> Pieces:
    """Cut ``lost`` by cause; the pieces of each interval sum to it exactly.

    ``codes`` is the owner (index in owners.OWNERS) of each GPU operation. ``transfer_ns`` is the shortest duration of a
    collective over the ranks, by gpu_op_id; the rest of its duration is waiting. Without it, exposed communication is
    unattributed, because the trace of one rank does not show which part is waiting.
    """
    idle = lost.owner == OWNER_KEYS.index("idle")
    on_device = np.flatnonzero((events.gpu.device == device) & (schedule.start > NEVER))
    order = on_device[np.lexsort((on_device, schedule.start[on_device]))]
    read_back = read_back_calls(events, schedule)
    explained = [
        _explain_idle(schedule, order, np.flatnonzero(idle), lost, read_back),
        explain_exposed(
            events=events,
            schedule=schedule,
            order=order,
            rows=np.flatnonzero(~idle),
            lost=lost,
            codes=codes,
            read_back=read_back,
            transfer_ns=transfer_ns,
        ),
    ]
    pieces = Pieces.joined(explained)
    if not len(events.ops):  # Without operators, the host's time between calls may not be Python's.
        pieces.cause[pieces.cause == CODE["python_host"]] = CODE["unattributed"]
    by_time = np.lexsort((pieces.start, pieces.gap))
    return merge(_charge_waits(pieces.rows(by_time), schedule.waits, schedule.line, lost.window))


def _explain_idle(schedule: Schedule, order: I64, rows: I64, lost: LostIntervals, read_back: I64) -> Pieces:
    begin, end = lost.start[rows], lost.end[rows]
    at = np.searchsorted(schedule.start[order], end, side="left")
    next_op = np.where(at < len(order), order[np.minimum(at, max(len(order) - 1, 0))] if len(order) else -1, -1)
    has_next = next_op >= 0
    submitted = np.where(has_next, schedule.submitted[next_op], NEVER) if len(schedule.start) else np.full(len(rows), NEVER)
    linked = submitted > NEVER
    opened = np.where(has_next, schedule.start[next_op], end) if len(schedule.start) else end
    latency = np.clip(opened - submitted, 0, None)
    ordinary = latency[linked & (submitted > begin)]
    median_latency = min(int(np.median(ordinary)) if len(ordinary) else 0, SHIFT_LIMIT_NS)
    queued = linked & (submitted <= begin)
    by_host = (linked & ~queued) | (~has_next)
    shift = np.where(linked & by_host, np.minimum(latency, median_latency), 0)
    host_end = np.where(linked & by_host, np.clip(submitted + shift, begin, end), end)
    results = [
        _by_host_cause(
            schedule=schedule,
            rows=rows[by_host],
            begin=begin[by_host],
            end=host_end[by_host],
            shift=shift[by_host],
            next_op=next_op[by_host],
        )
    ]

    def explain_all(mask: NDArray[np.bool_], start: I64, cause: NDArray[np.int8], call: I64 | None = None) -> None:
        wait_call = np.full(int(mask.sum()), -1, dtype=np.int64) if call is None else call[mask]
        results.append(Pieces(rows[mask], start[mask], end[mask], cause[mask], next_op[mask], start[mask], wait_call))

    waited_for_stream = _waited_for_stream(schedule, order, next_op, begin, queued)
    started_late = end - np.where(queued, begin, host_end) > MAX_LATENCY_NS
    latency_code = np.where(
        waited_for_stream, CODE["comm_wait"], np.where(started_late, CODE["unattributed"], CODE["launch_latency"])
    ).astype(np.int8)
    explain_all(by_host & (host_end < end), host_end, latency_code)
    copied = queued & (np.where(has_next, read_back[next_op], -1) >= 0) if len(read_back) else np.zeros(len(rows), dtype=bool)
    cause = np.where(copied, CODE["host_sync"], latency_code).astype(np.int8)
    explain_all(queued, begin, cause, np.where(copied, read_back[next_op], -1) if len(read_back) else None)
    unlinked = has_next & ~linked
    explain_all(
        unlinked, begin, np.where(end - begin <= OTHER_STREAM_NS, CODE["launch_latency"], CODE["unattributed"]).astype(np.int8)
    )
    return Pieces.joined(results)


def _by_host_cause(schedule: Schedule, rows: I64, begin: I64, end: I64, shift: I64, next_op: I64) -> Pieces:
    """Cut gaps by the work of the launching line just before the launch returned.

    That is the time [begin − shift, end − shift).
    """
    line = np.where(next_op >= 0, schedule.line[next_op], 0) if len(schedule.line) else np.zeros(len(rows), np.int32)
    painted = []
    for number, rows_of_line in positions_by(np.maximum(line, 0)).items():
        if number < len(schedule.timelines):
            timeline = schedule.timelines[number]
            edges = np.concatenate([[NEVER], timeline.start[1:], [-NEVER]])
            start, stop, gap, cell = overlaps(
                Intervals(begin[rows_of_line] - shift[rows_of_line], end[rows_of_line] - shift[rows_of_line]),
                Intervals(edges[:-1], edges[1:]),
            )
            row, cause = rows_of_line[gap], timeline.cause[cell]
        else:
            start, stop, row, cause = (
                begin[rows_of_line] - shift[rows_of_line],
                end[rows_of_line] - shift[rows_of_line],
                rows_of_line,
                np.full(len(rows_of_line), CODE["unattributed"], np.int8),
            )
        none = np.full(len(row), -1, dtype=np.int64)
        painted.append(Pieces(rows[row], start + shift[row], stop + shift[row], cause, next_op[row], start, none))
    if not painted:
        empty = np.empty(0, np.int64)
        return Pieces(empty, empty, empty, np.empty(0, np.int8), empty, empty, empty)
    return Pieces.joined(painted)


def _waited_for_stream(
    schedule: Schedule, order: I64, next_op: I64, begin: I64, queued: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Mark gaps whose next operation waited for another stream.

    Such an operation was queued, and its own stream was free for more than 20 µs.
    """
    result = np.zeros(len(next_op), dtype=bool)
    if not queued.any():
        return result
    position = np.full(len(schedule.start), -1, dtype=np.int64)
    position[order] = np.arange(len(order))
    stream_free = np.full(len(schedule.start), NEVER, dtype=np.int64)
    for at in positions_by(schedule.stream[order]).values():
        ops_of_stream = order[at]
        stream_free[ops_of_stream[1:]] = np.maximum.accumulate(schedule.end[ops_of_stream])[:-1]
    op = next_op[queued]
    ready = np.maximum(stream_free[op], schedule.submitted[op])
    result[queued] = (schedule.start[op] - ready > OTHER_STREAM_NS) & (begin[queued] > ready)
    return result


def _charge_waits(pieces: Pieces, waits: Waits, op_line: I32, window: Intervals) -> Pieces:
    """Assign host work after a wait to the wait, up to the duration of the wait.

    Without the wait, the host would have run ahead by its duration. If a piece is shorter than its wait, the remaining duration
    may explain later pieces of the same part of ``window``. The latest wait is used first. A wait that ended before the window
    explains nothing inside the window, because idle time before the window has already used its duration.
    """
    if not len(waits.start):
        return pieces
    parts = len(window.starts)
    ended_in = _part_of(window, waits.reached)
    line = np.where(pieces.next_op >= 0, op_line[pieces.next_op], 0) if len(op_line) else np.zeros(len(pieces), np.int32)
    line = line * parts + _part_of(window, pieces.start)
    wait_line = np.where(ended_in >= 0, waits.line * parts + ended_in, -1)
    started = np.searchsorted(np.maximum.accumulate(waits.start), np.maximum.accumulate(pieces.start), side="right")
    cut: list[_Charged] = []
    may_be_charged = np.flatnonzero(np.isin(pieces.cause, REMOVABLE_BY_RUNNING_AHEAD))
    of_line = positions_by(line[may_be_charged])
    for number, waits_of_line in positions_by(wait_line).items():
        rows = may_be_charged[of_line.get(number, _NONE)]
        cut += _parts_of_waits(pieces, rows, np.searchsorted(waits_of_line, started[rows]), waits_of_line, waits)
    begin, end, index, payer = np.array(cut, dtype=np.int64).reshape(-1, 4).T
    unexplained = np.ones(len(pieces), bool)
    unexplained[index] = False
    unexplained_rows = np.flatnonzero(unexplained)
    begin, end = np.concatenate([begin, pieces.start[unexplained_rows]]), np.concatenate([end, pieces.end[unexplained_rows]])
    index, payer = np.concatenate([index, unexplained_rows]), np.concatenate([payer, np.full(len(unexplained_rows), -1)])
    order = np.argsort(index, kind="stable")
    begin, end, index, payer = begin[order], end[order], index[order], payer[order]
    charged = payer >= 0
    cause = np.where(charged, waits.cause[payer], pieces.cause[index]).astype(np.int8)
    wait_call = np.where(charged, waits.call[payer], pieces.wait_call[index])
    return Pieces(
        gap=pieces.gap[index], start=begin, end=end, cause=cause, next_op=pieces.next_op[index],
        host_at=pieces.host_at[index], wait_call=wait_call,
    )  # fmt: skip


class _Charged(NamedTuple):
    """A part of a piece of lost time, and the wait that explains this part (-1 if there is none)."""

    start: int
    end: int
    piece: int
    wait: int


def _parts_of_waits(pieces: Pieces, rows: I64, started: I64, waits_of_line: I64, waits: Waits) -> list[_Charged]:
    """Return the parts of ``rows`` that waits explain, in order.

    ``waits_of_line`` are the possible waits. ``started`` is, for each row, the number of waits that have begun before it. Rows that no wait
    explains are skipped.
    """
    cut: list[_Charged] = []
    unused: list[list[int]] = []  # Pairs of unused waiting time and the index of the wait.
    at = next_wait = 0
    while at < len(rows):
        for wait in waits_of_line[next_wait : started[at]].tolist():
            unused.append([int(waits.reached[wait] - waits.start[wait]), wait])
        next_wait = int(started[at])
        if not unused:
            at = int(np.searchsorted(started, next_wait, side="right"))
            continue
        row = int(rows[at])
        start, stop = int(pieces.start[row]), int(pieces.end[row])
        while unused and start < stop:
            used = min(unused[-1][0], stop - start)
            cut.append(_Charged(start, start + used, row, unused[-1][1]))
            start += used
            unused[-1][0] -= used
            if unused[-1][0] == 0:
                unused.pop()
        if start < stop:
            cut.append(_Charged(start, stop, row, -1))
        at += 1
    return cut


def _part_of(window: Intervals, moments: I64) -> I64:
    """Return the part of the window that contains each moment, -1 if there is none."""
    if not len(window.starts):
        return np.full(len(moments), -1, np.int64)
    at = np.searchsorted(window.starts, moments, side="right") - 1
    return np.where((at >= 0) & (moments < window.ends[np.maximum(at, 0)]), at, -1)
