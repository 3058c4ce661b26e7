"""What a change would bring: edits of the replay, alone or together.

An edit is data, so that a finding can carry it and be kept in a file, several can be combined, and a page can switch them on and off. Edits speak of
recorded ids (calls, GPU operations), never of positions in the replay. Gains of edits do not add up: replay them together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.intervals import intersect, union
from sawtooth.analysis.knowledge.causes import CAUSE_OF, HOST_CAUSES, WAIT_CAUSES
from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.replay.bisection import turning_point
from sawtooth.analysis.replay.machine import (
    I32,
    I64,
    HostNodes,
    Replayed,
    ReplayProblem,
    replay,
    step_spans,
    without_ops,
)

GRAPH_NODE_GAP_NS = (
    100  # between two kernels of one CUDA graph on one stream: 0.1 µs on an H200 (459 kernels, 47 µs idle a step)
)
GAIN_OFF = 0.2  # of a predicted gain, what the replay misses of it on the pairs in tests/recordings,
STEP_OFF = 0.15  # and never more of the step that is left: what goes is known to go
READS_MORE = 1.0  # of their predicted gain is what reads may cost beyond it: where the host was the limit, three pairs gained 1.7 to 3.4 times as much
TIMES_OFF = (0.8, 1.25)  # of new kernel times that come without an interval of their own
QUICKEST_HOST = 0.25  # of the replay's: recording makes a host up to four times as slow as it is
PACE_HALVINGS = 7  # to within 1 % of that
REACHED = 1.01  # times the step of the quickest host: from there on the GPU sets the pace, and no host is known to be quicker
GRAPH_LAUNCH_NS = 10_000  # one graph launch on the host; the first kernel follows about 10 µs later


BETWEEN_CALLS_NS = (
    50_000  # a line or two of Python and a view or two between operators cost the host 5 to 30 µs; more is work of its own
)


class WithoutHostCause(msgspec.Struct, frozen=True, tag=True):
    """The host spends no time on ``cause`` (of HOST_CAUSES): the loader keeps up, the allocator is not called, Python is quick.

    ``keep_share`` of it stays, at most ``keep_at_most`` where that is given. With ``calls`` only the host's time before these calls is meant. Waits of calls that have the cause
    themselves (frees, pageable copies) and the own time of such calls that launch nothing go as well.
    """

    cause: str
    keep_share: float = 0.0
    calls: tuple[int, ...] | None = None
    keep_at_most: float | None = None


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
    """The host needs ``factor`` of its time between and in launches (a compiled or fused loop body)."""

    factor: float


class WithoutCalls(msgspec.Struct, frozen=True, tag=True):
    """These calls are not made: what they launch, what they wait for, their own time and the host's time before them (but the loader's) are gone."""

    calls: tuple[int, ...]


Edit = WithoutHostCause | WithoutCalls | WithoutWaits | ScaledOps | TimedOps | WithoutOps | AsGraph | FasterHost


@dataclass(frozen=True)
class WhatIf:
    """The replay of one device, ready to be edited. ``problem`` is the run without the profiler's cost; ``counted`` its steady steps."""

    problem: ReplayProblem
    device: int
    counted: I32
    _cache: dict[tuple[Edit, ...], tuple[float, float] | None] = field(default_factory=dict, compare=False, repr=False)
    _paces: dict[float, tuple[float, float]] = field(default_factory=dict, compare=False, repr=False)

    def step_ms(self, edits: Iterable[Edit] = ()) -> float | None:
        """Return the mean step time in ms with all ``edits`` made, None where no counted step can be timed."""
        timed = self._timed(tuple(edits))
        return timed[0] if timed is not None else None

    def predict_ms(self, best: BestStepTime, edits: Iterable[Edit], slow_host: bool = False) -> float | None:
        """Return the run's step time in ms with all ``edits`` made, None where it is unknown or cannot be replayed.

        The replay's change is carried onto ``best``, but never below what the GPU then still works: only its waits can be shorter in the
        run than in the replay. What the run takes longer than the replay is waiting too, and goes with it. Where the whole step is shorter
        than the GPU's work as recorded, that work is taken to fill it.
        """
        pace = self._pace(best, slow_host)
        now, then = self._timed(pace), self._timed((*pace, *edits))
        if best.ms is None or now is None or then is None or not now[0]:
            return None
        # Where the profiled steps are not the run, the rest of its step is not in the profile: the change cannot shorten it.
        carried = _carried(best.ms, now, then) if best.represented else best.ms - (now[0] - then[0])
        return max(carried, then[1] * min(1.0, best.ms / now[1]) if now[1] else 0.0)

    def predict_range_ms(self, best: BestStepTime, edits: Iterable[Edit]) -> tuple[float, float] | None:
        """Return the interval in ms of ``predict_ms``, None where that is None.

        It is as wide as the new times of kernels are uncertain and as the replay misses gains. ``best`` is taken as it is: whether a change
        gains does not hang on how well the step before it is known.
        """
        edits = tuple(edits)
        middle = self.predict_ms(best, edits)
        low, high = (self.predict_ms(best, [_at_edge(edit, edge) for edit in edits], slow_host=bool(edge)) for edge in (0, 1))
        if middle is None or low is None or high is None or best.ms is None:
            return None
        off = min(GAIN_OFF * abs(best.ms - middle), STEP_OFF * middle)
        now, then = self._timed(()), self._timed(edits)
        if then is not None and any(isinstance(edit, WithoutWaits) for edit in edits):
            low = min(low, max(low - max(best.ms - middle, 0.0) * READS_MORE, then[1]))
        if now is not None and then is not None and best.ms > now[0]:
            # What the run takes beyond the replay goes whole with the change, where the replay takes off too much of the profiler's cost just
            # there, or stays whole: nothing tells.
            low, high = min(low, max(then)), max(high, best.ms - (now[0] - then[0]))
        return max(min(low, middle) - off, 0.0), max(high, middle) + off

    def _pace(self, best: BestStepTime, slow: bool = False) -> tuple[Edit, ...]:
        """Return the edit by which the host is as quick as a run needs whose step is shorter than its replay; none for other runs.

        What recording cost the host was then taken off too little, and a change that the slow host would hide may well gain. Where the GPU sets the
        pace of such a run, its host may be quicker still, or, with ``slow``, is no quicker than it must be.
        """
        now = self._timed(())
        if best.ms is None or not best.represented or now is None or not now[1] <= best.ms < now[0]:
            return ()
        if best.ms not in self._paces:

            def step_ms(factor: float) -> float:
                return (self._timed((FasterHost(factor),)) or now)[0]

            floor = step_ms(QUICKEST_HOST)
            reached = max(best.ms, floor * REACHED)
            slowest, _ = turning_point(lambda factor: step_ms(factor) <= reached, QUICKEST_HOST, 1.0, halvings=PACE_HALVINGS)
            self._paces[best.ms] = (QUICKEST_HOST if best.ms <= floor * REACHED else slowest), slowest
        return (FasterHost(self._paces[best.ms][slow]),)

    def _timed(self, edits: tuple[Edit, ...]) -> tuple[float, float] | None:
        """Return the mean step time and the time in it that the GPU works, ms."""
        if edits not in self._cache:
            problem = apply(self.problem, edits)
            run = replay(problem) if edits else self._unchanged
            spans = step_spans(problem, run, self.device, self.counted)
            step_and_work = None
            if len(spans[0]):
                works = self._works_ns(problem)
                step_and_work = max(float((spans[1] - spans[0]).mean()), works) / 1e6, works / 1e6
            self._cache[edits] = step_and_work
        return self._cache[edits]

    @cached_property
    def _unchanged(self) -> Replayed:
        return replay(self.problem)

    def _works_ns(self, edited: ReplayProblem) -> float:
        """Return the time a step that the GPU works with the operations of ``edited`` where they are now: no step is shorter.

        A host that launches late hides which operations of several streams wait for each other; a replay with a quicker one lets them overlap.
        """
        spans = step_spans(self.problem, self._unchanged, self.device, self.counted)
        here = np.array([device == self.device for device, _ in edited.streams], bool)[edited.ops.stream]
        start = self._unchanged.op_start[np.isin(self.problem.ops.op, edited.ops.op)]
        covered = union(start[here], (start + edited.ops.dur)[here])
        return intersect(covered, union(*spans)).total / len(spans[0])


def _at_edge(edit: Edit, edge: int) -> Edit:
    """Return ``edit`` with the least (``edge`` 0) or the most (1) that its operations may take."""
    match edit:
        case ScaledOps(ops, factor, low, high):
            return ScaledOps(ops, (low, high)[edge] or factor * TIMES_OFF[edge])
        case TimedOps(ops, durations, low, high):
            return TimedOps(ops, (low, high)[edge] or tuple(round(ns * TIMES_OFF[edge]) for ns in durations))
        case WithoutHostCause(keep_at_most=float(most)) if edge:
            return WithoutHostCause(edit.cause, most, edit.calls)
        case AsGraph(first_ops=()) if edge:
            return AsGraph(waits_stay=True)  # nothing tells whether what is read can be read elsewhere
    return edit


def _carried(best_ms: float, now: tuple[float, float], then: tuple[float, float]) -> float:
    """Return a replayed change, of steps and the GPU's work in them, carried onto a run's step.

    What the run takes longer than its replay is the GPU's waiting: of it stays as much as of the waiting in the replay, and never more than there was.
    """
    waits_now, waits_then = now[0] - now[1], then[0] - then[1]
    if best_ms <= now[0] or waits_now <= 0:
        return best_ms * then[0] / now[0]
    return then[0] + (best_ms - now[0]) * min(waits_then / waits_now, 1.0)


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
        case WithoutHostCause(cause, keep_share, calls, _):
            return _without_host_cause(
                problem, cause, keep_share, np.ones(len(host), bool) if calls is None else np.isin(host.call, np.array(calls))
            )
        case WithoutCalls(calls):
            hit = np.isin(host.call, np.array(calls))
            moving = hit & (host.pred >= 0)
            loader = np.array(
                [_beside_graph(key) == "all" for key in HOST_CAUSES]
            )  # it is asked for the next batch all the same
            parts = np.where(moving[:, None] & ~loader, 0, host.gap_parts)
            quick = replace(host, gap=np.where(moving, parts.sum(axis=1), host.gap), gap_parts=parts)
            quick = replace(quick, own=np.where(hit, 0, host.own))
            ours = (ops.node >= 0) & hit[np.maximum(ops.node, 0)]
            return without_ops(_without_waits(replace(problem, host=quick), hit), ours)
        case WithoutWaits(calls):
            return _without_waits(problem, np.ones(len(host), bool) if calls is None else np.isin(host.call, np.array(calls)))
        case ScaledOps() | TimedOps():
            return problem  # its operations have their times already
        case WithoutOps(which, host_too):
            return _without_ops(problem, np.isin(ops.op, np.array(which)), host_too)
        case AsGraph(waits_stay, first_ops):
            return _as_graph(problem, waits_stay or bool(first_ops), np.array(first_ops, np.int64))
        case FasterHost(factor):
            moving = host.pred >= 0
            parts = (host.gap_parts * factor).astype(np.int64)
            gap = np.where(moving, (host.gap * factor).astype(np.int64), host.gap)
            return replace(problem, host=replace(host, gap=gap, gap_parts=parts, own=(host.own * factor).astype(np.int64)))
    raise TypeError(f"unknown edit {edit!r}")


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
