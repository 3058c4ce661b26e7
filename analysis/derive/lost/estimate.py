"""Estimate of the run without the profiler, and of its lost time by cause."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import TraceEvents
from sawtooth.analysis.derive.host import CauseTimeline
from sawtooth.analysis.derive.lost.idle import explain
from sawtooth.analysis.derive.lost.ledger import owner_ns, segments
from sawtooth.analysis.derive.lost.schedule import Schedule, lost_time, schedule_of, totals
from sawtooth.analysis.derive.unprofiled.cost import RecordingCost, recording_cost, without_cause, without_profiler
from sawtooth.analysis.derive.unprofiled.problem import HostView
from sawtooth.analysis.intervals import union
from sawtooth.analysis.knowledge.causes import REMOVABLE
from sawtooth.analysis.replay.simulation import (
    I32,
    I64,
    NEVER,
    Replayed,
    ReplayProblem,
    replay,
    step_spans,
    step_times,
    with_median_latencies,
)

MAX_REPLAY_ERROR = 0.03  # Relative error. If the replay differs from the recording by more than this, the estimate is rejected.
DEVICE_BOUND_SHARE = 0.05  # Share of a step. Step times vary more than this, so a smaller gain cannot be seen.


@dataclass(frozen=True)
class UnprofiledEstimate:
    """The run of one device without the profiler.

    ``step_ns`` is the mean step, or None with ``why_missing`` if the replay does not reproduce the recording. ``ledger`` has ns
    per step by (owner, cause) and sums to the estimated window. The cause of useful time is None. ``loses`` has ns per step
    by cause: the replay minus the replay without that cause. ``median_error`` is the relative error of the recorded step,
    replayed with median latencies.
    """

    step_ns: float | None
    why_missing: str | None = None
    recorded_ns: float | None = None
    replay_error: float | None = None
    median_error: float | None = None
    cost: RecordingCost | None = None
    ledger: dict[tuple[str, str | None], float] = field(default_factory=dict)
    loses: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def device_bound(self) -> bool | None:
        """Whether host or input cost less than DEVICE_BOUND_SHARE of a step; None without an estimate."""
        if not self.step_ns or not self.ledger:
            return None
        hosted = sum(ns for (owner, cause), ns in self.ledger.items() if owner == "idle" and cause != "launch_latency")
        return hosted < DEVICE_BOUND_SHARE * self.step_ns


def estimate_unprofiled(
    events: TraceEvents,
    view: HostView,
    problem: ReplayProblem,
    device: int,
    counted: I32,
    codes: NDArray[np.int8],
) -> UnprofiledEstimate:
    """Estimate a device's step without the profiler, and the time that each cause loses.

    ``counted`` are step numbers, ``codes`` the ledger's owner of each GPU operation. Each cause takes one more replay.
    """
    recorded = _mean(step_times(problem, _recorded_schedule(problem), device, counted))
    if not recorded:
        return UnprofiledEstimate(
            None,
            "The trace has no counted step with launches on this device, so a replay cannot be checked.",
        )
    if recorded <= 0:
        return UnprofiledEstimate(
            None, "The counted steps take no time on this device, so a replay cannot be checked.", recorded
        )
    error = _error(problem, device, counted, recorded)
    median_error = _error(with_median_latencies(problem), device, counted, recorded)
    if max(abs(error), abs(median_error)) > MAX_REPLAY_ERROR:
        reason = f"The replay differs from the recorded step by {100 * max(abs(error), abs(median_error)):.1f} %, which is too much for an estimate."
        return UnprofiledEstimate(None, reason, recorded, error, median_error)
    cost = recording_cost(events)
    changed = without_profiler(problem, cost)
    run = replay(changed)
    step = _mean(step_times(changed, run, device, counted))
    estimate = UnprofiledEstimate(
        step_ns=step,
        why_missing=None,
        recorded_ns=recorded,
        replay_error=error,
        median_error=median_error,
        cost=cost,
        notes=(*problem.notes, cost.sentence),
    )
    if not step:
        return estimate
    ledger = replayed_ledger(
        events=events, view=view, recorded=problem, changed=changed, run=run, device=device, counted=counted, codes=codes
    )
    loses = {}
    for cause in REMOVABLE:
        if any(ledger_cause == cause for _, ledger_cause in ledger):
            without = without_cause(changed, cause)
            loses[cause] = step - (_mean(step_times(without, replay(without), device, counted)) or step)
    return replace(estimate, ledger=ledger, loses=loses)


def _mean(times: I64) -> float | None:
    return float(times.mean()) if len(times) else None


def _error(problem: ReplayProblem, device: int, counted: I32, recorded: float) -> float:
    return (_mean(step_times(problem, replay(problem), device, counted)) or recorded) / recorded - 1


def _recorded_schedule(problem: ReplayProblem) -> Replayed:
    host, ops = problem.host, problem.ops
    zero = np.zeros(len(host), dtype=np.int64)
    return Replayed(
        host_start=host.start,
        host_submit=host.start + host.own,
        host_end=host.end,
        waited=zero,
        queued=zero,
        op_start=ops.fixed_start,
        op_end=ops.fixed_start + ops.dur,
    )


def replayed_ledger(
    *,
    events: TraceEvents,
    view: HostView,
    recorded: ReplayProblem,
    changed: ReplayProblem,
    run: Replayed,
    device: int,
    counted: I32,
    codes: NDArray[np.int8],
) -> dict[tuple[str, str | None], float]:
    """Return ns per counted step by (owner, cause) of a replayed schedule.

    ``changed`` is an edited ``recorded`` with the same nodes.
    """
    starts, ends = step_spans(changed, run, device, counted)
    window, steps = union(starts, ends), len(starts)
    schedule = replayed_schedule(events, view, recorded, changed, run)
    on_device = (schedule.start > NEVER) & (events.gpu.device == device)
    parts = segments(schedule.start[on_device], schedule.end[on_device], codes[on_device], window)
    lost = lost_time(parts, window)
    lost_ns: dict[tuple[str, str | None], float] = dict(totals(explain(events, schedule, device, lost, codes), lost).items())
    lost_owners = {owner for owner, _ in lost_ns}
    for owner, ns in owner_ns(parts, window).items():
        if owner not in lost_owners and ns:
            lost_ns[owner, None] = ns
    return {key: ns / max(steps, 1) for key, ns in lost_ns.items()}


def replayed_schedule(
    events: TraceEvents, view: HostView, recorded: ReplayProblem, changed: ReplayProblem, run: Replayed
) -> Schedule:
    """Return the schedule of a replay, with the cause timelines moved to replayed time."""
    line = view.lines.of_thread[recorded.host.thread]
    timelines = tuple(
        replayed_timeline(timeline, recorded, changed, run, line == number) for number, timeline in enumerate(view.timelines)
    )
    return schedule_of(events, view, changed, run, timelines)


@dataclass(frozen=True)
class ReplayClock:
    """A monotone map from recorded to replayed host time of one line.

    It is linear between the knots in ``recorded`` and ``replayed``.
    """

    recorded: I64
    replayed: I64

    def __call__(self, t: I64) -> I64:
        """Return the replayed time of recorded times.

        Times outside the knots move by as much as the nearest knot.
        """
        if not len(self.recorded):
            return t
        inside = np.interp(t.astype(np.float64), self.recorded.astype(np.float64), self.replayed.astype(np.float64))
        mapped = np.round(inside).astype(np.int64)
        mapped = np.where(t < self.recorded[0], t - self.recorded[0] + self.replayed[0], mapped)
        return np.where(t > self.recorded[-1], t - self.recorded[-1] + self.replayed[-1], mapped)


def replayed_timeline(
    timeline: CauseTimeline, recorded: ReplayProblem, changed: ReplayProblem, run: Replayed, of_line: np.ndarray
) -> CauseTimeline:
    """Move one line's cause timeline to the replayed schedule ``run`` of ``changed``.

    ``of_line`` marks the line's nodes.
    """
    host = recorded.host
    index = np.flatnonzero(of_line)
    if not len(index):
        return timeline
    index = index[np.argsort(host.start[index], kind="stable")]
    start, end = host.start[index], host.end[index]
    knots = np.unique(np.concatenate([timeline.start[(timeline.start > start[0]) & (timeline.start < end[-1])], start, end]))
    cell_node = np.searchsorted(start, knots, side="right")  # Cells before start[k] and after end[k − 1] belong to gap k.
    length = np.diff(knots).astype(np.float64)
    in_gap = knots[:-1] >= np.maximum.accumulate(end)[np.maximum(cell_node[:-1] - 1, 0)]
    cause = timeline.cause[np.clip(np.searchsorted(timeline.start, knots[:-1], side="right") - 1, 0, len(timeline.cause) - 1)]
    gap_node = index[np.minimum(cell_node[:-1], len(index) - 1)]
    old, new = host.gap_parts[gap_node, cause], changed.host.gap_parts[gap_node, cause]
    length = np.where(in_gap, length * np.where(old > 0, new / np.maximum(old, 1), 1.0), 0.0)
    total = np.concatenate([[0.0], np.cumsum(length)])
    at_start, at_end = np.searchsorted(knots, start), np.searchsorted(knots, end)
    replayed = np.full(len(knots), np.nan)
    upcoming = np.minimum(np.searchsorted(at_start, np.arange(len(knots))), len(index) - 1)
    replayed[:] = run.host_start[index][upcoming] - (total[at_start[upcoming]] - total)
    replayed[at_end] = run.host_end[index]
    replayed[at_start] = run.host_start[index]
    inner = ~np.concatenate([in_gap, [True]]) & ~np.isin(np.arange(len(knots)), at_start)
    if inner.any():
        fixed = ~inner
        replayed[inner] = np.interp(knots[inner], knots[fixed], replayed[fixed])
    clock = ReplayClock(knots, np.maximum.accumulate(np.round(replayed).astype(np.int64)))
    moved = np.maximum.accumulate(clock(timeline.start))
    keep = np.concatenate([moved[1:] > moved[:-1], [True]])
    return CauseTimeline(moved[keep], timeline.cause[keep])
