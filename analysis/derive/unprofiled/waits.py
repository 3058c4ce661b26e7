"""The waits of a recording's calls and operations: which operations they waited for, and how long."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import TraceEvents
from sawtooth.analysis.derive.host import DEVICE_SYNC, EVENT_SYNC, SYNC_COPY, HostFacts, matches_of
from sawtooth.analysis.derive.unprofiled.full_queue import BLOCKED_LAUNCH_NS, queue_depths
from sawtooth.analysis.derive.unprofiled.streams import cross_stream_dependencies
from sawtooth.analysis.distinct_rows import positions_by
from sawtooth.analysis.replay.simulation import I32, I64, NEVER, DeviceOps, queue_slots

# Time from a launch's return to its kernel's start, if the trace shows none. Medians on H200 were 1.7 to 2.4 µs.
DEFAULT_AFTER_LAUNCH_NS = 2_000
# Host and device clocks differ: a pageable copy seemed to end up to 20 µs after the call that waits for it.
CLOCK_SKEW_NS = 100_000
_NONE = np.empty(0, np.int64)
PAGEABLE = re.compile(r"Pageable", re.IGNORECASE)


@dataclass(frozen=True)
class RecordedWaits:
    """Every launch and synchronization of a recording and its waits; fields as in ``HostNodes``."""

    call: I64
    thread: I32
    start: I64
    wait_ptr: I64
    wait_op: I64
    wait_cause: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.call)


@dataclass(frozen=True)
class RecordedSchedule:
    """The waits and GPU operations of a whole recording, from which the ledger is computed.

    A replay needs more data, so it covers only a part of a long recording.
    """

    host: RecordedWaits
    ops: DeviceOps


def _typical(values: I64, group: I32, fallback: int) -> I64:
    """Return, for each entry, the median of ``values`` over its ``group``; negative values are ignored."""
    result = np.full(len(values), fallback, dtype=np.int64)
    for name in np.unique(group):
        in_group = group == name
        valid_values = values[in_group][values[in_group] >= 0]
        if len(valid_values):
            result[in_group] = int(np.median(valid_values))
    return result


class NodeWaits(NamedTuple):
    """Waits of the host's nodes, named as in ``HostNodes``.

    ``submitted`` is the recorded time at which each node had submitted its work. ``queue_depth`` is as in ``HostNodes``.
    """

    own_ns: I64
    wait_ptr: I64
    wait_op: I64
    resume: I64
    slot_resume: I64
    submitted: I64
    queue_depth: I64


def waits(events: TraceEvents, facts: HostFacts, call: I64, sync: NDArray[np.bool_], ops: DeviceOps) -> NodeWaits:
    """Return the waits of the host's nodes, and the time of each node without waiting.

    The duration of a call that waits, or of a launch that a full queue blocks, includes the wait. Without the wait, the call is
    assumed to take the median of the calls of its name that do not wait, at most its own duration.
    """
    calls = events.calls
    start, end, name = calls.start[call], calls.end[call], calls.name[call]
    duration = end - start
    op_start, op_end = ops.fixed_start, ops.fixed_start + ops.dur
    bounds = np.searchsorted(ops.node, np.arange(len(call) + 1))
    targets, self_wait, staging = _targets(events=events, facts=facts, call=call, sync=sync, ops=ops, bounds=bounds)
    reached = np.full(len(call), NEVER, dtype=np.int64)
    for n, awaited in targets.items():
        reached[n] = op_end[awaited].max()
    waits = (reached > start) | (self_wait >= 0)
    depth = queue_depths(ops, start, end)
    slot = queue_slots(ops, bounds, depth)
    queued = ~waits & (duration > BLOCKED_LAUNCH_NS) & (slot >= 0) & (np.where(slot >= 0, op_start[slot], NEVER) > start)
    own_typical = _typical(np.where(waits | queued, -1, duration), name, 5_000)
    own_ns = np.where(waits | queued, np.minimum(own_typical, duration), duration)
    own_ns = np.where(staging >= 0, staging, own_ns)
    resume = np.where(waits, end - reached, -1)
    resume = np.where(waits, resume, _typical(resume, name, 0))
    idle_limit = np.where((reached > NEVER) & ~waits, end - reached, resume)
    resume = np.where(waits, resume, np.minimum(resume, np.maximum(idle_limit, 0)))
    slot_start = np.where(slot >= 0, op_start[np.maximum(slot, 0)], NEVER) if len(ops) else np.full(len(call), NEVER)
    slot_resume = np.where(queued, np.maximum(end - slot_start, 0), -1)
    slot_resume = np.where(queued, slot_resume, int(np.median(slot_resume[queued])) if queued.any() else 0)
    slot_resume = np.where(
        slot >= 0, np.minimum(slot_resume, np.where(queued, slot_resume, start + own_ns - slot_start)), slot_resume
    )
    wait_ptr, wait_op = _flatten(targets, len(call))
    return NodeWaits(own_ns, wait_ptr, wait_op, resume, slot_resume, np.where(queued, end, start + own_ns), depth)


def waited_for(events: TraceEvents, facts: HostFacts, call: I64, sync: NDArray[np.bool_], ops: DeviceOps) -> tuple[I64, I64]:
    """Return only wait_ptr and wait_op of the result of ``waits``."""
    bounds = np.searchsorted(ops.node, np.arange(len(call) + 1))
    return _flatten(_targets(events=events, facts=facts, call=call, sync=sync, ops=ops, bounds=bounds).by_node, len(call))


class _Targets(NamedTuple):
    """The operations for which each node waited, and the results of ``_self_waits``."""

    by_node: dict[int, I64]
    self_wait: I64
    staging: I64


def _targets(
    events: TraceEvents, facts: HostFacts, call: I64, sync: NDArray[np.bool_], ops: DeviceOps, bounds: I64
) -> _Targets:
    calls = events.calls
    targets = _sync_targets(events=events, facts=facts, call=call, sync=sync, ops=ops, op_end=ops.fixed_start + ops.dur)
    self_wait, staging = _self_waits(
        events=events, ops=ops, bounds=bounds, start=calls.start[call], end=calls.end[call], name=calls.name[call]
    )
    targets |= {n: self_wait[[n]] for n in np.flatnonzero(self_wait >= 0).tolist()}
    return _Targets(targets, self_wait, staging)


def _flatten(targets: dict[int, I64], nodes: int) -> tuple[I64, I64]:
    counts = np.zeros(nodes + 1, dtype=np.int64)
    if targets:
        counts[np.fromiter(targets, np.int64) + 1] = [len(awaited) for awaited in targets.values()]
    return np.cumsum(counts), np.concatenate([_NONE, *(targets[n] for n in sorted(targets))])


def _self_waits(events: TraceEvents, ops: DeviceOps, bounds: I64, start: I64, end: I64, name: I32) -> tuple[I64, I64]:
    """Return, by node, the operation that it launches and waits for, and the host's time before that.

    Copies from or to pageable memory and synchronous copies wait in this way; the operation of other calls is -1. The second
    value is the host's time (staging) until the copy can start. It is -1 if earlier work on the stream hides this time.
    """
    op, staging = np.full(len(start), -1, dtype=np.int64), np.full(len(start), -1, dtype=np.int64)
    launching = np.flatnonzero(bounds[1:] > bounds[:-1])
    if not len(launching):
        return op, staging
    last = bounds[1:][launching] - 1
    is_waiting = (
        matches_of(events.names, SYNC_COPY)[name[launching]] | matches_of(events.names, PAGEABLE)[events.gpu.name[ops.op[last]]]
    )
    begins, ends = ops.fixed_start[last], ops.fixed_start[last] + ops.dur[last]
    is_waiting &= (begins < end[launching]) & (ends <= end[launching] + CLOCK_SKEW_NS)
    op[launching[is_waiting]] = last[is_waiting]
    free = stream_free(ops)[last]
    by_launch = is_waiting & (begins > start[launching]) & ((free <= start[launching]) | (free < begins - BLOCKED_LAUNCH_NS))
    staging[launching[by_launch]] = np.maximum(begins - start[launching] - DEFAULT_AFTER_LAUNCH_NS, 0)[by_launch]
    return op, staging


def stream_free(ops: DeviceOps) -> I64:
    """Return, by operation, the recorded end of the work before it on its stream; NEVER for none."""
    free = np.full(len(ops), NEVER, dtype=np.int64)
    for ops_of_stream in positions_by(ops.stream).values():
        free[ops_of_stream[1:]] = np.maximum.accumulate((ops.fixed_start + ops.dur)[ops_of_stream])[:-1]
    return free


def _sync_targets(
    events: TraceEvents, facts: HostFacts, call: I64, sync: NDArray[np.bool_], ops: DeviceOps, op_end: I64
) -> dict[int, I64]:
    """Return, by synchronization (a node), the operations whose end it waited for.

    There is at most one operation per stream, in the order of their launches.
    """
    calls, names = events.calls, events.names
    nodes = np.flatnonzero(sync[call])
    everything, event_sync = (
        matches_of(names, DEVICE_SYNC)[calls.name[call[nodes]]],
        matches_of(names, EVENT_SYNC)[calls.name[call[nodes]]],
    )
    known_stream = dict(zip(facts.sync_call.tolist(), facts.sync_stream.tolist(), strict=True))
    launched_before = np.searchsorted(ops.node, nodes)
    lines = sorted(positions_by(ops.stream).values(), key=lambda ops_of_stream: int(ops_of_stream[0]))
    opens = np.array([ops_of_stream[0] for ops_of_stream in lines], np.int64)
    line, earlier = np.empty(len(ops), np.int64), np.full(len(ops), -1, np.int64)
    for number, ops_of_stream in enumerate(lines):
        line[ops_of_stream], earlier[ops_of_stream[1:]] = number, ops_of_stream[:-1]
    with_id = positions_by(events.gpu.stream[ops.op[opens]])
    by_thread = _launched_by_thread(events, call, ops)
    ends, earlier_ops = op_end.tolist(), earlier.tolist()

    def ended(newest: I64, limit: int) -> I64:
        """Return, by stream, the newest operation, or the latest one before it, that had ended at ``limit``.

        Streams without such an operation are left out.
        """
        latest = newest.copy()
        for at in np.flatnonzero(op_end[newest] > limit).tolist():
            op = int(latest[at])
            while op >= 0 and ends[op] > limit:
                op = earlier_ops[op]
            latest[at] = op
        return latest[latest >= 0]

    targets: dict[int, I64] = {}
    last = np.full(len(lines), -1, np.int64)  # By stream: the last operation launched before the call.
    position = 0
    for at, (n, c) in enumerate(zip(nodes.tolist(), call[nodes].tolist(), strict=True)):
        launched = int(launched_before[at])
        # if a stream occurs several times, the last value remains
        last[line[position:launched]] = np.arange(position, launched)
        position = launched
        if not launched:
            continue
        if everything[at]:
            newest = last[: np.searchsorted(opens, launched)]
        else:
            newest = last[with_id.get(known_stream[c], _NONE)] if c in known_stream else _NONE
            newest = newest[newest >= 0]
            if not len(newest):
                of_thread = by_thread.get(int(calls.thread[c]), _NONE)
                of_thread = of_thread[: np.searchsorted(of_thread, launched)]
                of_all = last[: np.searchsorted(opens, launched)]
                newest = of_thread[-1:] if len(of_thread) else of_all[[np.argmax(op_end[of_all])]]
        end = int(calls.end[c])
        awaited = ended(newest, end)
        if event_sync[at] and len(awaited) and end - op_end[awaited[0]] > BLOCKED_LAUNCH_NS < end - calls.start[c]:
            continue  # The trace does not contain the operation that the call waited for.
        if len(awaited):
            targets[n] = awaited
    return targets


def _launched_by_thread(events: TraceEvents, call: I64, ops: DeviceOps) -> dict[int, I64]:
    """Return, by thread, the operations that its calls launched, in launch order."""
    launched = np.flatnonzero(ops.node >= 0)
    thread = events.calls.thread[call[ops.node[launched]]]
    return {int(number): launched[thread == number] for number in np.unique(thread)}


def latencies(events: TraceEvents, ops: DeviceOps, submit: I64, streams: int) -> DeviceOps:
    """Measure the latency of each operation after the last event for which it waited.

    An operation waits for its stream, its launch and a dependency. After the earlier ones, the latency is the stream's median,
    or less if the operation started sooner.
    """
    start, end = ops.fixed_start, ops.fixed_start + ops.dur
    count = len(ops)
    launched = ops.node >= 0
    free = stream_free(ops)
    # the first operation of a stream follows its node's launch even without its own call
    linked = launched & ((events.gpu.call[ops.op] >= 0) | (free == NEVER))
    ready = np.full(count, NEVER, dtype=np.int64)
    ready[linked] = submit[ops.node[linked]]
    dep = cross_stream_dependencies(events, ops, ready=np.maximum(free, ready), launched=launched, streams=streams)
    dep_end = np.where(dep >= 0, end[dep], NEVER) if count else np.zeros(0, dtype=np.int64)
    by_dep = (dep >= 0) & (dep_end >= np.maximum(free, ready))
    by_launch = ~by_dep & linked & (ready > free)
    by_stream = ~by_dep & ~by_launch & (free > NEVER)
    lines = positions_by(ops.stream)
    latency_of = {}
    for key, bound, base, fallback in (
        ("after_stream", by_stream, free, 0),
        ("after_launch", by_launch, ready, DEFAULT_AFTER_LAUNCH_NS),
        ("after_dep", by_dep, dep_end, 0),
    ):
        latency = np.empty(count, dtype=np.int64)
        everywhere = start[bound & launched] - base[bound & launched]
        overall = int(np.median(everywhere)) if len(everywhere) else fallback
        latency[:] = overall
        measured = bound & launched
        for ops_of_line in lines.values():
            sample = ops_of_line[measured[ops_of_line]]
            if len(sample):
                latency[ops_of_line] = int(np.median(start[sample] - base[sample]))
        has_base = base > NEVER
        latency[has_base] = np.where(bound, start - base, np.minimum(latency, start - base))[has_base]
        latency[~has_base] = NEVER if key == "after_launch" else 0
        latency_of[key] = latency
    return DeviceOps(
        op=ops.op, node=ops.node, stream=ops.stream, dur=ops.dur, fixed_start=ops.fixed_start, after_stream=latency_of["after_stream"], after_launch=latency_of["after_launch"], dep=dep, after_dep=latency_of["after_dep"], step=ops.step
    )  # fmt: skip
