"""Dependencies between streams: measured in a recording, or known from the caller of the work."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import TraceEvents
from sawtooth.analysis.derive.host import matching
from sawtooth.analysis.distinct_rows import distinct_rows
from sawtooth.analysis.replay.simulation import I64, DeviceOps

LATE_NS = 3_000  # a start that is this much later than stream and launch allow is a wait: hardware latencies are shorter
COMMUNICATES = re.compile(r"nccl|rccl", re.IGNORECASE)  # kernels of communicators, which have their own streams


def other_streams(events: TraceEvents, ops: DeviceOps, *, ready: I64, launched: NDArray[np.bool_], streams: int) -> I64:
    """Return, for each operation, the operation of another stream that it waits for, else -1.

    ``ready`` is the time at which its own stream and its launch allow it to start.
    """
    if streams < 2:
        return np.full(len(ops), -1, dtype=np.int64)
    late = _ended_last(ops, ready, launched)
    return np.where(late >= 0, late, _handed_over(events, ops, launched))


def _ended_last(ops: DeviceOps, ready: I64, launched: NDArray[np.bool_]) -> I64:
    """Return, for each late operation, the one it probably waited for, else -1.

    That is the latest-ending operation that was launched earlier on another stream and ended before the late one started.
    """
    start, end = ops.fixed_start, ops.fixed_start + ops.dur
    dep = np.full(len(ops), -1, dtype=np.int64)
    late = np.flatnonzero(launched & (start > ready + LATE_NS))[::-1]
    order = np.lexsort((-ops.stream.astype(np.int64), end))  # if ends are equal, the first stream is found
    position = np.empty(len(ops), np.int64)
    position[order] = np.arange(1, len(ops) + 1)
    upto = np.searchsorted(end[order], start[late], side="right")
    # Operations are removed from the last launched on, so the remaining ones were launched before. Place 0 means none.
    # ``nearest`` is a union-find structure: the closest place, at or before each, whose operation is not removed.
    nearest = list(range(len(ops) + 1))
    remaining = len(ops)
    places = position.tolist()
    for i, place in zip(late.tolist(), upto.tolist(), strict=True):
        while remaining > i:
            remaining -= 1
            nearest[places[remaining]] = places[remaining] - 1
        while nearest[place] != place:
            nearest[place] = nearest[nearest[place]]
            place = nearest[place]
        if place and end[order[place - 1]] > ready[i]:  # work of its own stream had ended by then
            dep[i] = order[place - 1]
    return dep


def _handed_over(events: TraceEvents, ops: DeviceOps, launched: NDArray[np.bool_]) -> I64:
    """Return, for each operation that depends on another stream's work, the last such operation, else -1.

    A communicator's stream waits for its caller's stream, that is, for the work launched there before. Some operators launch on
    several streams, such as cuDNN's recurrent networks. Such an operator hands its work from each stream to the next one. The
    first stream waits for the caller's stream, and the caller's next launch waits for the last one to end.
    If the host is late, the recording shows no such waits, but a faster host or longer kernels would cause them. Kinds of
    kernels that began before that end wait for something else.
    """
    start, end = ops.fixed_start, ops.fixed_start + ops.dur
    dep = np.full(len(ops), -1, np.int64)
    communicates = matching(events.names, COMMUNICATES)[events.gpu.name[ops.op]]
    call = events.gpu.call[ops.op]
    thread = events.calls.thread[call] if len(events.calls) else np.zeros(len(ops), np.int32)
    within, latest = _on_several_streams(events, ops, launched & (call >= 0) & ~communicates)
    on: dict[int, int] = {}  # by thread: the stream that its callers use
    last: dict[int, int] = {}  # by stream: its last operation, or that of an operator for which it waits
    launches: dict[int, list[int]] = {}  # by operator on several streams: the operation before it, and its own launches
    reached = set[tuple[int, int]]()  # pairs of operator and stream so far
    for i in np.flatnonzero(launched & (call >= 0)).tolist():
        line, mine = int(ops.stream[i]), int(within[i])
        of_caller = on.get(int(thread[i]), -1)
        if communicates[i]:
            dep[i] = last.get(of_caller, -1)
        elif mine >= 0:
            earlier = launches.setdefault(mine, [last.get(of_caller, -1)])
            if (mine, line) not in reached:
                dep[i] = next((j for j in reversed(earlier) if end[j] <= start[i]), earlier[0])
                reached.add((mine, line))
            earlier.append(i)
            if of_caller >= 0:
                last[of_caller] = latest[mine]
        else:
            dep[i] = last.get(line, -1)
            on[int(thread[i])], last[line] = line, i
    dep[dep >= np.arange(len(ops))] = -1
    dep[ops.stream[dep] == ops.stream] = -1
    kind = distinct_rows(events.gpu.name[ops.op], ops.stream, np.where(dep >= 0, ops.stream[dep], -1))[1]
    began = (dep >= 0) & (end[dep] > start)
    return np.where(np.isin(kind, kind[began]), -1, dep)


def _on_several_streams(events: TraceEvents, ops: DeviceOps, among: NDArray[np.bool_]) -> tuple[I64, dict[int, int]]:
    """Return, for each operation, its operator if that uses several streams, else -1; and the last ends.

    Only operations ``among`` count. The last ends are, by operator, its operation that ends last.
    """
    within = np.full(len(ops), -1, np.int64)
    within[among] = events.calls.cpu_op[events.gpu.call[ops.op[among]]]
    if len(events.ops):
        within[(within >= 0) & events.ops.annotation[within]] = -1
    operators = np.unique(np.stack([within, ops.stream]), axis=1)[0]
    within[~np.isin(within, operators[1:][operators[1:] == operators[:-1]])] = -1
    order = np.argsort(ops.fixed_start + ops.dur, kind="stable")
    return within, dict(zip(within[order].tolist(), order.tolist(), strict=True))
