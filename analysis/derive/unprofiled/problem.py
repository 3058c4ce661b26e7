"""Conversion of a recording into a ``ReplayProblem``: the relevant calls, waits and durations."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import TraceEvents
from sawtooth.analysis.derive.host import (
    LAUNCH_KERNEL,
    SYNC_CALL,
    SYNC_COPY,
    CauseTimeline,
    HostFacts,
    Lines,
    cause_timeline,
    find_lines,
    loads_code,
    matches_of,
)
from sawtooth.analysis.derive.steps.device import DeviceSteps
from sawtooth.analysis.derive.unprofiled.waits import PAGEABLE, RecordedSchedule, RecordedWaits, latencies, waited_for, waits
from sawtooth.analysis.distinct_rows import distinct_rows
from sawtooth.analysis.knowledge.causes import CAUSE_OF, HOST_CAUSES, WAIT_CAUSES
from sawtooth.analysis.replay.simulation import I32, I64, NEVER, DeviceOps, HostNodes, ReplayProblem

# Host nodes and operations per replay. Each edit replays all of them, and more of them hardly change the mean.
USUAL_EVENTS = 60_000
MAX_EVENTS = 150_000  # Upper limit if MIN_STEPS large steps need more than USUAL_EVENTS.
MIN_STEPS = 6  # The mean of fewer steps depends too much on chance.
HOST_TO_DEVICE = re.compile(r"HtoD|H2D|HostToDevice|host.*to.*device", re.IGNORECASE)


@dataclass(frozen=True)
class StepTable:
    """The n steps of one process in order: arrays of length n, with times in ns since the origin."""

    number: I32
    host_start: I64
    host_end: I64
    counted: NDArray[np.bool_]
    cycle: I32

    @staticmethod
    def of(steps: DeviceSteps, among: slice = slice(None)) -> StepTable:
        """Return the steps placed on one device: all, or those that ``among`` selects."""
        table = steps.table.iloc[among]

        def column(name: str, kind: type) -> np.ndarray:
            return table[name].to_numpy(dtype=kind)

        return StepTable(
            column("step", np.int32), column("host_start", np.int64), column("host_end", np.int64), column("counted", np.bool_), column("cycle", np.int32)
        )  # fmt: skip


@dataclass(frozen=True)
class HostView:
    """Lines of host work, their cause timelines and blocking copies, for the replay and the idle causes."""

    lines: Lines
    timelines: tuple[CauseTimeline, ...]
    blocking: NDArray[np.bool_]  # By call: a pageable or synchronous copy to the device, or the wait for it.


def host_view(events: TraceEvents, facts: HostFacts) -> HostView:
    """Find the lines of host work and the cause of each of their moments."""
    lines = find_lines(events, facts)
    blocking = blocking_copies(events)
    calls_of = {"blocking_copy": blocking, "compilation": loads_code(events, facts)}
    timelines = tuple(cause_timeline(events, facts, lines, line, calls_of) for line in range(lines.count))
    return HostView(lines, timelines, blocking)


def blocking_copies(events: TraceEvents) -> NDArray[np.bool_]:
    """Mark, by call, blocking copies to the device and the wait after them in the same operator."""
    calls, gpu = events.calls, events.gpu
    to_device = matches_of(events.names, HOST_TO_DEVICE)[gpu.name] & (gpu.kind == 1) & (gpu.call >= 0)
    pageable = matches_of(events.names, PAGEABLE)[gpu.name]
    marked = np.zeros(len(calls), dtype=bool)
    synchronous = matches_of(events.names, SYNC_COPY)[calls.name]
    copies = gpu.call[to_device]
    marked[copies[pageable[to_device] | synchronous[copies]]] = True
    launches_copy = np.zeros(len(calls), dtype=bool)
    launches_copy[copies] = True
    sync = matches_of(events.names, SYNC_CALL)[calls.name]
    order = np.lexsort((calls.start, calls.thread))
    order = order[(sync | (calls.gpu_ops > 0))[order]]
    earlier, later = order[:-1], order[1:]
    same_thread = (
        (calls.thread[earlier] == calls.thread[later])
        & (calls.cpu_op[earlier] == calls.cpu_op[later])
        & (calls.cpu_op[later] >= 0)
    )
    pair = same_thread & sync[later] & launches_copy[earlier]
    marked[earlier[pair]] = marked[later[pair]] = True
    return marked


def build_problem(
    events: TraceEvents,
    steps: StepTable,
    facts: HostFacts,
    view: HostView,
    *,
    max_events: int | None = MAX_EVENTS,
    later_steps: int = 0,
) -> ReplayProblem:
    """Return the replay problem of ``steps``, or of as many leading steps as ``max_events`` allows.

    None means no limit. ``notes`` says if steps are left out. ``later_steps`` counts later steps whose events are not loaded.
    """
    calls = events.calls
    chosen, notes = _choose_steps(events, steps, max_events, later_steps)
    call, sync = _calls_of(events, steps, view, chosen)
    ops, streams = _device_ops(events, steps, call)
    waited = waits(events, facts, call, sync, ops)
    ops = latencies(events, ops, waited.submitted, len(streams))
    pred, gap = _predecessors(events, view, call)
    parts, is_slowed, (operators, other_calls, python_calls) = _gaps(
        events=events, facts=facts, view=view, call=call, pred=pred, gap=gap
    )
    launches = matches_of(events.names, LAUNCH_KERNEL)[calls.name[call]]
    wait_cause = _wait_causes(events, view, call)
    host = HostNodes(
        call=call, thread=calls.thread[call], pred=pred, gap=gap, gap_parts=parts, own=waited.own_ns, wait_ptr=waited.wait_ptr, wait_op=waited.wait_op, resume=waited.resume,
        slot_resume=waited.slot_resume, queue_depth=waited.queue_depth, operators=operators, calls=other_calls, python_calls=python_calls, launches=launches, wait_cause=wait_cause, is_slowed=is_slowed,
        start=calls.start[call], end=calls.end[call], gap_of_operator=_gap_of_operator(events, call, gap),
    )  # fmt: skip
    cycle = steps.cycle[chosen]
    new_cycle = np.concatenate([[True], cycle[1:] != cycle[:-1]]) if len(chosen) else np.zeros(0, dtype=bool)
    return ReplayProblem(host, ops, streams, steps.number[chosen], new_cycle, notes=tuple(notes))


def recorded_waits(events: TraceEvents, steps: StepTable, facts: HostFacts, view: HostView) -> RecordedSchedule:
    """Return the GPU operations that every call of ``steps`` waited for."""
    chosen, _ = _choose_steps(events, steps, None, 0)
    call, sync = _calls_of(events, steps, view, chosen)
    ops, _ = _device_ops(events, steps, call)
    wait_ptr, wait_op = waited_for(events, facts, call, sync, ops)
    calls = events.calls
    return RecordedSchedule(
        RecordedWaits(
            call=call,
            thread=calls.thread[call],
            start=calls.start[call],
            wait_ptr=wait_ptr,
            wait_op=wait_op,
            wait_cause=_wait_causes(events, view, call),
        ),
        ops,
    )


def _calls_of(events: TraceEvents, steps: StepTable, view: HostView, chosen: I64) -> tuple[I64, NDArray[np.bool_]]:
    """Return the launches and synchronizations of the ``chosen`` steps; mark which calls synchronize."""
    calls = events.calls
    sync = matches_of(events.names, SYNC_CALL)[calls.name]
    used = ((calls.gpu_ops > 0) | sync) & (view.lines.of_thread[calls.thread] >= 0)
    if len(chosen):
        begin, end = steps.host_start[chosen[0]], steps.host_end[chosen[-1]]
        used &= (calls.start >= begin) & (calls.start < end)
    call = np.flatnonzero(used)
    return call[np.lexsort((call, calls.start[call]))], sync


def _wait_causes(events: TraceEvents, view: HostView, call: I64) -> NDArray[np.int8]:
    """Return the cause of each call's wait, if it waits (index in WAIT_CAUSES)."""
    cause = np.full(len(call), WAIT_CAUSES.index("host_sync"), np.int8)
    for index, key in enumerate(WAIT_CAUSES):
        on_host = CAUSE_OF[key].on_host
        if on_host is not None and on_host.calls is not None:
            cause[matches_of(events.names, on_host.calls)[events.calls.name[call]]] = index
    cause[view.blocking[call]] = WAIT_CAUSES.index("blocking_copy")
    return cause


def _choose_steps(events: TraceEvents, steps: StepTable, max_events: int | None, later_steps: int) -> tuple[I64, list[str]]:
    order = np.argsort(steps.host_start, kind="stable")
    starts, ends = np.sort(events.calls.start[events.calls.gpu_ops > 0]), np.sort(events.gpu.start)
    event_counts = np.array(
        [np.searchsorted(starts, steps.host_end[i]) + np.searchsorted(ends, steps.host_end[i]) for i in order], dtype=np.int64
    )
    if max_events is None or not len(order):
        return order.astype(np.int64), []
    event_counts -= event_counts[0]
    limits = (min(USUAL_EVENTS, max_events), max_events)
    usual_count, max_count = np.searchsorted(event_counts, limits, side="right").tolist()
    chosen = order[: max(usual_count, min(MIN_STEPS, max_count), min(3, len(order)))]
    total = len(order) + later_steps
    notes = [] if len(chosen) == total else [f"the replay covers the first {len(chosen)} of {total} steps"]
    return chosen.astype(np.int64), notes


def _device_ops(events: TraceEvents, steps: StepTable, call: I64) -> tuple[DeviceOps, tuple[tuple[int, int], ...]]:
    """Return operations in launch order without latencies, and the streams."""
    gpu, calls = events.gpu, events.calls
    node_of_call = np.full(len(calls) + 1, -1, dtype=np.int64)
    node_of_call[call] = np.arange(len(call))
    node = node_of_call[gpu.call]
    first = int(calls.start[call[0]]) if len(call) else 0
    launched_before = (node < 0) & np.where(gpu.call >= 0, calls.start[gpu.call] < first if len(calls) else False, True)
    earliest = int(gpu.start[node >= 0].min()) if (node >= 0).any() else 0
    orphan = launched_before & (gpu.call < 0) & (gpu.start >= earliest)
    first_of, inverse = distinct_rows(gpu.device, gpu.stream)
    device_stream = np.stack([gpu.device[first_of].astype(np.int64), gpu.stream[first_of]])
    line: I32 = inverse.astype(np.int32)
    # An orphan runs before the next launched work of its stream, so it gets the node of that work. Nodes of later streams are
    # larger here, so they are never the minimum.
    ordered_ops = np.flatnonzero(orphan | (node >= 0))
    ordered_ops = ordered_ops[np.argsort(line[ordered_ops], kind="stable")]
    of_stream = line[ordered_ops].astype(np.int64) * (len(call) + 1)
    following = np.where(node[ordered_ops] >= 0, node[ordered_ops], len(call)) + of_stream
    upcoming = np.minimum.accumulate(following[::-1])[::-1] - of_stream
    lost = orphan[ordered_ops] & (upcoming < len(call))
    node[ordered_ops[lost]] = upcoming[lost]
    index = np.flatnonzero((node >= 0) | (launched_before & (gpu.start < earliest)))
    index = index[np.lexsort((index, gpu.start[index], node[index]))]
    none = np.full(len(index), -1, dtype=np.int64)
    linked = gpu.call[index] >= 0
    ops = DeviceOps(
        op=index, node=node[index], stream=line[index], dur=gpu.end[index] - gpu.start[index], fixed_start=gpu.start[index],
        after_stream=none, after_launch=np.where(linked, 0, NEVER), dep=none, after_dep=none, step=step_of_ops(events, steps)[index],
    )  # fmt: skip
    return ops, tuple((int(d), int(s)) for d, s in device_stream.T)


def step_of_ops(events: TraceEvents, steps: StepTable) -> I32:
    """Return the step number of each operation's launch, by host interval; -1 for none."""
    step = np.full(len(events.gpu), -1, dtype=np.int32)
    if len(steps.number) == 0:
        return step
    order = np.argsort(steps.host_start, kind="stable")
    linked = events.gpu.call >= 0
    launch = events.calls.start[events.gpu.call[linked]]
    at = np.searchsorted(steps.host_start[order], launch, side="right") - 1
    inside = (at >= 0) & (launch < steps.host_end[order][np.maximum(at, 0)])
    step[linked] = np.where(inside, steps.number[order][np.maximum(at, 0)], -1)
    return step


def _predecessors(events: TraceEvents, view: HostView, call: I64) -> tuple[I64, I64]:
    """Return each call's predecessor and the gap after it.

    The predecessor is the latest-ending earlier call of the same thread or of the main line.
    """
    calls = events.calls
    start, end, thread = calls.start[call].tolist(), calls.end[call].tolist(), calls.thread[call].tolist()
    line = view.lines.of_thread[calls.thread[call]].tolist() if len(call) else []
    pred, gap = [-1] * len(call), [0] * len(call)
    last: dict[int, int] = {}
    for n in range(len(call)):
        best = -1
        for other, m in last.items():
            allowed = other == thread[n] or line[m] == 0
            if allowed and end[m] <= start[n] and (best < 0 or end[m] > end[best]):
                best = m
        pred[n] = best
        gap[n] = start[n] - end[best] if best >= 0 else start[n]
        last[thread[n]] = n
    return np.array(pred, dtype=np.int64), np.array(gap, dtype=np.int64)


def _gap_of_operator(events: TraceEvents, call: I64, gap: I64) -> NDArray[np.float64]:
    """Return the share of the gap before each call inside the call's outermost operator; 0 for none."""
    ops, start = events.ops, events.calls.start[call]
    enclosing = events.calls.cpu_op[call].astype(np.int64)
    if not len(ops):
        return np.zeros(len(call))
    enclosing[ops.annotation[np.maximum(enclosing, 0)]] = -1
    while (climb := (enclosing >= 0) & (ops.parent[enclosing] >= 0) & ~ops.annotation[ops.parent[enclosing]]).any():
        enclosing[climb] = ops.parent[enclosing[climb]]
    inside = np.where(enclosing >= 0, start - np.maximum(start - gap, ops.start[enclosing]), 0)
    return np.clip(inside / np.maximum(gap, 1), 0.0, 1.0)


def _gaps(
    events: TraceEvents, facts: HostFacts, view: HostView, call: I64, pred: I64, gap: I64
) -> tuple[I64, NDArray[np.bool_], I64]:
    """Return the gaps' causes, whether the profiler slows them, and the counts of events in them.

    The three rows of counts are operators, calls and Python calls that begin in each gap.
    """
    calls, ops = events.calls, events.ops
    start = calls.start[call]
    line = view.lines.of_thread[calls.thread[call]]
    begin = np.where(pred >= 0, start - gap, start)
    parts = np.zeros((len(call), len(HOST_CAUSES)), dtype=np.int64)
    started = np.zeros((3, len(call)), dtype=np.int64)
    for number, timeline in enumerate(view.timelines):
        rows = line == number
        parts[rows] = timeline.within(begin[rows], start[rows])
        recorded = ((ops.start, ops.thread), (calls.start, calls.thread), (facts.python_start, facts.python_thread))
        for count, (moments, thread) in zip(started, recorded, strict=True):
            ordered = np.sort(moments[view.lines.of_thread[thread] == number])
            count[rows] += np.searchsorted(ordered, start[rows]) - np.searchsorted(ordered, begin[rows])
    return parts, line == 0, started
