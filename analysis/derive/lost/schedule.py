"""Recorded or replayed schedules, and their lost time, cut into pieces with one cause each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import TraceEvents
from sawtooth.analysis.derive.host import CauseTimeline
from sawtooth.analysis.derive.lost.ledger import Segments
from sawtooth.analysis.derive.unprofiled.problem import HostView
from sawtooth.analysis.derive.unprofiled.waits import RecordedSchedule
from sawtooth.analysis.intervals import Intervals, overlaps
from sawtooth.analysis.knowledge.causes import CAUSE_KEYS, WAIT_CAUSES
from sawtooth.analysis.knowledge.owners import LOST_OWNERS, OWNER_KEYS
from sawtooth.analysis.replay.simulation import I32, I64, NEVER, Replayed, ReplayProblem

CODE = {cause: i for i, cause in enumerate(CAUSE_KEYS)}
WAIT_CODES = np.array([CODE[cause] for cause in WAIT_CAUSES], dtype=np.int8)


@dataclass(frozen=True)
class Waits:
    """Calls in which the host waited for the GPU, ordered by start.

    The columns are the host line, the start, the end of the last operation that the call waited for, the call id and the cause
    (index in causes.CAUSE_KEYS).
    """

    line: I32
    start: I64
    reached: I64
    call: I64
    cause: NDArray[np.int8]


@dataclass(frozen=True)
class Schedule:
    """Start and end of every operation, recorded or replayed, by gpu_op_id.

    A value is NEVER if the operation or its launch is not part of the schedule. ``awaited_by`` is the call that waits for the
    operation, even if the operation has already finished (-1 if there is none).
    """

    start: I64
    end: I64
    submitted: I64
    line: I32
    stream: I64
    awaited_by: I64
    timelines: tuple[CauseTimeline, ...]
    waits: Waits


@dataclass(frozen=True)
class LostIntervals:
    """Lost intervals of one device inside ``window``, sorted and disjoint.

    ``owner`` indexes owners.OWNERS.
    """

    start: I64
    end: I64
    owner: NDArray[np.int8]
    window: Intervals


@dataclass(frozen=True)
class Pieces:
    """Lost time cut by cause, sorted by start.

    ``gap`` indexes ``LostIntervals``. ``next_op`` is the operation that ended the gap (-1 if there is none). ``host_at`` is the host time
    that decides the cause. ``wait_call`` is the waiting call that explains a ``host_sync`` or ``blocking_copy`` piece, else -1.
    """

    gap: I64
    start: I64
    end: I64
    cause: NDArray[np.int8]
    next_op: I64
    host_at: I64
    wait_call: I64

    def __len__(self) -> int:
        return len(self.gap)

    def rows(self, which: NDArray[np.bool_] | I64) -> Pieces:
        """Return some of the pieces, selected by a mask or by indices."""
        return Pieces(*(column[which] for column in self._columns()))

    @staticmethod
    def joined(parts: Sequence[Pieces]) -> Pieces:
        """Return the pieces of all ``parts`` (at least one) as one sequence."""
        return Pieces(*map(np.concatenate, zip(*(part._columns() for part in parts), strict=True)))

    def _columns(self) -> list[np.ndarray]:
        return [getattr(self, column.name) for column in fields(self)]


def lost_time(parts: Segments, window: Intervals) -> LostIntervals:
    """Return the lost segments of a device inside ``window``."""
    is_lost = np.isin(parts.owner, [OWNER_KEYS.index(name) for name in LOST_OWNERS])
    begin, end, index, _ = overlaps(Intervals(parts.starts[is_lost], parts.ends[is_lost]), window)
    order = np.argsort(begin, kind="stable")
    return LostIntervals(begin[order], end[order], parts.owner[is_lost][index[order]], window)


def schedule_of(
    events: TraceEvents,
    view: HostView,
    problem: ReplayProblem | RecordedSchedule,
    run: Replayed | None,
    timelines: tuple[CauseTimeline, ...] | None = None,
) -> Schedule:
    """Return the recorded schedule (``run`` None) or a replayed one.

    ``timelines`` are the cause timelines in replayed time.
    """
    calls, gpu, host, ops = events.calls, events.gpu, problem.host, problem.ops
    line = (
        np.where(gpu.call >= 0, view.lines.of_thread[calls.thread[gpu.call]], -1).astype(np.int32)
        if len(calls)
        else np.full(len(gpu), -1, np.int32)
    )
    if run is None:
        op_end, host_start = ops.fixed_start + ops.dur, host.start
        start, end = gpu.start, gpu.end
        submitted = np.where(gpu.call >= 0, calls.end[gpu.call], NEVER) if len(calls) else np.full(len(gpu), NEVER)
    else:
        op_end, host_start = run.op_end, run.host_start
        start, end, submitted = (np.full(len(gpu), NEVER, dtype=np.int64) for _ in range(3))
        start[ops.op], end[ops.op] = run.op_start, run.op_end
        submitted[ops.op] = np.where(ops.node >= 0, run.host_submit[ops.node], NEVER) if len(host) else NEVER
    node = np.repeat(np.arange(len(host)), np.diff(host.wait_ptr))
    awaited_by = np.full(len(gpu), -1, dtype=np.int64)
    awaited_by[ops.op[host.wait_op]] = host.call[node]
    reached = np.full(len(host), NEVER, dtype=np.int64)
    np.maximum.at(reached, node, op_end[host.wait_op])
    waiting = np.flatnonzero(reached > host_start)
    waits = Waits(
        view.lines.of_thread[host.thread[waiting]],
        host_start[waiting],
        reached[waiting],
        host.call[waiting],
        WAIT_CODES[host.wait_cause[waiting]],
    )
    return Schedule(
        start=start,
        end=end,
        submitted=submitted,
        line=line,
        stream=gpu.stream,
        awaited_by=awaited_by,
        timelines=timelines if timelines is not None else view.timelines,
        waits=waits,
    )


def merge(pieces: Pieces) -> Pieces:
    """Join neighbouring pieces of a gap with the same cause and the same wait; remove empty pieces."""
    nonempty = pieces.rows(pieces.end > pieces.start)
    if not len(nonempty):
        return nonempty
    continues = (
        (nonempty.gap[1:] == nonempty.gap[:-1])
        & (nonempty.cause[1:] == nonempty.cause[:-1])
        & (nonempty.wait_call[1:] == nonempty.wait_call[:-1])
    )
    first = np.concatenate([[True], ~(continues & (nonempty.start[1:] == nonempty.end[:-1]))])
    last = np.concatenate([first[1:], [True]])
    return replace(nonempty.rows(first), end=nonempty.end[last])


def totals(pieces: Pieces, lost: LostIntervals) -> dict[tuple[str, str], int]:
    """Return the nanoseconds by (owner, cause)."""
    sums: dict[tuple[str, str], int] = {}
    owner = lost.owner[pieces.gap]
    for o in np.unique(owner).tolist():
        for c in np.unique(pieces.cause[owner == o]).tolist():
            has_both = (owner == o) & (pieces.cause == c)
            sums[OWNER_KEYS[o], CAUSE_KEYS[c]] = int((pieces.end[has_both] - pieces.start[has_both]).sum())
    return sums
