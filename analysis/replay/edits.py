"""Edits: changes of a replay, alone or together; ``WhatIf`` predicts their gain.

An edit is data: findings contain it, files store it, and pages switch it on and off. Edits use recorded ids (calls, GPU
operations), never indices of the replay. Gains of edits do not add up, so replay them together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.knowledge.causes import CAUSE_OF, HOST_CAUSES, WAIT_CAUSES
from sawtooth.analysis.replay.simulation import I64, HostNodes, ReplayProblem, without_ops

GRAPH_NODE_GAP_NS = 100  # Gap between two kernels of one CUDA graph on one stream. On an H200, 459 kernels idle 47 µs per step.
GRAPH_LAUNCH_NS = 10_000  # Host time of one graph launch.
PYTHON = HOST_CAUSES.index("python_host")
BETWEEN_CALLS_NS = 50_000  # Python code between operators, or a view, takes the host 5 to 30 µs. Longer times are other work.


class WithoutHostCause(msgspec.Struct, frozen=True, tag=True):
    """The host spends less time (by default none) on ``cause``, one of HOST_CAUSES.

    ``keep_share`` of this time stays; ``keep_at_least`` and ``keep_at_most`` are its interval, if known. With ``calls``, only the
    host's time before these calls changes. If no time stays, calls that wait for this cause (frees, pageable copies) do not wait,
    and calls among them that launch nothing take no time. ``loader_limit_ms`` is the shortest step that the loader's workers
    allow, ``loader_limit_low_ms`` and ``loader_limit_high_ms`` its interval if the workers' samples were timed.
    """

    cause: str
    keep_share: float = 0.0
    calls: tuple[int, ...] | None = None
    keep_at_most: float | None = None
    loader_limit_ms: float = 0.0
    keep_at_least: float | None = None
    loader_limit_low_ms: float | None = None
    loader_limit_high_ms: float | None = None


class WithoutWaits(msgspec.Struct, frozen=True, tag=True):
    """The host does not wait in ``calls`` (None: all). Calls that launch nothing take no time."""

    calls: tuple[int, ...] | None = None


class ScaledOps(msgspec.Struct, frozen=True, tag=True):
    """These GPU operations take ``factor`` of their time, between ``low`` and ``high`` if set."""

    ops: tuple[int, ...]
    factor: float
    low: float | None = None
    high: float | None = None


class TimedOps(msgspec.Struct, frozen=True, tag=True):
    """Each of these GPU operations takes ``dur_ns``, between ``low_ns`` and ``high_ns`` if set."""

    ops: tuple[int, ...]
    dur_ns: tuple[int, ...]
    low_ns: tuple[int, ...] = ()
    high_ns: tuple[int, ...] = ()


class WithoutOps(msgspec.Struct, frozen=True, tag=True):
    """These GPU operations and their launches are removed, as if kernels were fused.

    ``host_too`` also removes the host's time in their operators, and up to BETWEEN_CALLS_NS of Python time between operators.
    ``excess_ms`` is the most that their removal shortens the excess of the run's step over its replay.
    """

    ops: tuple[int, ...]
    host_too: bool = True
    host_may_stay: bool = False  # The upper end of the prediction's interval keeps the host's time.
    excess_ms: float = 0.0


class AsGraph(msgspec.Struct, frozen=True, tag=True):
    """Each step is one CUDA graph: one launch, and kernels without delay. Long Python work remains.

    With ``waits_stay``, a new graph begins after each wait of the host. With ``first_ops``, a graph begins at each of these
    operations, and the host waits as before. ``outside_ops``, and operations before the first graph of a step, stay outside.
    """

    waits_stay: bool = False
    first_ops: tuple[int, ...] = ()
    outside_ops: tuple[int, ...] = ()


class FasterHost(msgspec.Struct, frozen=True, tag=True):
    """The host's time between and in launches (of ``calls``) is multiplied by ``factor``."""

    factor: float
    calls: tuple[int, ...] | None = None
    low: float | None = None
    high: float | None = None


class WithoutCalls(msgspec.Struct, frozen=True, tag=True):
    """These calls, their GPU work, waits and the host's time before them (except loading) are removed.

    ``slower_in_run`` also removes the excess of the run's step over its replay. ``python_stays`` keeps Python above BETWEEN_CALLS_NS.
    """

    calls: tuple[int, ...]
    slower_in_run: bool = False
    python_stays: bool = False


class MoreLaunches(msgspec.Struct, frozen=True, tag=True):
    """The host makes ``launches`` more launches, without GPU work, before each of these operations."""

    ops: tuple[int, ...]
    launches: tuple[int, ...]


Edit = WithoutHostCause | WithoutCalls | WithoutWaits | ScaledOps | TimedOps | WithoutOps | AsGraph | FasterHost | MoreLaunches


def apply(problem: ReplayProblem, edits: Sequence[Edit]) -> ReplayProblem:
    """Return ``problem`` with all ``edits`` applied; removals last, as other edits need the operations.

    If several edits shorten an operation, the shortest time applies, because speedups of one kernel do not add up. An edit that
    lengthens it gives it the work of other operations, which a shortening edit shortens by the same factor.
    """
    problem = _with_times(problem, [edit for edit in edits if isinstance(edit, (ScaledOps, TimedOps))])
    for edit in sorted(edits, key=lambda e: isinstance(e, (WithoutOps, WithoutCalls, AsGraph))):
        problem = _apply(problem, edit)
    return problem


def _with_times(problem: ReplayProblem, edits: Sequence[ScaledOps | TimedOps]) -> ReplayProblem:
    ops = problem.ops
    shorter, longer = (np.ones(len(ops.dur)) for _ in range(2))  # Factors of the recorded times.
    for edit in edits:
        hit = np.isin(ops.op, np.array(edit.ops))
        if isinstance(edit, ScaledOps):
            factor = np.where(hit, edit.factor, 1.0)
        else:
            factor, new_time_of = np.ones(len(hit)), dict(zip(edit.ops, edit.dur_ns, strict=True))
            factor[hit] = np.array([new_time_of[op] for op in ops.op[hit].tolist()]) / np.maximum(ops.dur[hit], 1)
        shorter, longer = np.minimum(shorter, factor), np.maximum(longer, factor)
    dur = np.rint(np.maximum(ops.dur, 1) * shorter * longer).astype(np.int64)
    return replace(problem, ops=replace(ops, dur=np.where(shorter * longer == 1, ops.dur, dur))) if edits else problem


def _apply(problem: ReplayProblem, edit: Edit) -> ReplayProblem:
    host, ops = problem.host, problem.ops
    match edit:
        case WithoutHostCause(cause, keep_share, calls):
            return _without_host_cause(problem, cause, keep_share, _nodes_of_calls(host, calls))
        case WithoutCalls(calls):
            hit = np.isin(host.call, np.array(calls))
            moving = hit & (host.pred >= 0)
            loader = np.array(HOST_CAUSES) == "data_wait"  # The loader's time stays, because the next batch is still needed.
            parts = np.where(moving[:, None] & ~loader, 0, host.gap_parts)
            if edit.python_stays:
                parts[moving, PYTHON] = np.maximum(host.gap_parts[moving, PYTHON] - BETWEEN_CALLS_NS, 0)
            gap, own_ns = np.where(moving, parts.sum(axis=1), host.gap), np.where(hit, 0, host.own)
            fast = replace(host, gap=gap, gap_parts=parts, own=own_ns)
            ours = (ops.node >= 0) & hit[np.maximum(ops.node, 0)]
            return without_ops(_without_waits(replace(problem, host=fast), hit), ours)
        case WithoutWaits(calls):
            return _without_waits(problem, _nodes_of_calls(host, calls))
        case ScaledOps() | TimedOps():
            return problem  # ``_with_times`` has already set these times.
        case WithoutOps(which, host_too):
            return _without_ops(problem, np.isin(ops.op, np.array(which)), host_too)
        case AsGraph():
            return _as_graph(problem, edit)
        case FasterHost(factor, calls):
            quicker = np.where(_nodes_of_calls(host, calls), factor, 1.0)
            parts = (host.gap_parts * quicker[:, None]).astype(np.int64)
            gap = np.where(host.pred >= 0, (host.gap * quicker).astype(np.int64), host.gap)
            return replace(problem, host=replace(host, gap=gap, gap_parts=parts, own=(host.own * quicker).astype(np.int64)))
        case MoreLaunches(which, launches):
            return _with_launches(problem, dict(zip(which, launches, strict=True)))
    raise TypeError(f"unknown edit {edit!r}")


def _nodes_of_calls(host: HostNodes, calls: tuple[int, ...] | None) -> NDArray[np.bool_]:
    """Mark the nodes of ``calls``; all nodes if it is None."""
    return np.ones(len(host), bool) if calls is None else np.isin(host.call, np.array(calls, np.int64))


def _with_launches(problem: ReplayProblem, launches: Mapping[int, int]) -> ReplayProblem:
    """Lengthen the gaps before these operations' launches by the mean host time of ``launches``."""
    host, ops = problem.host, problem.ops
    follows_call = host.launches & (host.pred >= 0)
    if not follows_call.any():
        return problem
    launch_ns = int(np.minimum((host.gap + host.own)[follows_call], BETWEEN_CALLS_NS).mean())  # See docs/evidence/accuracy.md.
    added_ns = np.zeros(len(host), np.int64)
    hit = np.isin(ops.op, np.array(list(launches), np.int64)) & (ops.node >= 0)
    np.add.at(added_ns, ops.node[hit], [launch_ns * launches[op] for op in ops.op[hit].tolist()])
    added_ns[host.pred < 0] = 0
    parts = host.gap_parts.copy()
    parts[:, HOST_CAUSES.index("launch_bound")] += added_ns
    return replace(problem, host=replace(host, gap=host.gap + added_ns, gap_parts=parts))


def _without_host_cause(problem: ReplayProblem, cause: str, keep_share: float, hit: NDArray[np.bool_]) -> ReplayProblem:
    """Shorten the gaps before the marked nodes by ``cause``; remove a node's own wait with that cause."""
    host = problem.host
    parts = host.gap_parts.copy()
    column = HOST_CAUSES.index(cause)
    freed = np.where(hit, parts[:, column] - (parts[:, column] * keep_share).astype(np.int64), 0)
    parts[:, column] -= freed
    gap = np.where(host.pred >= 0, host.gap - freed, host.gap)
    problem = replace(problem, host=replace(host, gap=gap, gap_parts=parts))
    if cause not in WAIT_CAUSES or keep_share:
        return problem
    return _without_waits(problem, hit & (host.wait_cause == WAIT_CAUSES.index(cause)))


def _without_waits(problem: ReplayProblem, hit: NDArray[np.bool_]) -> ReplayProblem:
    """Remove the waits of the marked nodes, and the own time of those that launch nothing."""
    host = problem.host
    owner = np.repeat(np.arange(len(host)), np.diff(host.wait_ptr))
    remains = ~hit[owner]
    wait_ptr = np.searchsorted(owner[remains], np.arange(len(host) + 1)).astype(np.int64)
    launches = np.zeros(len(host), bool)
    launches[problem.ops.node[problem.ops.node >= 0]] = True
    own_ns = np.where(hit & ~launches, 0, host.own)
    return replace(problem, host=replace(host, wait_ptr=wait_ptr, wait_op=host.wait_op[remains], own=own_ns))


def _without_ops(problem: ReplayProblem, hit: NDArray[np.bool_], host_too: bool) -> ReplayProblem:
    host, ops = problem.host, problem.ops
    if host_too:
        total, removed = np.zeros(len(host), np.int64), np.zeros(len(host), np.int64)
        launched = ops.node >= 0
        np.add.at(total, ops.node[launched], 1)
        np.add.at(removed, ops.node[launched & hit], 1)
        emptied = (total > 0) & (removed == total)
        parts = np.where(emptied[:, None], _gap_parts_without_call(host), host.gap_parts)
        gap = np.where(host.pred >= 0, parts.sum(axis=1), host.gap)
        problem = replace(problem, host=replace(host, gap=gap, gap_parts=parts, own=np.where(emptied, 0, host.own)))
    return without_ops(problem, hit)


def _gap_parts_without_call(host: HostNodes) -> I64:
    """Return ``gap_parts`` without the call's operator and up to BETWEEN_CALLS_NS of other time."""
    parts = host.gap_parts.copy()
    launching = HOST_CAUSES.index("launch_bound")
    in_operator = np.minimum((host.gap * host.gap_of_operator).astype(np.int64), parts[:, launching])
    parts[:, launching] -= in_operator
    spare = np.full(len(parts), BETWEEN_CALLS_NS, np.int64)
    for column in (launching, PYTHON):
        overlapped = np.minimum(parts[:, column], spare)
        parts[:, column] -= overlapped
        spare -= overlapped
    return parts


def _as_graph(problem: ReplayProblem, edit: AsGraph) -> ReplayProblem:
    """Launch each step's operations at once: only a graph's first node takes host time."""
    host, ops = problem.host, problem.ops
    first_ops, waits_stay = np.array(edit.first_ops, np.int64), edit.waits_stay or bool(edit.first_ops)
    launched = ops.node >= 0
    step_of_node = np.full(len(host), -1, np.int64)
    step_of_node[ops.node[launched]] = ops.step[launched]
    first = np.zeros(len(host), bool)
    eager = np.isin(np.arange(len(host)), ops.node[launched & np.isin(ops.op, np.array(edit.outside_ops, np.int64))])
    step_of_node[eager] = -1
    if len(first_ops):
        first[ops.node[launched & np.isin(ops.op, first_ops)]] = True
    for step in np.unique(step_of_node[step_of_node >= 0]):
        nodes = np.flatnonzero(step_of_node == step)
        if len(first_ops):
            step_of_node[nodes[np.cumsum(first[nodes]) == 0]] = -1  # Operations before the first graph are launched one by one.
        else:
            first[int(nodes[0])] = True
    waits = np.diff(host.wait_ptr) > 0
    if waits_stay and not len(first_ops):
        launching = np.flatnonzero(step_of_node >= 0)
        earlier_waits: I64 = (np.cumsum(waits) - waits)[launching]  # Number of waits before each launch.
        first[launching[1:][np.diff(earlier_waits) > 0]] = True
    inside = (step_of_node >= 0) & ~first & ~(waits & waits_stay)
    if not waits_stay:
        inside |= waits & (step_of_node < 0)  # Also remove waits in calls without a captured launch.
    moving = host.pred >= 0
    # Between two graph launches, the loader and its Python code still run; only captured work is removed.
    stays = [on_host.beside_graph if (on_host := CAUSE_OF[key].on_host) is not None else None for key in HOST_CAUSES]
    stays_everywhere, stays_between = (np.array([stay == position for stay in stays]) for position in ("all", "between"))
    eager |= (step_of_node < 0) & bool(len(first_ops))
    parts = np.where(stays_everywhere | (stays_between & first[:, None]) | eager[:, None], host.gap_parts, 0)
    # Time above BETWEEN_CALLS_NS is other work, which no graph replaces.
    parts[:, PYTHON] = np.maximum(parts[:, PYTHON], host.gap_parts[:, PYTHON] - BETWEEN_CALLS_NS)
    gap = np.where(moving, parts.sum(axis=1), host.gap)
    own_ns = np.where(first, GRAPH_LAUNCH_NS, np.where((waits & waits_stay) | eager, host.own, 0))
    free = _without_waits(problem, inside)
    captured = launched & ~eager[np.maximum(ops.node, 0)]
    after_stream = np.where(captured & (ops.after_stream > GRAPH_NODE_GAP_NS), GRAPH_NODE_GAP_NS, ops.after_stream)
    return replace(
        free, host=replace(free.host, gap=gap, gap_parts=parts, own=own_ns), ops=replace(free.ops, after_stream=after_stream)
    )
