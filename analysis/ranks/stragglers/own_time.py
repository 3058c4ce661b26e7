"""A rank's own time in a step: kernel and host time, without waits and the profiler's cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.intervals import Intervals, overlaps, union
from sawtooth.analysis.knowledge.causes import CAUSE_OF, HOST_CAUSES
from sawtooth.analysis.ranks.contention import Kernels, Quiet, Shape
from sawtooth.analysis.ranks.joint_replay import Member
from sawtooth.analysis.ranks.stragglers.gpu_work import F64, HostCopies, host_copies, kernel_work, without_host_copies
from sawtooth.analysis.ranks.stragglers.marked_stalls import marked_stalls
from sawtooth.analysis.replay.edits import Edit, ScaledOps, WithoutHostCause, WithoutWaits
from sawtooth.analysis.replay.simulation import I64, NEVER, HostNodes, ReplayProblem

WORK = "work"  # The cause of kernel time, which excludes communication.
COPIES = "copies"  # The cause of the time of copies between host and GPU.
OF_GPU = (WORK, COPIES)  # These causes are times of the GPU, not of the host.
LONG_GAP_NS = 500_000  # Recording one event never takes this long, but a slow host under the profiler may have such gaps.
COST_ERROR = 0.5  # Error as a share of the profiler's cost that the replay removes. Two hosts of one job differ by this share.
# Error as a share of host time. Under the profiler, one host of a balanced job was up to 30 % slower than the other.
HOST_ERROR = 0.35
DEVICE_ERROR = 0.08  # Error as a share of kernel time. GPUs of one model with equal work differed by up to 6 %.

UNRECORDED = "python_host"  # The cause of host time in which nothing was recorded.
# Share of a host cause that an edit keeps. With 0, the edit would also remove the host's waits for the GPU.
MIN_REMAINING_SHARE = 1e-9

# The cause of a long gap, and whether this is the part of the gap after the start of a step.
Pause = tuple[str, bool]


@dataclass(frozen=True, eq=False)
class OwnTimePart:
    """One kind of own time: its ns by counted step, and their error.

    ``long`` says whether it is the time in long gaps of the host, or in its short gaps.
    """

    cause: str
    ns: F64
    error_ns: F64
    long: bool = False


@dataclass(frozen=True)
class OwnTime:
    """A rank's own time in its counted steps (``steps`` are their numbers).

    Kernels:

    * ``quiet``: by shape, the median time in ns and the number of kernels that run without communication
    * ``loud``: by shape, the time in ns and the number per step of kernels that run only during communication
    * ``compute``: the gpu_op_id of all kernels except communication
    * ``copies``: the copies between host and GPU, None without copies
    * ``interrupted_ms``: the time per step for which kernels are interrupted (see ``contention.interrupted_ms``)

    Host:

    * ``long_calls`` and ``short_calls``: the calls after long and after short gaps
    * ``long_gaps_ns``: by cause, the time per step in long gaps, even if the GPU still had work
    * ``hidden_ns``: the time per step in long gaps without a recorded cause, while the GPU had nothing but communication to do.
      If it is longer on the other ranks, their hosts wait for this rank, but the trace has no call that shows this wait.
    * ``longest_ns``: by cause and step, the long gaps, longest first. If a step starts inside a gap, the gap is split there,
      because a host does different work at the end of a step and at the start of the next.
    * ``marked_ms``: evenly spaced quantiles of the rank's marked steps outside the profile; empty without marks
    """

    steps: tuple[int, ...]
    parts: tuple[OwnTimePart, ...]
    quiet: Quiet
    loud: Mapping[Shape, tuple[F64, F64]]
    compute: tuple[int, ...]
    long_calls: tuple[int, ...]
    short_calls: tuple[int, ...]
    long_gaps_ns: Mapping[str, float]
    hidden_ns: float
    interrupted_ms: float = 0.0
    longest_ns: Mapping[Pause, tuple[F64, ...]] = field(default_factory=dict)
    copies: HostCopies | None = None
    marked_ms: tuple[float, ...] = ()

    @property
    def short_ns(self) -> float:
        """The host time per step in short gaps of any cause, in ns. It shows the host's speed."""
        return sum(float(part.ns.mean()) for part in self.parts if part.cause not in OF_GPU and not part.long)

    @property
    def shapes(self) -> Set[Shape]:
        """The shapes of all its kernels."""
        return self.quiet.keys() | self.loud.keys()

    def unrecorded_pauses_ns(self) -> float:
        """Return host time in long gaps of unknown cause before the start of a step, in ns per step."""
        of_steps = self.longest_ns.get((UNRECORDED, False), ())
        return sum(float(gaps.sum()) for gaps in of_steps) / max(len(self.steps), 1)

    def recurs(self, stall_ns: float) -> bool:
        """Return whether steps outside the profile often enough have stalls of about ``stall_ns``."""
        return marked_stalls(self.marked_ms, stall_ns).occur_as(stall_ns, len(self.steps))

    def edits_of(self, part: OwnTimePart, keep_share: float) -> Sequence[Edit]:
        """Return the edits that leave ``keep_share`` of ``part``.

        If most copies are removed, the host does not wait for copies.
        """
        if part.cause == WORK:
            return [ScaledOps(self.compute, keep_share)]
        if part.cause == COPIES and self.copies is not None:
            waits = [WithoutWaits(self.copies.blocking_calls)] if 2 * keep_share < 1 else []
            return [ScaledOps(self.copies.operations, keep_share), *waits]
        calls = self.long_calls if part.long else self.short_calls
        return [WithoutHostCause(part.cause, max(keep_share, MIN_REMAINING_SHARE), calls)]


def own_time(kernels: Kernels, member: Member, interrupted_ms: float = 0.0, begins_ns: I64 | None = None) -> OwnTime:
    """Return a rank's own time.

    ``kernels`` is its GPU's work without communication, ``interrupted_ms`` the time per step for which kernels are
    interrupted. ``begins_ns`` has the starts of its steps on the host, in the replay's time.
    """
    problem = member.problem
    steps = tuple(int(s) for s in member.counted if s in problem.steps)
    work, compute, loud = kernel_work(without_host_copies(kernels), steps)
    copies = host_copies(kernels, steps)
    node_step = _steps_of_nodes(problem)
    host = problem.host
    long = (host.gap >= LONG_GAP_NS) & (host.pred >= 0)
    recorded = host.start - host.end[np.maximum(host.pred, 0)]
    reduction = np.where(host.pred >= 0, np.maximum(recorded - host.gap, 0), 0)
    communicates = np.isin(problem.ops.op, kernels.communication)
    idle = _drained_share(problem, np.ones(len(communicates), bool))
    parts = [OwnTimePart(WORK, work, DEVICE_ERROR * work)]
    if copies.operations:
        parts.append(OwnTimePart(COPIES, copies.by_step, HOST_ERROR * copies.by_step))
    unrecorded = host.gap_parts[:, HOST_CAUSES.index(UNRECORDED)]
    linked = host.pred >= 0
    cost = COST_ERROR * _by_step(reduction, node_step, linked, steps)
    # The error applies to short and long gaps: even gaps of 2 ms differed between the hosts of a balanced job.
    errors = [cost + HOST_ERROR * _by_step(ns, node_step, linked, steps) for ns in host.gap_parts.T]
    for is_long in (True, False):
        # A long gap delays the rank only while its GPU has no work or runs nothing. Many short gaps always delay the rank.
        share = np.maximum(idle, _paused_share(problem)) if is_long else np.ones(len(idle))
        for column, cause in enumerate(HOST_CAUSES):
            ns = _by_step(host.gap_parts[:, column] * share, node_step, linked & (long == is_long), steps)
            if ns.any() and cause != "profiler":
                error_ns = errors[column] if CAUSE_OF[cause].slowed else np.zeros(len(steps))
                parts.append(OwnTimePart(cause, ns, error_ns, is_long))
    hidden = _by_step(unrecorded * (_drained_share(problem, ~communicates) - idle), node_step, long, steps)
    totals = {
        cause: float(_by_step(host.gap_parts[:, i], node_step, long, steps).mean()) if steps else 0.0
        for i, cause in enumerate(HOST_CAUSES)
    }
    after_start = np.zeros(len(host)) if begins_ns is None else _share_after_step_start(host, begins_ns)
    longest = {
        (cause, started): tuple(_descending((ns * share)[long & (node_step == step)]) for step in steps)
        for cause, ns in zip(HOST_CAUSES, host.gap_parts.T, strict=True)
        if totals[cause]
        for started, share in ((False, 1 - after_start), (True, after_start))
    }
    long_calls, short_calls = (tuple(host.call[long == is_long].tolist()) for is_long in (True, False))
    hidden_ns = float(hidden.mean()) if len(hidden) else 0.0
    return OwnTime(
        steps=steps,
        parts=tuple(parts),
        quiet=kernels.quiet,
        loud=loud,
        compute=compute,
        long_calls=long_calls,
        short_calls=short_calls,
        long_gaps_ns=totals,
        hidden_ns=hidden_ns,
        interrupted_ms=interrupted_ms,
        longest_ns=longest,
        copies=copies if copies.operations else None,
    )


def _drained_share(problem: ReplayProblem, which: NDArray[np.bool_]) -> F64:
    """Return, by host node, the share of its gap in which the GPU had finished all launched work.

    The gap of a node is the host time before it.
    Only the operations that ``which`` marks count as work. Times are those of the recording.
    """
    host, ops = problem.host, problem.ops
    ends = np.full(len(host) + 1, NEVER, np.int64)  # By node: the latest end of the operations launched before the node.
    np.maximum.at(ends, ops.node[which] + 1, (ops.fixed_start + ops.dur)[which])
    earlier_end = np.maximum.accumulate(ends)[:-1]
    previous_end = host.end[np.maximum(host.pred, 0)]
    gap = np.where(host.pred >= 0, np.maximum(host.start - previous_end, 0), 0)
    return np.clip(host.start - np.maximum(previous_end, earlier_end), 0, gap) / np.maximum(gap, 1)


def _paused_share(problem: ReplayProblem) -> F64:
    """Return, by host node, the share of the gap before it in which the GPU ran nothing for a long time.

    Times are those of the recording. Work may be queued in this time if its first operation waits for something that the trace
    does not show. Short pauses of the GPU belong to the start of queued kernels, so they do not count.
    """
    host, ops = problem.host, problem.ops
    busy = union(ops.fixed_start, ops.fixed_start + ops.dur + LONG_GAP_NS)  # Operations less than LONG_GAP_NS apart are joined.
    gaps = Intervals(host.end[np.maximum(host.pred, 0)], host.start)
    shared = overlaps(gaps, Intervals(busy.starts, busy.ends - LONG_GAP_NS))
    worked = np.bincount(shared.in_a, shared.ends - shared.starts, len(host))
    gap = np.where(host.pred >= 0, np.maximum(gaps.ends - gaps.starts, 0), 0)
    return np.maximum(gap - worked, 0) / np.maximum(gap, 1)


def _share_after_step_start(host: HostNodes, begins_ns: I64) -> F64:
    """Return, by host node, the share of its gap after the last start of a step in the gap.

    The share is 0 if no step starts in the gap.
    """
    previous_end = host.end[np.maximum(host.pred, 0)]
    at = np.searchsorted(begins_ns, host.start, side="right") - 1
    begin = np.where(at >= 0, begins_ns[np.maximum(at, 0)], NEVER) if len(begins_ns) else np.full(len(host), NEVER, np.int64)
    within = (host.pred >= 0) & (begin > previous_end)
    return np.where(within, (host.start - begin) / np.maximum(host.start - previous_end, 1), 0.0)


def _descending(ns: F64) -> F64:
    return np.sort(ns[ns > 0])[::-1]


def _by_step(ns: I64 | F64, node_step: NDArray[np.int32], chosen: NDArray[np.bool_], steps: tuple[int, ...]) -> F64:
    return np.array([float(ns[chosen & (node_step == step)].sum()) for step in steps])


def _steps_of_nodes(problem: ReplayProblem) -> NDArray[np.int32]:
    """Return each host node's step.

    It is the step of the operations that the node launches, else that of the node before it.
    """
    step = np.full(len(problem.host), -1, np.int32)
    launched = problem.ops.node >= 0
    step[problem.ops.node[launched]] = problem.ops.step[launched]
    linked = np.maximum.accumulate(np.where(step >= 0, np.arange(len(step)), -1)) if len(step) else step
    return np.where(linked >= 0, step[np.maximum(linked, 0)], -1).astype(np.int32)
