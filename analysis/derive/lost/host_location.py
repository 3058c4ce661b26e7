"""The host's place in the middle of each piece of lost time: thread, operator, call and Python frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import TraceEvents
from sawtooth.analysis.derive.host import HostFacts, matches_of
from sawtooth.analysis.derive.lost.schedule import CODE, Pieces
from sawtooth.analysis.derive.operators import innermost_interval
from sawtooth.analysis.derive.unprofiled.problem import HostView
from sawtooth.analysis.knowledge.host_names import DATA_MARK
from sawtooth.analysis.replay.simulation import I32, I64


@dataclass(frozen=True)
class HostLocation:
    """The host's place for each piece, by id; -1 if there is none.

    It has the operator, the call, the Python frame, and the operator that launched the GPU work after the gap. ``enclosing_op`` is the
    innermost operator or annotation of the main thread at the same time.
    """

    op: I64
    call: I64
    frame: I64
    launch_op: I64
    enclosing_op: I64


def place_of(events: TraceEvents, facts: HostFacts, view: HostView, pieces: Pieces, on_gpu: NDArray[np.bool_]) -> HostLocation:
    """Return the host's place for each piece.

    The place is on the thread that launched the operation after the gap, or on the main thread without such a launch. If a
    waiting call explains the piece, the place is this call. ``on_gpu`` marks pieces in which a copy or collective runs. The
    place of such a piece is the launch of its copy or collective. The host's other work at that time is unrelated. If the
    host waits for the operation, the place is the waiting call.
    """
    calls, none = events.calls, np.full(len(pieces), -1)
    launch = np.where(pieces.next_op >= 0, events.gpu.call[pieces.next_op], -1) if len(events.gpu) else none
    launch_op = np.where(launch >= 0, calls.cpu_op[launch], -1) if len(calls) else none
    moment = pieces.host_at + (pieces.end - pieces.start) // 2
    launched = on_gpu & (pieces.cause != CODE["host_sync"])
    if len(calls):
        moment = np.where(launched & (launch >= 0), (calls.start[launch] + calls.end[launch]) // 2, moment)
    main = np.full(len(pieces), _main_thread(events, view), np.int32)
    thread = np.where(launch >= 0, calls.thread[launch], main).astype(np.int32) if len(calls) else main
    op, call, mark = _thread_activity(events, thread, moment)
    off_main = (op < 0) & (call < 0) & (thread != main)
    if off_main.any():
        op[off_main], call[off_main], mark[off_main] = _thread_activity(events, main[off_main], moment[off_main])
        thread = np.where(off_main & ((op >= 0) | (call >= 0)), main, thread).astype(np.int32)
    fetching = (op < 0) & (call < 0) & (pieces.cause == CODE["data_wait"]) & _fetches(events, mark)
    # For these two causes, the place is the launch of the operation after the gap.
    queued = (pieces.cause == CODE["launch_latency"]) | (pieces.cause == CODE["comm_wait"])
    waits = pieces.wait_call >= 0
    call = np.where(waits, pieces.wait_call, np.where(queued | ((call < 0) & ~fetching), launch, call))
    op = np.where(waits, calls.cpu_op[pieces.wait_call], np.where(queued, launch_op, op)) if len(calls) else op
    call, op = np.where(launched, launch, call), np.where(launched, launch_op, op)
    op = np.where(fetching, mark, op)  # Use the loader's annotation, not the later launch that uses the batch.
    frame = innermost_interval(
        thread=facts.python_thread, start=facts.python_start, end=facts.python_end, parent=facts.python_parent,
        at_thread=thread, at=moment,
    )  # fmt: skip
    frame = np.where(launched & (launch < 0), -1, frame)
    return HostLocation(op, call, frame, launch_op, _operator_at(events, main, moment))


def _main_thread(events: TraceEvents, view: HostView) -> int:
    line = np.flatnonzero((view.lines.of_thread == 0) & ~view.lines.engine)
    if not len(line):
        return int(events.calls.thread[0]) if len(events.calls) else 0
    return int(line[np.argmax(np.bincount(events.ops.thread, minlength=len(view.lines.of_thread))[line])])


def _operator_at(events: TraceEvents, thread: I32, moment: I64) -> I64:
    ops = events.ops
    return innermost_interval(thread=ops.thread, start=ops.start, end=ops.end, parent=ops.parent, at_thread=thread, at=moment)


class _Doing(NamedTuple):
    """The operator, runtime call and innermost annotation that a thread executed; -1 if there is none.

    The annotation is only set if no operator runs inside it.
    """

    op: I64
    call: I64
    mark: I64


def _thread_activity(events: TraceEvents, thread: I32, moment: I64) -> _Doing:
    ops, calls = events.ops, events.calls
    op = _operator_at(events, thread, moment)
    marks = (op >= 0) & (ops.annotation[op] if len(ops) else False)
    mark = np.where(marks, op, -1)
    op[marks] = -1  # An annotation around operators does not show what the thread does.
    none = np.full(len(calls), -1, dtype=np.int64)
    call = innermost_interval(thread=calls.thread, start=calls.start, end=calls.end, parent=none, at_thread=thread, at=moment)
    return _Doing(op, call, mark)


def _fetches(events: TraceEvents, mark: I64) -> NDArray[np.bool_]:
    """Return, for each annotation, whether it covers the request for a batch."""
    if not len(events.ops):
        return np.zeros(len(mark), bool)
    return (mark >= 0) & matches_of(events.names, DATA_MARK)[events.ops.name[mark]]
