"""Changes of a run as edits of its replay, alone or together; what they bring is asked of ``WhatIf``.

An edit is data, so that a finding can carry it and be kept in a file, several can be combined, and a page can switch them on and off. Edits speak of
recorded ids (calls, GPU operations), never of positions in the replay. Gains of edits do not add up: replay them together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.knowledge.causes import CAUSE_OF, HOST_CAUSES, WAIT_CAUSES
from sawtooth.analysis.replay.machine import I64, HostNodes, ReplayProblem, without_ops

GRAPH_NODE_GAP_NS = 100  # between two kernels of one CUDA graph on one stream (H200: 459 kernels, 47 µs idle a step)
GRAPH_LAUNCH_NS = 10_000  # one graph launch on the host; the first kernel follows about 10 µs later
BETWEEN_CALLS_NS = 50_000  # a line or two of Python between operators, or a view, costs the host 5 to 30 µs; more is own work


class WithoutHostCause(msgspec.Struct, frozen=True, tag=True):
    """The host spends no time on ``cause`` (of HOST_CAUSES): the loader keeps up, the allocator is not called, Python is quick.

    ``keep_share`` of it stays, between ``keep_at_least`` and ``keep_at_most`` where they are given. With ``calls`` only the host's time before these calls is meant. Waits of calls that have the cause
    themselves (frees, pageable copies) and the own time of such calls that launch nothing go as well. ``paced_ms`` is what a step then takes at least,
    whatever else is changed: the pace of the workers that load, between ``paced_at_least`` and ``paced_at_most`` where their samples were timed.
    """

    cause: str
    keep_share: float = 0.0
    calls: tuple[int, ...] | None = None
    keep_at_most: float | None = None
    paced_ms: float = 0.0
    keep_at_least: float | None = None
    paced_at_least: float | None = None
    paced_at_most: float | None = None


class WithoutWaits(msgspec.Struct, frozen=True, tag=True):
    """The host does not wait in these calls (call ids; None: in every synchronizing call), nor spend their own time."""

    calls: tuple[int, ...] | None = None


class ScaledOps(msgspec.Struct, frozen=True, tag=True):
    """These GPU operations take ``factor`` of their time: between ``low`` and ``high`` of it, where they are given."""

    ops: tuple[int, ...]
    factor: float
    low: float | None = None
    high: float | None = None


class TimedOps(msgspec.Struct, frozen=True, tag=True):
    """Each of these GPU operations takes ``dur_ns``, and between ``low_ns`` and ``high_ns`` where they are given."""

    ops: tuple[int, ...]
    dur_ns: tuple[int, ...]
    low_ns: tuple[int, ...] = ()
    high_ns: tuple[int, ...] = ()


class WithoutOps(msgspec.Struct, frozen=True, tag=True):
    """These GPU operations and their launches are gone, as when kernels are fused.

    ``host_too`` takes the host's time on launching them as well: in their operators and, up to BETWEEN_CALLS_NS, in Python between them.
    """

    ops: tuple[int, ...]
    host_too: bool = True


class AsGraph(msgspec.Struct, frozen=True, tag=True):
    """Each step is launched as one CUDA graph: one launch, and kernels that follow one another at once. Long stretches of Python stay.

    With ``waits_stay`` a step that the host waits in is as many graphs as lie between its waits. With ``first_ops`` a graph begins at each of
    these GPU operations, the host waits where it did, and what a step launches before the first of them is launched one by one as before.
    """

    waits_stay: bool = False
    first_ops: tuple[int, ...] = ()


class FasterHost(msgspec.Struct, frozen=True, tag=True):
    """The host needs ``factor`` of its time between and in launches (a compiled or fused loop body): between ``low`` and ``high`` of it, where they are
    given. With ``calls`` only the host's time before and in these calls is meant."""

    factor: float
    calls: tuple[int, ...] | None = None
    low: float | None = None
    high: float | None = None


class WithoutCalls(msgspec.Struct, frozen=True, tag=True):
    """These calls are not made: what they launch, what they wait for, their own time and the host's time before them (but the loader's) are gone.

    ``slower_in_run``: all that a run's step takes beyond its replay is theirs as well.
    """

    calls: tuple[int, ...]
    slower_in_run: bool = False


class MoreLaunches(msgspec.Struct, frozen=True, tag=True):
    """The host makes so many more ``launches`` before each of these GPU operations, at its usual pace. What they do on the GPU is not in it."""

    ops: tuple[int, ...]
    launches: tuple[int, ...]


Edit = WithoutHostCause | WithoutCalls | WithoutWaits | ScaledOps | TimedOps | WithoutOps | AsGraph | FasterHost | MoreLaunches


def apply(problem: ReplayProblem, edits: Sequence[Edit]) -> ReplayProblem:
    """Return ``problem`` with all ``edits`` made. Removals come last, so that the other edits still find their operations.

    An operation that several edits give another time takes the shortest: two ways to a faster kernel are not two gains.
    """
    problem = _with_times(problem, [edit for edit in edits if isinstance(edit, (ScaledOps, TimedOps))])
    for edit in sorted(edits, key=lambda e: isinstance(e, (WithoutOps, WithoutCalls, AsGraph))):
        problem = _apply(problem, edit)
    return problem


def _with_times(problem: ReplayProblem, edits: Sequence[ScaledOps | TimedOps]) -> ReplayProblem:
    ops = problem.ops
    dur, changed = ops.dur.copy(), np.zeros(len(ops.dur), bool)
    for edit in edits:
        hit = np.isin(ops.op, np.array(edit.ops))
        if isinstance(edit, ScaledOps):
            new = np.rint(ops.dur * edit.factor).astype(np.int64)
        else:
            wanted = dict(zip(edit.ops, edit.dur_ns, strict=True))
            new = ops.dur.copy()
            new[hit] = [wanted[op] for op in ops.op[hit].tolist()]
        dur = np.where(hit, np.where(changed, np.minimum(dur, new), new), dur)
        changed |= hit
    return replace(problem, ops=replace(ops, dur=dur)) if edits else problem


def _apply(problem: ReplayProblem, edit: Edit) -> ReplayProblem:
    host, ops = problem.host, problem.ops
    match edit:
        case WithoutHostCause(cause, keep_share, calls):
            return _without_host_cause(problem, cause, keep_share, _before(host, calls))
        case WithoutCalls(calls):
            hit = np.isin(host.call, np.array(calls))
            moving = hit & (host.pred >= 0)
            loader = np.array([key == "data_wait" for key in HOST_CAUSES])  # it is asked for the next batch all the same
            parts = np.where(moving[:, None] & ~loader, 0, host.gap_parts)
            quick = replace(host, gap=np.where(moving, parts.sum(axis=1), host.gap), gap_parts=parts)
            quick = replace(quick, own=np.where(hit, 0, host.own))
            ours = (ops.node >= 0) & hit[np.maximum(ops.node, 0)]
            return without_ops(_without_waits(replace(problem, host=quick), hit), ours)
        case WithoutWaits(calls):
            return _without_waits(problem, _before(host, calls))
        case ScaledOps() | TimedOps():
            return problem  # its operations have their times already
        case WithoutOps(which, host_too):
            return _without_ops(problem, np.isin(ops.op, np.array(which)), host_too)
        case AsGraph(waits_stay, first_ops):
            return _as_graph(problem, waits_stay or bool(first_ops), np.array(first_ops, np.int64))
        case FasterHost(factor, calls):
            quicker = np.where(_before(host, calls), factor, 1.0)
            parts = (host.gap_parts * quicker[:, None]).astype(np.int64)
            gap = np.where(host.pred >= 0, (host.gap * quicker).astype(np.int64), host.gap)
            return replace(problem, host=replace(host, gap=gap, gap_parts=parts, own=(host.own * quicker).astype(np.int64)))
        case MoreLaunches(which, launches):
            return _with_launches(problem, dict(zip(which, launches, strict=True)))
    raise TypeError(f"unknown edit {edit!r}")


def _before(host: HostNodes, calls: tuple[int, ...] | None) -> NDArray[np.bool_]:
    """Mark the nodes of ``calls``, all where None."""
    return np.ones(len(host), bool) if calls is None else np.isin(host.call, np.array(calls, np.int64))


def _with_launches(problem: ReplayProblem, launches: Mapping[int, int]) -> ReplayProblem:
    """Lengthen the gaps before the nodes that launch these operations by so many times what a launch usually takes the host, gap and call."""
    host, ops = problem.host, problem.ops
    usual = host.launches & (host.pred >= 0)
    if not usual.any():
        return problem
    each = int(np.median((host.gap + host.own)[usual]))
    more = np.zeros(len(host), np.int64)
    hit = np.isin(ops.op, np.array(list(launches), np.int64)) & (ops.node >= 0)
    np.add.at(more, ops.node[hit], [each * launches[op] for op in ops.op[hit].tolist()])
    more[host.pred < 0] = 0
    parts = host.gap_parts.copy()
    parts[:, HOST_CAUSES.index("launch_bound")] += more
    return replace(problem, host=replace(host, gap=host.gap + more, gap_parts=parts))


def _without_host_cause(problem: ReplayProblem, cause: str, keep_share: float, hit: NDArray[np.bool_]) -> ReplayProblem:
    """Shorten the gaps before the marked nodes by ``cause``; where a node's own wait has that cause, the wait goes too."""
    host = problem.host
    parts = host.gap_parts.copy()
    column = HOST_CAUSES.index(cause)
    freed = np.where(hit, parts[:, column] - (parts[:, column] * keep_share).astype(np.int64), 0)
    parts[:, column] -= freed
    gap = np.where(host.pred >= 0, host.gap - freed, host.gap)
    problem = replace(problem, host=replace(host, gap=gap, gap_parts=parts))
    if cause not in WAIT_CAUSES or keep_share:
        return problem
    freeing = np.isin(host.wait_cause, [WAIT_CAUSES.index(cause)])
    return _without_waits(problem, hit & freeing)


def _without_waits(problem: ReplayProblem, hit: NDArray[np.bool_]) -> ReplayProblem:
    """Drop what the marked nodes wait for. A node that launches nothing (a pure synchronization) also costs no time any more."""
    host = problem.host
    owner = np.repeat(np.arange(len(host)), np.diff(host.wait_ptr))
    kept = ~hit[owner]
    wait_ptr = np.searchsorted(owner[kept], np.arange(len(host) + 1)).astype(np.int64)
    launches = np.zeros(len(host), bool)
    launches[problem.ops.node[problem.ops.node >= 0]] = True
    own = np.where(hit & ~launches, 0, host.own)
    return replace(problem, host=replace(host, wait_ptr=wait_ptr, wait_op=host.wait_op[kept], own=own))


def _without_ops(problem: ReplayProblem, hit: NDArray[np.bool_], host_too: bool) -> ReplayProblem:
    host, ops = problem.host, problem.ops
    if host_too:
        total, gone = np.zeros(len(host), np.int64), np.zeros(len(host), np.int64)
        launched = ops.node >= 0
        np.add.at(total, ops.node[launched], 1)
        np.add.at(gone, ops.node[launched & hit], 1)
        emptied = (total > 0) & (gone == total)
        parts = np.where(emptied[:, None], _beside_launching(host), host.gap_parts)
        gap = np.where(host.pred >= 0, parts.sum(axis=1), host.gap)
        problem = replace(problem, host=replace(host, gap=gap, gap_parts=parts, own=np.where(emptied, 0, host.own)))
    return without_ops(problem, hit)


def _beside_launching(host: HostNodes) -> I64:
    """Return what stays of each gap's parts when its call is not made: all but the call's own operator and a little Python before it."""
    parts = host.gap_parts.copy()
    launching = HOST_CAUSES.index("launch_bound")
    in_operator = np.minimum((host.gap * host.gap_of_operator).astype(np.int64), parts[:, launching])
    parts[:, launching] -= in_operator
    spare = np.full(len(parts), BETWEEN_CALLS_NS, np.int64)
    for column in (launching, HOST_CAUSES.index("python_host")):
        taken = np.minimum(parts[:, column], spare)
        parts[:, column] -= taken
        spare -= taken
    return parts


def _beside_graph(cause: str) -> str | None:
    on_host = CAUSE_OF[cause].on_host
    return on_host.beside_graph if on_host is not None else None


def _as_graph(problem: ReplayProblem, waits_stay: bool, first_ops: I64) -> ReplayProblem:
    """Launch each step's operations at once: the step's first node pays one graph launch, the others nothing, and nobody waits inside.

    Where ``waits_stay`` the first launch after each wait begins another graph; where there are ``first_ops`` the graphs begin there alone.
    """
    host, ops = problem.host, problem.ops
    launched = ops.node >= 0
    step_of_node = np.full(len(host), -1, np.int64)
    step_of_node[ops.node[launched]] = ops.step[launched]
    first = np.zeros(len(host), bool)
    if len(first_ops):
        first[ops.node[launched & np.isin(ops.op, first_ops)]] = True
    for step in np.unique(step_of_node[step_of_node >= 0]):
        mine = np.flatnonzero(step_of_node == step)
        if len(first_ops):
            step_of_node[mine[np.cumsum(first[mine]) == 0]] = -1  # launched one by one
        else:
            first[int(mine[0])] = True
    waits = np.diff(host.wait_ptr) > 0
    if waits_stay and not len(first_ops):
        launching = np.flatnonzero(step_of_node >= 0)
        before: I64 = (np.cumsum(waits) - waits)[launching]  # a call that waits itself counts as before its successors only
        first[launching[1:][np.diff(before) > 0]] = True
    inside = (step_of_node >= 0) & ~first & ~(waits & waits_stay)
    if not waits_stay:
        inside |= waits & (step_of_node < 0)  # a wait in the captured part is not captured at all
    moving = host.pred >= 0
    # Between two graph launches the loader still has to be asked, and Python that runs there runs on: only what is captured goes.
    stays = [_beside_graph(key) for key in HOST_CAUSES]
    everywhere, between = (np.array([stay == where for stay in stays]) for where in ("all", "between"))
    eager = step_of_node < 0 if len(first_ops) else np.zeros(len(host), bool)
    parts = np.where(everywhere | (between & first[:, None]) | eager[:, None], host.gap_parts, 0)
    python = HOST_CAUSES.index("python_host")  # what is more than calling the next operator is work that no graph replays
    parts[:, python] = np.maximum(parts[:, python], host.gap_parts[:, python] - BETWEEN_CALLS_NS)
    gap = np.where(moving, parts.sum(axis=1), host.gap)
    own = np.where(first, GRAPH_LAUNCH_NS, np.where((waits & waits_stay) | eager, host.own, 0))
    free = _without_waits(problem, inside)
    captured = launched & ~eager[np.maximum(ops.node, 0)]
    after_stream = np.where(captured & (ops.after_stream > GRAPH_NODE_GAP_NS), GRAPH_NODE_GAP_NS, ops.after_stream)
    return replace(
        free, host=replace(free.host, gap=gap, gap_parts=parts, own=own), ops=replace(free.ops, after_stream=after_stream)
    )
