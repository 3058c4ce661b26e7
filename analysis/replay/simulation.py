"""The replay: a simulation of a recorded run whose parts can be changed before it runs again.

Host nodes are the launch and synchronization calls of the launching threads, in recorded order. The host's time between two nodes
is a gap. GPU operations run in order on their stream, after their launch, and after the operation of another stream on which they
depend. The durations of waits are not stored. Instead, a waiting call lists the operations for which it waits, and its duration
follows from their ends. So an edit (a shorter gap, a removed wait, a faster kernel) changes all times that depend on it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.distinct_rows import positions_by

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]

NEVER = -(2**60)  # A time before all others. Sums with it do not overflow.
QUEUE_DEPTH = 1021  # With this number of launches in a stream's queue, the next launch blocks. Other streams are unused.


@dataclass(frozen=True)
class HostNodes:
    """Launch and synchronization calls in recorded order; arrays of length n unless noted, times in ns.

    * ``call``: the call's recorded id. ``thread``: its thread. ``start``, ``end``: its recorded times.
    * ``pred``: the previous node, after which the gap begins. -1 if there is none; ``gap`` is then the start time.
    * ``gap_parts``: the gap by cause, shape (n, len(causes.HOST_CAUSES)). A row sums to ``gap`` (0 if ``pred`` is -1).
    * ``gap_of_operator``: the share of the gap, 0 to 1, inside the call's operator. ``own``: the call's time without waiting.
    * ``wait_ptr`` (length n + 1), ``wait_op``: the operations for whose end the call waits. ``resume``: the time from this end to
      the call's return. ``wait_cause``: index in causes.WAIT_CAUSES.
    * ``queue_depth``: the number of places in the stream's queue. ``slot_resume``: the time from a free place to a waiting launch.
    * ``operators``, ``calls`` (that are no nodes), ``python_calls``: numbers of recorded events in the gap.
    * ``launches``: whether the call launches one kernel. ``is_slowed``: False for parallel threads, which keep the profiler's cost.
    """

    call: I64
    thread: I32
    pred: I64
    gap: I64
    gap_parts: I64
    own: I64
    wait_ptr: I64
    wait_op: I64
    resume: I64
    slot_resume: I64
    queue_depth: I64
    operators: I64
    calls: I64
    python_calls: I64
    launches: NDArray[np.bool_]
    wait_cause: NDArray[np.int8]
    is_slowed: NDArray[np.bool_]
    start: I64
    end: I64
    gap_of_operator: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.gap)


@dataclass(frozen=True)
class DeviceOps:
    """GPU operations in launch order (those launched by one call in order of start); times in ns.

    ``node`` is the launching host node, or -1 for work launched before the replayed part, which stays at ``fixed_start``. An
    operation begins after three events: the end of the previous operation of its stream, its launch, and the end of ``dep``, an
    operation of another stream (-1: none). ``after_*`` are the latencies after these events.
    """

    op: I64
    node: I64
    stream: I32
    dur: I64
    fixed_start: I64
    after_stream: I64
    after_launch: I64
    dep: I64
    after_dep: I64
    step: I32

    def __len__(self) -> int:
        return len(self.dur)


@dataclass(frozen=True)
class ReplayProblem:
    """The input of ``replay``. Edit it with ``dataclasses.replace`` on its parts.

    ``streams[i]`` is the (device, stream) of dense stream i. ``steps`` are the recording's step numbers in the replay, in
    order; ``new_cycle`` marks those that begin a profiling cycle. Times are relative to ``Events.origin_ns``.
    """

    host: HostNodes
    ops: DeviceOps
    streams: tuple[tuple[int, int], ...]
    steps: I32
    new_cycle: NDArray[np.bool_]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Replayed:
    """Starts and ends of ``problem.host`` nodes and ``problem.ops`` in one replay (ns, recording's clock).

    ``host_submit`` is the time at which a node's work is in the queue. ``waited`` is how long the node waits for GPU work after
    that. ``queued`` is how long it waits for a place in the queue before that.
    """

    host_start: I64
    host_submit: I64
    host_end: I64
    waited: I64
    queued: I64
    op_start: I64
    op_end: I64


def replay(problem: ReplayProblem) -> Replayed:
    """Run ``problem`` once; this takes about 1 µs for each node or operation."""
    try:
        next(stepwise(problem, {}))
    except StopIteration as done:
        run: Replayed = done.value
        return run
    raise AssertionError("a replay without collectives never pauses")


_LAUNCHED = ("stream", "dur", "dep", "after_stream", "after_launch", "after_dep")  # Fields that determine an operation's times.


def stepwise(problem: ReplayProblem, collectives: Mapping[int, int]) -> Generator[tuple[int, int], int, Replayed]:
    """Run ``problem``, and pause at the collectives of several ranks.

    ``collectives`` maps indices of ``problem.ops`` to keys. At each of these operations, the generator yields (key, start of the
    operation) and receives the operation's end. It returns the starts and ends of all operations.
    """
    host, ops = problem.host, problem.ops
    bounds = np.searchsorted(ops.node, np.arange(len(host) + 1))
    fixed = int(bounds[0])
    op_start = ops.fixed_start[:fixed].tolist()
    op_end = (ops.fixed_start + ops.dur)[:fixed].tolist()
    free = [NEVER] * max(len(problem.streams), 1)  # End of the work so far, by stream.
    for line, end in zip(ops.stream[:fixed].tolist(), op_end, strict=True):
        free[line] = max(free[line], end)
    launched = zip(*(getattr(ops, name)[fixed:].tolist() for name in _LAUNCHED), strict=True)
    wait_op = host.wait_op.tolist()
    host_submit, host_end = [], [0]  # ``host_end[n + 1]`` is the end of node n; a node without a predecessor begins at its gap.
    nodes = (
        host.pred + 1, host.gap + host.own, queue_slots(ops, bounds, host.queue_depth), host.slot_resume,
        np.diff(bounds), host.wait_ptr[:-1], host.wait_ptr[1:], host.resume,
    )  # fmt: skip
    # Comparisons replace max(), whose calls would take half of the time.
    for predecessor, lead, place, slot_resume, launches, wait, waits_end, resume in zip(
        *(of_each.tolist() for of_each in nodes), strict=True
    ):
        submit = host_end[predecessor] + lead
        if place >= 0 and (at := op_start[place] + slot_resume) > submit:
            submit = at
        if launches:
            for line, dur, dep, after_stream, after_launch, after_dep in islice(launched, launches):
                at = free[line] + after_stream
                if (other := submit + after_launch) > at:
                    at = other
                if dep >= 0 and (other := op_end[dep] + after_dep) > at:
                    at = other
                end = at + dur
                if collectives and (i := len(op_end)) in collectives:
                    end = yield collectives[i], at
                op_start.append(at)
                op_end.append(end)
                if end > free[line]:
                    free[line] = end
        returned = submit
        if wait < waits_end:
            for op in wait_op[wait:waits_end]:
                if (at := op_end[op] + resume) > returned:
                    returned = at
        host_submit.append(submit)
        host_end.append(returned)
    submits, ends = np.array(host_submit, dtype=np.int64), np.array(host_end, dtype=np.int64)
    starts = ends[host.pred + 1] + host.gap
    of_ops = (np.array(of_each, dtype=np.int64) for of_each in (op_start, op_end))
    return Replayed(starts, submits, ends[1:], ends[1:] - submits, submits - starts - host.own, *of_ops)


def queue_slots(ops: DeviceOps, bounds: I64, depth: I64) -> I64:
    """Return, by node, the operation whose start frees a queue place for the node's first launch, or -1.

    Node n launches the operations from ``bounds[n]`` up to ``bounds[n + 1]``. The queue of their stream has ``depth[n]`` places.
    """
    slot, of_op = np.full(max(len(bounds) - 1, 0), -1, dtype=np.int64), np.full(len(ops), len(ops), dtype=np.int64)
    launching = np.flatnonzero(bounds[1:] > bounds[:-1])
    firsts = bounds[:-1][launching]
    of_op[firsts] = depth[launching]
    for ops_of_stream in positions_by(ops.stream).values():
        place = np.arange(len(ops_of_stream)) - of_op[ops_of_stream]
        of_op[ops_of_stream] = np.where(place >= 0, ops_of_stream[np.maximum(place, 0)], -1)
    slot[launching] = of_op[firsts]
    return slot


def step_ends(problem: ReplayProblem, run: Replayed, device: int) -> I64:
    """Return the end of each step on ``device``: of its last operation, or the previous end if later."""
    on_device = np.array([d == device for d, _ in problem.streams], dtype=bool)
    ops = problem.ops
    in_step = (ops.step >= 0) & on_device[ops.stream]
    position = np.searchsorted(problem.steps, ops.step[in_step])
    ends = np.full(len(problem.steps), NEVER, dtype=np.int64)
    np.maximum.at(ends, position, run.op_end[in_step])
    return np.maximum.accumulate(ends)


def step_spans(problem: ReplayProblem, run: Replayed, device: int, counted: I32) -> tuple[I64, I64]:
    """Return starts and ends of ``counted`` steps on ``device``, each from the previous step's end.

    The first step of a profiling cycle, or of the replay, has no previous end, so it is left out. If there are no other steps, it
    is timed from its own start.
    """
    ends = step_ends(problem, run, device)
    selected = np.isin(problem.steps, counted)
    usable = selected & ~problem.new_cycle
    usable[:1] = False
    index = np.flatnonzero(usable)
    index = index[ends[index - 1] > NEVER] if len(index) else index
    if len(index):
        return ends[index - 1], ends[index]
    single = np.flatnonzero(selected & (ends > NEVER))
    begins = _beginnings(problem, run, device)[single]
    return begins[begins > NEVER], ends[single][begins > NEVER]


def _beginnings(problem: ReplayProblem, run: Replayed, device: int) -> I64:
    """Return when each step could begin on ``device``; NEVER for a step without a launch.

    This is the time of its first launch, but not before the end of work that was launched before the recording.
    """
    on_device = np.array([d == device for d, _ in problem.streams], dtype=bool)
    ops = problem.ops
    in_step = (ops.step >= 0) & (ops.node >= 0) & on_device[ops.stream]
    latest = np.iinfo(np.int64).max
    first = np.full(len(problem.steps), latest, dtype=np.int64)
    np.minimum.at(first, np.searchsorted(problem.steps, ops.step[in_step]), run.host_start[ops.node[in_step]])
    earlier = run.op_end[(ops.node < 0) & on_device[ops.stream]].max(initial=NEVER)
    return np.where(first < latest, np.maximum(first, earlier), NEVER)


def step_times(problem: ReplayProblem, run: Replayed, device: int, counted: I32) -> I64:
    """Return the times of the steps of ``step_spans``."""
    starts, ends = step_spans(problem, run, device, counted)
    return ends - starts


def with_median_latencies(problem: ReplayProblem) -> ReplayProblem:
    """Return ``problem`` with each stream's median latencies, to test whether it stays accurate."""
    ops = problem.ops
    launched = ops.node >= 0
    columns = {}
    for name in ("after_stream", "after_launch", "after_dep"):
        values = getattr(ops, name).copy()
        has_latency = launched & (values > NEVER)
        if name == "after_dep":
            has_latency &= ops.dep >= 0
        indices = np.flatnonzero(has_latency)
        for ops_of_stream in positions_by(ops.stream[indices]).values():
            values[indices[ops_of_stream]] = int(np.median(values[indices[ops_of_stream]]))
        columns[name] = values
    return replace(problem, ops=replace(ops, **columns))


def without_ops(problem: ReplayProblem, drop: NDArray[np.bool_]) -> ReplayProblem:
    """Return ``problem`` without ``drop``; waits for them become waits for the previous operation.

    The launching calls stay. Set their ``own`` and ``gap`` to remove their host time as well.
    """
    ops, host = problem.ops, problem.host
    keep = ~drop
    stand_in = np.arange(len(ops), dtype=np.int64)
    for ops_of_stream in positions_by(ops.stream).values():
        so_far = np.where(keep[ops_of_stream], np.arange(len(ops_of_stream)), -1)
        last = np.maximum.accumulate(so_far)
        stand_in[ops_of_stream] = np.where(last >= 0, ops_of_stream[np.maximum(last, 0)], -1)
    renumber = np.cumsum(keep) - 1

    def moved(targets: I64) -> I64:
        moved_to = np.where(targets >= 0, stand_in[np.maximum(targets, 0)], -1)
        return np.where(moved_to >= 0, renumber[np.maximum(moved_to, 0)], -1).astype(np.int64)

    fields = {name: getattr(ops, name)[keep] for name in DeviceOps.__dataclass_fields__}
    fields["dep"] = moved(ops.dep)[keep]
    targets = moved(host.wait_op)
    remains = targets >= 0
    owner = np.repeat(np.arange(len(host)), np.diff(host.wait_ptr))[remains]
    wait_ptr = np.searchsorted(owner, np.arange(len(host) + 1)).astype(np.int64)
    return replace(problem, ops=DeviceOps(**fields), host=replace(host, wait_ptr=wait_ptr, wait_op=targets[remains]))
