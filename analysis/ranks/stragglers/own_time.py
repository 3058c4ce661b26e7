"""What a rank takes of a step by itself, whoever it waits for: its kernels' time and its host's time by cause, without the profiler's cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.intervals import Intervals, overlaps, union
from sawtooth.analysis.knowledge.causes import CAUSE_OF, HOST_CAUSES
from sawtooth.analysis.ranks.beside import Kernels, Quiet, Shape
from sawtooth.analysis.ranks.coupled import Member
from sawtooth.analysis.replay.edits import Edit, ScaledOps, WithoutHostCause
from sawtooth.analysis.replay.machine import I64, NEVER, HostNodes, ReplayProblem

WORK = "work"  # a rank's kernels, communication apart
LONG_GAP_NS = 500_000  # recording an event never makes a gap as long, though a slow host under the profiler does
COST_ERROR = 0.5  # share of the profiler's cost taken off a host that may be wrong: two hosts of one job differ by as much
HOST_ERROR = 0.35  # of host time: profiled, one host of a balanced job was up to 30 % slower than the other
DEVICE_ERROR = 0.08  # of kernel time: GPUs of one model with equal work differed by up to 6 %

HOLE = "python_host"  # the cause of host time in which nothing was recorded
LEAST_KEPT = 1e-9  # of a host cause: without any of it, its waits for the GPU would go as well

F64 = NDArray[np.float64]
Pause = tuple[str, bool]  # a long gap's cause, and whether it lies behind the begin of a step in the gap


@dataclass(frozen=True, eq=False)
class Part:
    """One kind of own time, ns by counted step, and the error of it. ``edit_of`` of ``OwnTime`` shortens it."""

    cause: str
    ns: F64
    error_ns: F64
    long: bool = False


@dataclass(frozen=True)
class OwnTime:
    """A rank's own time in its counted steps (``steps``, their numbers).

    ``quiet`` holds the median time of kernels by shape, ns, and how often each runs, of those that no communication runs beside; ``loud`` has time and count by step of those that run beside it only. ``long_gaps_ns``
    is host time a step in long gaps by cause, whether or not the GPU still had work, ``hidden_ns`` what of it shows nothing while the GPU had
    only communication left to do: where other ranks have more of that, it is waiting for them that no recorded call shows.
    ``held_ms`` is how long single kernels of a step are held up (of ``beside.held_ms``). ``longest_ns`` has, by cause and step, the long gaps each by
    itself, longest first; where the steps' begins are known, what of them lies behind one stands apart: what a host does when its step is done is not
    what it does as the next begins.
    """

    steps: tuple[int, ...]
    parts: tuple[Part, ...]
    quiet: Quiet
    loud: Mapping[Shape, tuple[F64, F64]]
    compute: tuple[int, ...]
    long_calls: tuple[int, ...]
    short_calls: tuple[int, ...]
    long_gaps_ns: Mapping[str, float]
    hidden_ns: float
    held_ms: float = 0.0
    longest_ns: Mapping[Pause, tuple[F64, ...]] = field(default_factory=dict)

    @property
    def short_ns(self) -> float:
        """Host time a step in short gaps, whatever their cause: the pace of its host."""
        return sum(float(part.ns.mean()) for part in self.parts if part.cause != WORK and not part.long)

    @property
    def shapes(self) -> Set[Shape]:
        """The shapes of all its kernels."""
        return self.quiet.keys() | self.loud.keys()

    def pauses_ns(self, cause: str, *, begun: bool) -> float:
        """Return host time a step in long gaps of ``cause``, of what lies behind the begin of a step in the gap, or of the rest."""
        of_steps = self.longest_ns.get((cause, begun), ())
        return sum(float(gaps.sum()) for gaps in of_steps) / max(len(self.steps), 1)

    def edit_of(self, part: Part, keep_share: float) -> Edit:
        """Return the change that leaves ``keep_share`` of ``part``."""
        if part.cause == WORK:
            return ScaledOps(self.compute, keep_share)
        return WithoutHostCause(part.cause, max(keep_share, LEAST_KEPT), self.long_calls if part.long else self.short_calls)


def own_time(kernels: Kernels, member: Member, held_ms: float = 0.0, begins_ns: I64 | None = None) -> OwnTime:
    """Return a rank's own time. ``kernels`` is its GPU's work but communication, ``held_ms`` how long single ones of a step are held up, ``begins_ns`` when
    its steps begin on the host, on its replay's clock."""
    problem = member.problem
    steps = tuple(int(s) for s in member.counted if s in problem.steps)
    work, compute, loud = kernel_work(kernels, steps)
    node_step = _steps_of_nodes(problem)
    host = problem.host
    long = (host.gap >= LONG_GAP_NS) & (host.pred >= 0)
    recorded = host.start - host.end[np.maximum(host.pred, 0)]
    taken = np.where(host.pred >= 0, np.maximum(recorded - host.gap, 0), 0)
    talks = np.isin(problem.ops.op, kernels.communication)
    idle = _drained_share(problem, np.ones(len(talks), bool))
    parts = [Part(WORK, work, DEVICE_ERROR * work)]
    hole = host.gap_parts[:, HOST_CAUSES.index(HOLE)]
    known = host.pred >= 0
    cost = COST_ERROR * _by_step(taken, node_step, known, steps)
    # hosts of one balanced job differ in all of a cause's time, gaps of 2 ms included
    errors = [cost + HOST_ERROR * _by_step(ns, node_step, known, steps) for ns in host.gap_parts.T]
    for which in (True, False):
        # a long gap delays the rank as far as its GPU had nothing left to do or did nothing; many short ones slow it wherever they are
        share = np.maximum(idle, _paused_share(problem)) if which else np.ones(len(idle))
        for column, cause in enumerate(HOST_CAUSES):
            ns = _by_step(host.gap_parts[:, column] * share, node_step, known & (long == which), steps)
            if ns.any() and cause != "profiler":
                parts.append(Part(cause, ns, errors[column] if CAUSE_OF[cause].slowed else np.zeros(len(steps)), which))
    hidden = _by_step(hole * (_drained_share(problem, ~talks) - idle), node_step, long, steps)
    whole = {
        cause: float(_by_step(host.gap_parts[:, i], node_step, long, steps).mean()) if steps else 0.0
        for i, cause in enumerate(HOST_CAUSES)
    }
    behind = np.zeros(len(host)) if begins_ns is None else _behind_begin(host, begins_ns)
    longest = {
        (cause, begun): tuple(_descending((ns * share)[long & (node_step == step)]) for step in steps)
        for cause, ns in zip(HOST_CAUSES, host.gap_parts.T, strict=True)
        if whole[cause]
        for begun, share in ((False, 1 - behind), (True, behind))
    }
    long_calls, short_calls = (tuple(host.call[long == which].tolist()) for which in (True, False))
    hidden_ns = float(hidden.mean()) if len(hidden) else 0.0
    return OwnTime(
        steps=steps,
        parts=tuple(parts),
        quiet=kernels.quiet,
        loud=loud,
        compute=compute,
        long_calls=long_calls,
        short_calls=short_calls,
        long_gaps_ns=whole,
        hidden_ns=hidden_ns,
        held_ms=held_ms,
        longest_ns=longest,
    )


def _drained_share(problem: ReplayProblem, which: NDArray[np.bool_]) -> F64:
    """Return, by host node, during how much of the gap before it the GPU had done all of ``which`` that was launched, as recorded."""
    host, ops = problem.host, problem.ops
    ends = np.full(len(host) + 1, NEVER, np.int64)  # by node: of what was launched before it, the latest end
    np.maximum.at(ends, ops.node[which] + 1, (ops.fixed_start + ops.dur)[which])
    done = np.maximum.accumulate(ends)[:-1]
    before = host.end[np.maximum(host.pred, 0)]
    gap = np.where(host.pred >= 0, np.maximum(host.start - before, 0), 0)
    return np.clip(host.start - np.maximum(before, done), 0, gap) / np.maximum(gap, 1)


def _paused_share(problem: ReplayProblem) -> F64:
    """Return, by host node, during how much of the gap before it the GPU ran nothing for long at a time, as recorded.

    Work may be queued then, whose first waits for what the trace does not show. Short pauses are what starting queued kernels takes.
    """
    host, ops = problem.host, problem.ops
    busy = union(ops.fixed_start, ops.fixed_start + ops.dur + LONG_GAP_NS)  # what follows within that is joined
    gaps = Intervals(host.end[np.maximum(host.pred, 0)], host.start)
    shared = overlaps(gaps, Intervals(busy.starts, busy.ends - LONG_GAP_NS))
    worked = np.bincount(shared.in_a, shared.ends - shared.starts, len(host))
    gap = np.where(host.pred >= 0, np.maximum(gaps.ends - gaps.starts, 0), 0)
    return np.maximum(gap - worked, 0) / np.maximum(gap, 1)


def _behind_begin(host: HostNodes, begins_ns: I64) -> F64:
    """Return, by host node, which share of the gap before it lies behind the last begin of a step in it, 0 where it has none."""
    before = host.end[np.maximum(host.pred, 0)]
    at = np.searchsorted(begins_ns, host.start, side="right") - 1
    begin = np.where(at >= 0, begins_ns[np.maximum(at, 0)], NEVER) if len(begins_ns) else np.full(len(host), NEVER, np.int64)
    within = (host.pred >= 0) & (begin > before)
    return np.where(within, (host.start - begin) / np.maximum(host.start - before, 1), 0.0)


def _descending(ns: F64) -> F64:
    return np.sort(ns[ns > 0])[::-1]


def _by_step(ns: I64 | F64, node_step: NDArray[np.int32], chosen: NDArray[np.bool_], steps: tuple[int, ...]) -> F64:
    return np.array([float(ns[chosen & (node_step == step)].sum()) for step in steps])


def _steps_of_nodes(problem: ReplayProblem) -> NDArray[np.int32]:
    """Return each host node's step: that of what it launches, else that of the node before it."""
    step = np.full(len(problem.host), -1, np.int32)
    launched = problem.ops.node >= 0
    step[problem.ops.node[launched]] = problem.ops.step[launched]
    known = np.maximum.accumulate(np.where(step >= 0, np.arange(len(step)), -1)) if len(step) else step
    return np.where(known >= 0, step[np.maximum(known, 0)], -1).astype(np.int32)


class KernelWork(NamedTuple):
    """Kernel time by step, the operations it is of, and the loud kernels by shape (of ``OwnTime``)."""

    by_step: F64
    operations: tuple[int, ...]
    loud: dict[Shape, tuple[F64, F64]]


def kernel_work(kernels: Kernels, steps: tuple[int, ...]) -> KernelWork:
    """Return what a rank's kernels take of ``steps``.

    Kernels beside communication are slowed by it, on the rank that waits most of all: they count as long as the same ones without it.
    """
    ops = kernels.ops[kernels.ops["step"].isin(steps)]
    beside = ops["beside"].to_numpy(bool)
    shapes = zip(ops["name"].astype(str), ops["shape"].astype(str), strict=True)
    usual = np.array([kernels.quiet.get(shape, (np.nan, 0))[0] for shape in shapes], np.float64)
    took = ops["dur_ns"].to_numpy(np.float64)
    took = np.where(beside & ~np.isnan(usual), np.fmin(took, usual), took)
    by_step = pd.Series(took).groupby(ops["step"].to_numpy()).sum()
    work = np.array([float(by_step.get(step, 0.0)) for step in steps])
    unknown = ops[beside & np.isnan(usual)]
    sums = unknown.groupby(["name", "shape", "step"])["dur_ns"].agg(["sum", "size"]).reset_index()
    loud = {
        (str(name), str(shape)): tuple(
            mine.set_index("step")[c].reindex(steps, fill_value=0).to_numpy(np.float64) for c in ("sum", "size")
        )
        for (name, shape), mine in sums.groupby(["name", "shape"])
    }
    return KernelWork(work, tuple(ops["gpu_op_id"].astype(int).tolist()), loud)


def as_quiet_as_others(ranks: Sequence[OwnTime]) -> list[OwnTime]:
    """Return the ranks with kernels that one runs beside communication only counted as long as another runs them without it."""
    quiet: dict[Shape, float] = {}
    for rank in ranks:
        for shape, (median, _) in rank.quiet.items():
            quiet[shape] = min(median, quiet.get(shape, median))
    out = []
    for rank in ranks:
        off = np.zeros(len(rank.steps))
        for shape, (ns, count) in rank.loud.items():
            if shape in quiet:
                off += np.maximum(ns - count * quiet[shape], 0.0)
        parts = tuple(
            replace(part, ns=part.ns - off, error_ns=DEVICE_ERROR * (part.ns - off)) if part.cause == WORK else part
            for part in rank.parts
        )
        out.append(replace(rank, parts=parts))
    return out


def same_kernels_ratio(mine: Quiet, theirs: Quiet) -> tuple[float, float]:
    """Return how many times as long kernels take that both run in the same shape, and the share of ``mine``'s time they are."""
    shared = mine.keys() & theirs.keys()
    here = sum(mine[key][0] * mine[key][1] for key in shared)
    there = sum(theirs[key][0] * mine[key][1] for key in shared)
    total = sum(median * n for median, n in mine.values())
    return (here / there if there else 1.0), (here / total if total else 0.0)


def same_launches_share(mine: Quiet, theirs: Set[Shape]) -> float:
    """Return the share of the kernels of ``mine``, by count, whose name and shape are among ``theirs``."""
    total = sum(n for _, n in mine.values())
    return sum(n for shape, (_, n) in mine.items() if shape in theirs) / total if total else 1.0
