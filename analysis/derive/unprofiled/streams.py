"""What an operation of one stream waited for on another: read off a recording, or known from who hands work to whom."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import Events
from sawtooth.analysis.derive.host import matching
from sawtooth.analysis.distinct import distinct_rows
from sawtooth.analysis.replay.machine import I64, DeviceOps

LATE_NS = 3_000  # an operation this much later than its stream and its launch allow waited for another stream: hardware latencies stay below
COMMUNICATES = re.compile(r"nccl|rccl", re.IGNORECASE)  # kernels of communicators, which have streams of their own


def other_streams(events: Events, ops: DeviceOps, *, ready: I64, launched: NDArray[np.bool_], streams: int) -> I64:
    """Return, for each operation, that of another stream that it waits for, else -1; ``ready`` is when its stream and its launch allow it."""
    if streams < 2:
        return np.full(len(ops), -1, dtype=np.int64)
    late = _ended_last(ops, ready, launched)
    return np.where(late >= 0, late, _handed_over(events, ops, launched))


def _ended_last(ops: DeviceOps, ready: I64, launched: NDArray[np.bool_]) -> I64:
    """Return, for each late operation, the latest-ending one launched earlier on another stream that ended by its start, else -1."""
    start, end = ops.fixed_start, ops.fixed_start + ops.dur
    dep = np.full(len(ops), -1, dtype=np.int64)
    late = np.flatnonzero(launched & (start > ready + LATE_NS))[::-1]
    order = np.lexsort((-ops.stream.astype(np.int64), end))  # of equal ends that of the first stream is found
    position = np.empty(len(ops), np.int64)
    position[order] = np.arange(1, len(ops) + 1)
    upto = np.searchsorted(end[order], start[late], side="right")
    # Operations leave from the last launched on, so that those left were launched before. Place 0 stands for none; ``nearest`` is a
    # union-find: the closest place, at or before each, whose operation is left.
    nearest = list(range(len(ops) + 1))
    left = len(ops)
    places = position.tolist()
    for i, place in zip(late.tolist(), upto.tolist(), strict=True):
        while left > i:
            left -= 1
            nearest[places[left]] = places[left] - 1
        while nearest[place] != place:
            nearest[place] = nearest[nearest[place]]
            place = nearest[place]
        if place and end[order[place - 1]] > ready[i]:  # work of its own stream had ended when it was ready
            dep[i] = order[place - 1]
    return dep


def _handed_over(events: Events, ops: DeviceOps, launched: NDArray[np.bool_]) -> I64:
    """Return, for each operation that another stream has handed over to its own, what had to end there before it, else -1.

    A communicator's stream waits for the stream that its caller is on: for what was launched there before. An operator that launches on several
    streams, as cuDNN's recurrent networks do, hands its work from each to the next that it comes to, the first of them waits for its caller's,
    and what its caller launches next waits for the last to end. Where the host is late nobody waits for anything in the recording, but a quicker
    host or longer kernels would. Kinds of kernels that began before that end wait for something else.
    """
    start, end = ops.fixed_start, ops.fixed_start + ops.dur
    dep = np.full(len(ops), -1, np.int64)
    communicates = matching(events.names, COMMUNICATES)[events.gpu.name[ops.op]]
    call = events.gpu.call[ops.op]
    thread = events.calls.thread[call] if len(events.calls) else np.zeros(len(ops), np.int32)
    within, latest = _on_several_streams(events, ops, launched & (call >= 0) & ~communicates)
    on: dict[int, int] = {}  # by thread: the stream that its callers are on
    last: dict[int, int] = {}  # by stream: its last operation, or that of an operator which it waits for
    launches: dict[int, list[int]] = {}  # by operator on several streams: what was launched before it and what it has launched
    reached = set[tuple[int, int]]()  # its streams so far
    for i in np.flatnonzero(launched & (call >= 0)).tolist():
        line, mine = int(ops.stream[i]), int(within[i])
        of_caller = on.get(int(thread[i]), -1)
        if communicates[i]:
            dep[i] = last.get(of_caller, -1)
        elif mine >= 0:
            before = launches.setdefault(mine, [last.get(of_caller, -1)])
            if (mine, line) not in reached:
                dep[i] = next((j for j in reversed(before) if end[j] <= start[i]), before[0])
                reached.add((mine, line))
            before.append(i)
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


def _on_several_streams(events: Events, ops: DeviceOps, among: NDArray[np.bool_]) -> tuple[I64, dict[int, int]]:
    """Return, for each operation, the operator that launched it if that launches ``among`` them on several streams, else -1; and by operator the last to end."""
    within = np.full(len(ops), -1, np.int64)
    within[among] = events.calls.cpu_op[events.gpu.call[ops.op[among]]]
    if len(events.ops):
        within[(within >= 0) & events.ops.annotation[within]] = -1
    operators = np.unique(np.stack([within, ops.stream]), axis=1)[0]
    within[~np.isin(within, operators[1:][operators[1:] == operators[:-1]])] = -1
    order = np.argsort(ops.fixed_start + ops.dur, kind="stable")
    return within, dict(zip(within[order].tolist(), order.tolist(), strict=True))
