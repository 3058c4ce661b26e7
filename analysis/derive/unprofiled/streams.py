"""Dependencies between streams, shown by late starts or inferred from the launching operators."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import TraceEvents
from sawtooth.analysis.derive.host import matches_of
from sawtooth.analysis.distinct_rows import distinct_rows
from sawtooth.analysis.replay.simulation import I64, DeviceOps

# If an operation starts this long after its stream and its launch are ready, it waited for another stream. Hardware latencies
# are shorter.
LATE_NS = 3_000
COMMUNICATES = re.compile(r"nccl|rccl", re.IGNORECASE)  # Kernels of communicators, which have their own streams.


def cross_stream_dependencies(
    events: TraceEvents, ops: DeviceOps, *, ready: I64, launched: NDArray[np.bool_], streams: int
) -> I64:
    """Return, for each operation, the operation of another stream that it waits for, else -1.

    ``ready`` is the time at which its own stream and its launch allow it to start. ``launched`` marks the operations with a
    recorded launch call. ``streams`` is the number of streams.
    """
    if streams < 2:
        return np.full(len(ops), -1, dtype=np.int64)
    waited_for = _ended_last(ops, ready, launched)
    return np.where(waited_for >= 0, waited_for, _handed_over(events, ops, launched))


def _ended_last(ops: DeviceOps, ready: I64, launched: NDArray[np.bool_]) -> I64:
    """Return, for each late operation, the operation for which it probably waited, else -1.

    This is the operation with the latest end among those that were launched earlier on another stream and ended before the late
    operation started.
    """
    start, end = ops.fixed_start, ops.fixed_start + ops.dur
    dep = np.full(len(ops), -1, dtype=np.int64)
    late_ops = np.flatnonzero(launched & (start > ready + LATE_NS))[::-1]
    # If several operations end at the same time, the search takes the last entry, which has the lowest stream.
    order = np.lexsort((-ops.stream.astype(np.int64), end))
    position = np.empty(len(ops), np.int64)
    position[order] = np.arange(1, len(ops) + 1)
    upto = np.searchsorted(end[order], start[late_ops], side="right")
    # Operations are removed in reverse order of launch, so those that remain were launched earlier. Place 0 means none.
    # ``nearest`` is a union-find structure. It gives, for each place, the last place up to it that is not removed.
    nearest = list(range(len(ops) + 1))
    remaining = len(ops)
    places = position.tolist()
    for i, place in zip(late_ops.tolist(), upto.tolist(), strict=True):
        while remaining > i:
            remaining -= 1
            nearest[places[remaining]] = places[remaining] - 1
        while nearest[place] != place:
            nearest[place] = nearest[nearest[place]]
            place = nearest[place]
        # The late operation cannot have waited for an operation that ended before ``ready``.
        if place and end[order[place - 1]] > ready[i]:
            dep[i] = order[place - 1]
    return dep


def _handed_over(events: TraceEvents, ops: DeviceOps, launched: NDArray[np.bool_]) -> I64:
    """Return, for each operation that depends on another stream's work, the last such operation, else -1.

    A communicator's stream waits for the work that its caller launched before. Some operators launch on several streams, such
    as cuDNN's recurrent networks. Then the first stream waits for the caller's stream, each further stream waits for the one
    before, and the caller's next launch waits for the stream that ends last. If the host is late, the recording shows no such
    waits. A faster host or longer kernels would cause them. A dependency is not assumed for a kernel name on a stream if one
    of its kernels started before the other operation ended.
    """
    start, end = ops.fixed_start, ops.fixed_start + ops.dur
    dep = np.full(len(ops), -1, np.int64)
    communicates = matches_of(events.names, COMMUNICATES)[events.gpu.name[ops.op]]
    call = events.gpu.call[ops.op]
    thread = events.calls.thread[call] if len(events.calls) else np.zeros(len(ops), np.int32)
    operators, last_of_operator = _on_several_streams(events, ops, launched & (call >= 0) & ~communicates)
    caller_streams: dict[int, int] = {}  # By thread: the stream on which the thread last launched ordinary work.
    last: dict[int, int] = {}  # By stream: the operation for which the stream's next work must wait.
    before_operator: dict[int, int] = {}  # By operator on several streams: the operation for which its first stream waits.
    launched_by: dict[int, list[int]] = {}  # By operator on several streams: its operations so far.
    reached = set[tuple[int, int]]()  # Pairs of operator and stream so far.
    for i in np.flatnonzero(launched & (call >= 0)).tolist():
        stream, operator = int(ops.stream[i]), int(operators[i])
        caller_stream = caller_streams.get(int(thread[i]), -1)
        if communicates[i]:
            dep[i] = last.get(caller_stream, -1)
        elif operator >= 0:
            before = before_operator.setdefault(operator, last.get(caller_stream, -1))
            earlier = launched_by.setdefault(operator, [])
            if (operator, stream) not in reached:
                dep[i] = next((j for j in reversed(earlier) if end[j] <= start[i]), before)
                reached.add((operator, stream))
            earlier.append(i)
            if caller_stream >= 0:
                last[caller_stream] = last_of_operator[operator]
        else:
            dep[i] = last.get(stream, -1)
            caller_streams[int(thread[i])], last[stream] = stream, i
    dep[dep >= np.arange(len(ops))] = -1
    dep[(dep >= 0) & (ops.stream[dep] == ops.stream)] = -1
    kind = distinct_rows(events.gpu.name[ops.op], ops.stream, np.where(dep >= 0, ops.stream[dep], -1))[1]
    began = (dep >= 0) & (end[dep] > start)
    return np.where(np.isin(kind, kind[began]), -1, dep)


def _on_several_streams(events: TraceEvents, ops: DeviceOps, among: NDArray[np.bool_]) -> tuple[I64, dict[int, int]]:
    """Return the operator of each operation, and by operator the operation that ends last.

    The operator is -1 if it uses only one stream. Only the operations in the mask ``among`` are examined.
    """
    operators = np.full(len(ops), -1, np.int64)
    operators[among] = events.calls.cpu_op[events.gpu.call[ops.op[among]]]
    if len(events.ops):
        operators[(operators >= 0) & events.ops.annotation[operators]] = -1
    # One sorted entry per pair of operator and stream: an operator that occurs twice uses several streams.
    of_pairs = np.unique(np.stack([operators, ops.stream]), axis=1)[0]
    operators[~np.isin(operators, of_pairs[1:][of_pairs[1:] == of_pairs[:-1]])] = -1
    order = np.argsort(ops.fixed_start + ops.dur, kind="stable")
    return operators, dict(zip(operators[order].tolist(), order.tolist(), strict=True))  # Later ends overwrite earlier ones.
