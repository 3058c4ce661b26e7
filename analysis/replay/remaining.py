"""The parts of a replayed step: the GPU's work by owner, and its waits by the host's activity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.intervals import Intervals, complement, intersect, union
from sawtooth.analysis.knowledge.causes import CAUSE_OF, HOST_CAUSES, WAIT_CAUSES
from sawtooth.analysis.replay.simulation import I32, I64, Replayed, ReplayProblem, step_spans

LATENCY = "launch_latency"
LAUNCHING = HOST_CAUSES.index("launch_bound")
NAMES = (*HOST_CAUSES, *(f"wait:{cause}" for cause in WAIT_CAUSES))  # What the host may do while the GPU waits.


class ReplayedStep(NamedTuple):
    """The GPU's work by owner (summed over streams), and its waits by cause; ms per step."""

    work: Mapping[str, float]
    waits: Mapping[str, float]


def replayed_step(
    problem: ReplayProblem, run: Replayed, device: int, counted: I32, owner_of: NDArray[np.object_]
) -> ReplayedStep | None:
    """Return the mean counted step of ``run`` on ``device``; None if no counted step can be timed.

    ``owner_of`` has the owner of each GPU operation of the recording, by its id. While the next operation is not yet launched, the
    GPU waits for the host's work at that time; after the launch, it waits for the latency between operations. Ordinary work of the
    host directly after its own wait for the GPU counts as that wait, because the host would otherwise have done it earlier.
    """
    starts, ends = step_spans(problem, run, device, counted)
    if not len(starts):
        return None
    window = union(starts, ends)
    on_device = np.array([owner_device == device for owner_device, _ in problem.streams], dtype=bool)[problem.ops.stream]
    ms_divisor = 1e6 * len(starts)
    op_starts, op_ends, owners = run.op_start[on_device], run.op_end[on_device], owner_of[problem.ops.op[on_device]]
    inside = np.maximum(np.minimum(op_ends, ends.max()) - np.maximum(op_starts, starts.min()), 0)
    work = {str(owner): float(inside[owners == owner].sum()) / ms_divisor for owner in np.unique(owners[inside > 0])}
    idle = intersect(complement(union(op_starts, op_ends), int(starts.min()), int(ends.max())), window)
    return ReplayedStep(work, {cause: ns / ms_divisor for cause, ns in _waits(problem, run, on_device, idle).items()})


def _waits(problem: ReplayProblem, run: Replayed, on_device: NDArray[np.bool_], idle: Intervals) -> dict[str, float]:
    """Return the ``idle`` time between the operations ``on_device``, in ns by cause."""
    if not len(idle.starts):
        return {}
    index = np.flatnonzero(on_device)
    index = index[np.argsort(run.op_start[index], kind="stable")]
    position = np.searchsorted(run.op_start[index], idle.ends)
    following = index[np.minimum(position, len(index) - 1)]
    node = problem.ops.node[following]
    submitted = run.host_submit[np.maximum(node, 0)]
    late_submits = (position < len(index)) & (node >= 0) & (submitted > idle.starts)
    until = np.where(late_submits, np.minimum(submitted, idle.ends), idle.starts)
    latency = float((idle.ends - until).sum())
    work = _host_work(problem, run, idle.starts[late_submits], until[late_submits])
    return {LATENCY: latency, **work}


def _host_work(problem: ReplayProblem, run: Replayed, starts: I64, ends: I64) -> dict[str, float]:
    """Return the time of the launching threads between ``starts`` and ``ends``, in ns by cause."""
    if not len(starts):
        return {}
    host = problem.host
    spent = np.zeros((len(starts), len(NAMES)))
    parts = np.where(host.pred[:, None] >= 0, host.gap_parts, 0).astype(np.float64)
    gaps = parts.sum(axis=1)
    share = parts / np.maximum(gaps, 1.0)[:, None]
    for column in np.flatnonzero(parts.sum(axis=0)):
        spent[:, column] += _overlap(run.host_start - gaps, run.host_start, share[:, column], starts, ends)
    spent[:, LAUNCHING] += _overlap(run.host_start, run.host_submit, np.ones(len(host)), starts, ends)
    waited = run.waited > 0
    is_after = np.zeros((len(starts), len(WAIT_CAUSES)), dtype=bool)
    for cause in range(len(WAIT_CAUSES)):
        chosen = waited & (host.wait_cause == cause)
        if chosen.any():
            begins, returns = run.host_submit[chosen], run.host_end[chosen]
            spent[:, len(HOST_CAUSES) + cause] += _overlap(begins, returns, np.ones(len(begins)), starts, ends)
            last = np.sort(returns)
            is_after[:, cause] = np.searchsorted(last, starts, side="right") < np.searchsorted(last, ends, side="right")
    total = spent.sum(axis=1)
    spent *= ((ends - starts) / np.maximum(total, 1e-9))[:, None]
    ahead = np.array([_runs_ahead(name) for name in HOST_CAUSES])
    moved = is_after.any(axis=1)
    cause = is_after.argmax(axis=1)
    gained = spent[:, : len(HOST_CAUSES)][:, ahead].sum(axis=1)
    spent[np.flatnonzero(moved), len(HOST_CAUSES) + cause[moved]] += gained[moved]
    spent[np.ix_(moved, np.flatnonzero(ahead))] = 0.0
    by_name = spent.sum(axis=0)
    summed: dict[str, float] = {}
    for name, ns in zip(NAMES, by_name.tolist(), strict=True):
        key = name.removeprefix("wait:")
        summed[key] = summed.get(key, 0.0) + ns
    return {key: ns for key, ns in summed.items() if ns}


def _runs_ahead(cause: str) -> bool:
    on_host = CAUSE_OF[cause].on_host
    return on_host is not None and on_host.runs_ahead


def _overlap(
    begins: NDArray[np.float64] | I64, ends: NDArray[np.float64] | I64, rate: NDArray[np.float64], low: I64, high: I64
) -> NDArray[np.float64]:
    """Return the integral over each range ``low`` to ``high`` of ``rate`` (``begins`` to ``ends``)."""
    times = np.concatenate([begins, ends]).astype(np.float64)
    change = np.concatenate([rate, -rate])
    order = np.argsort(times, kind="stable")
    times, slope = times[order], np.cumsum(change[order])
    so_far = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(times))])
    upper: NDArray[np.float64] = np.interp(high, times, so_far)
    lower: NDArray[np.float64] = np.interp(low, times, so_far)
    return np.maximum(upper - lower, 0.0)
