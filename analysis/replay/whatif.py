"""The predicted step time of a run after edits of its replay, and its interval."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.intervals import intersect, union
from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.metrics.step_time_evidence import FLOOR_MARGIN, HOST_DRIFT
from sawtooth.analysis.replay.bisection import turning_point
from sawtooth.analysis.replay.edges import at_edge
from sawtooth.analysis.replay.edits import (
    GRAPH_NODE_GAP_NS,
    Edit,
    FasterHost,
    WithoutCalls,
    WithoutHostCause,
    WithoutWaits,
    apply,
)
from sawtooth.analysis.replay.excess import MeanStep, applied_to_run, removes_excess, stalls_ms_of, without_stalls
from sawtooth.analysis.replay.remaining import ReplayedStep, replayed_step
from sawtooth.analysis.replay.simulation import I32, Replayed, ReplayProblem, replay, step_spans
from sawtooth.analysis.replay.worker_limit import WORKERS_LIMIT, Edge, loader_edits, no_faster_than_workers

# The replay's error: this share of the predicted gain (measured on the pairs in tests/recordings), but at most the second share of
# the remaining step, because the removed time itself is certain.
GAIN_ERROR, STEP_ERROR = 0.2, 0.15
# Removing reads may gain more than predicted, by this share of the predicted gain. Three pairs gained 1.7 to 3.4 times the prediction.
READS_GAIN_ERROR = 1.0
MIN_HOST_TIME_RATIO = 0.25  # Least host time ÷ replayed host time, because recording slows a host by up to a factor of four.
SEARCH_HALVINGS = 7  # Seven bisection steps give a precision of 1 %.
# Host time that the GPU hides may be wrong by this factor, like the replay's error on host-limited steps.
HIDDEN_HOST_ERROR_FACTOR = 1.6
HIDDEN_HALVINGS = 3  # Three bisection steps give a precision of 6 %, which is enough here.
GPU_LIMITED_STEP_DIFFERENCE = 0.03  # Relative difference between the steps of two GPU-limited runs of one program.
# The same for host-limited runs: the host's speed drifts in both runs, and independently (docs/evidence/comparisons.md).
HOST_LIMITED_STEP_DIFFERENCE = math.hypot(HOST_DRIFT, HOST_DRIFT)
# The speed of another host does not hide a gain: that end of the interval stays below this share of today's step. A longer end says
# that the change may bring nothing.
MAX_STEP_SHARE_OF_GAIN = 0.98
ROUNDING = 1e-9
LOADER_KEEPS_UP = WithoutHostCause("data_wait")
GPU_LIMITED_RATIO = 1.01  # The GPU limits a step that takes at most this multiple of the step with the fastest host.


class HostTimeRange(NamedTuple):
    """The range of a run's host time, as factors of the replay's host time."""

    least: float
    likely: float
    most: float


@dataclass(frozen=True)
class WhatIf:
    """The replay of one device, to which edits can be applied.

    ``problem`` is the run without the profiler's cost; ``counted`` are its steady steps. ``workers`` is whether worker processes
    load the batches.
    """

    problem: ReplayProblem
    device: int
    counted: I32
    workers: bool = False
    _steps: dict[tuple[Edit, ...], MeanStep | None] = field(default_factory=dict, compare=False, repr=False)
    _host_times: dict[float, HostTimeRange] = field(default_factory=dict, compare=False, repr=False)
    _last: dict[tuple[Edit, ...], tuple[ReplayProblem, Replayed]] = field(default_factory=dict, compare=False, repr=False)

    def step_ms(self, edits: Iterable[Edit] = ()) -> float | None:
        """Return the mean step time in ms with all ``edits``; None if no counted step can be timed."""
        step = self._step(tuple(edits))
        return step.ms if step is not None else None

    def predict_ms(self, best: BestStepTime, edits: Iterable[Edit]) -> float | None:
        """Return the run's step time in ms with all ``edits``; None if it is unknown or cannot be replayed.

        The relative change of the replay is applied to ``best``. The result is at least the GPU's remaining work, including dispatch,
        because only waits can be shorter in the run than in the replay. If the run's step is longer than the replay, the excess is
        also waiting, so it shrinks with the waiting. If the run's step is shorter than the recorded GPU work, this work is scaled to
        the step. The result is also at least the time of the loader's workers, unless ``edits`` change them, and of a pipeline's passes.
        Rare stalls of one rank stay.
        """
        edits = tuple(edits)
        if stalls_ms := stalls_ms_of(best):
            rest_ms = self.predict_ms(without_stalls(best), edits)
            return rest_ms + stalls_ms if rest_ms is not None else None
        ms = self._unfed_ms(best, edits, "likely")
        return no_faster_than_workers(best, edits, ms, "likely") if ms is not None else None

    def _unfed_ms(self, best: BestStepTime, edits: tuple[Edit, ...], edge: Edge) -> float | None:
        """Return the step in ms with ``edits``, without the limit by workers of known rate.

        The wait for workers of unknown rate stays, because workers do not load faster if the rest of a step is faster. For the low
        end ("least"), the GPU's work is assumed to hide this wait.
        """
        ms = self._replayed_ms(best, edits, edge)
        waits = self._waits_for_workers_ms(best, edits, edge) if edge != "least" else 0.0
        if ms is None or not waits:
            return ms
        return max(ms, (self._replayed_ms(best, (*edits, LOADER_KEEPS_UP), edge) or 0.0) + waits)

    def _waits_for_workers_ms(self, best: BestStepTime, edits: tuple[Edit, ...], edge: Edge) -> float:
        """Return the step's wait for workers of unknown rate in ms; 0 if ``edits`` change the loader."""
        if not self.workers or best.feeding is not None or best.ms is None or loader_edits(edits):
            return 0.0
        waits = best.ms - (self._replayed_ms(best, (LOADER_KEEPS_UP,), edge) or best.ms)
        return waits if waits >= WORKERS_LIMIT * best.ms else 0.0

    def _replayed_ms(self, best: BestStepTime, edits: tuple[Edit, ...], edge: Edge) -> float | None:
        host_edits = self._host_speed_edit(best, edge)
        now, after = self._step(host_edits), self._step((*host_edits, *edits))
        if best.ms is None or now is None or after is None or not now.ms:
            return None
        # If the profile is not representative, it lacks part of the run's step, and the change does not shorten that part.
        changed_ms = applied_to_run(best.ms, now, after, edits) if best.represented else best.ms - (now.ms - after.ms)
        if best.ms > now.ms and removes_excess(edits):
            changed_ms = after.ms
        passes = max(best.pipeline_ms / now.work_ms, 1.0) if now.work_ms else 1.0
        work = ((passes * now.work_ms, passes * after.work_ms), (now.dispatched_ms, after.dispatched_ms))
        return max(changed_ms, *(after_ms * min(1.0, best.ms / before_ms) for before_ms, after_ms in work if before_ms))

    def predict_range_ms(self, best: BestStepTime, edits: Iterable[Edit]) -> tuple[float, float] | None:
        """Return the interval of ``predict_ms`` in ms; None if there is no prediction.

        Its width comes from uncertain new kernel times, from the unknown speed of a host that the GPU hides now, and from the
        replay's error. ``best`` is assumed to be exact, because whether a change gains does not depend on the accuracy of today's
        step.
        """
        edits = tuple(edits)
        if stalls_ms := stalls_ms_of(best):
            rest_range = self.predict_range_ms(without_stalls(best), edits)
            return (rest_range[0] + stalls_ms, rest_range[1] + stalls_ms) if rest_range is not None else None
        middle = self._unfed_ms(best, edits, "likely")
        low = self._unfed_ms(best, tuple(at_edge(edit, "least") for edit in edits), "least")
        high = self._unfed_ms(best, tuple(at_edge(edit, "most") for edit in edits), "most")
        now, after = self._step(()), self._step(edits)
        if best.ms is None or middle is None or low is None or high is None or now is None or after is None:
            return None
        error_ms = min(GAIN_ERROR * abs(best.ms - middle), STEP_ERROR * middle)
        if any(isinstance(edit, (WithoutWaits, WithoutCalls)) for edit in edits):
            low = min(low, max(low - max(best.ms - middle, 0.0) * READS_GAIN_ERROR, after.work_ms))
        if best.ms > now.ms:
            # The excess of the run's step over the replay may stay. It may also disappear with the change, if the replay removed
            # too

            # much of the profiler's cost there. If the change removes the excess too, at most a part of it stays, in proportion to

            # the GPU's remaining waiting.
            stays = applied_to_run(best.ms, now, after) if removes_excess(edits) else best.ms - (now.ms - after.ms)
            keeps_rest = not best.represented and not removes_excess(edits)  # Time outside the profiled steps stays.
            low, high = min(low, stays if keeps_rest else after.ms), max(high, stays)
        low, high = max(min(low, middle) - error_ms, self.least_ms(best, edits)), max(high, middle) + error_ms
        if not best.represented and best.estimate.high is None and not loader_edits(edits) and not removes_excess(edits):
            high = max(high, best.ms)  # The rate of the workers is unknown, so they may limit the step at today's time.
        if self._waits_for_workers_ms(best, edits, "most"):
            high = max(high, best.ms)
        return no_faster_than_workers(best, edits, low, "least"), no_faster_than_workers(best, edits, high, "most")

    def range_of_another_run_ms(
        self, best: BestStepTime, edits: Iterable[Edit], between: tuple[float, float]
    ) -> tuple[float, float]:
        """Return the interval in ms for another run with ``edits``, from ``between`` for this run.

        Another host-limited run differs by HOST_LIMITED_STEP_DIFFERENCE, but never by more than the GPU's waiting. Its GPU work may be shorter by
        FLOOR_MARGIN. A change's gain is decided within one run, so other hosts do not extend the interval to today's step (MAX_STEP_SHARE_OF_GAIN).
        """
        edits = tuple(edits)
        likely_ms, slow_ms = (self._differs((*self._host_speed_edit(best, edge), *edits)) for edge in ("likely", "most"))
        low = max(between[0] * (1 - likely_ms), FLOOR_MARGIN * self.least_ms(best, edits))
        return low, max(
            between[1] * (1 + GPU_LIMITED_STEP_DIFFERENCE),
            min(between[1] * (1 + slow_ms), MAX_STEP_SHARE_OF_GAIN * (best.ms or 0.0)),
        )

    def fed_every_ms(self, best: BestStepTime, edits: Iterable[Edit], ms: float, edge: Edge) -> float | None:
        """Return the loader's time per batch in ms if it limits a step of ``ms`` with ``edits``; else None."""
        if best.feeding is None or best.ms is None or loader_edits(tuple(edits)):
            return None
        floor_ms: float = getattr(best.feeding.floors_ms(best.ms), edge)
        return floor_ms if ms <= floor_ms * (1 + ROUNDING) and floor_ms < best.ms else None

    def least_ms(self, best: BestStepTime, edits: Iterable[Edit]) -> float:
        """Return the least step time in ms: the GPU's work in a step with ``edits`` and the fastest kernels."""
        now, after = self._step(()), self._step(tuple(at_edge(edit, "least") for edit in edits))
        if best.ms is None or now is None or after is None or not now.work_ms:
            return 0.0
        return after.work_ms * min(max(1.0, best.pipeline_ms / now.work_ms), best.ms / now.work_ms)

    def _differs(self, edits: tuple[Edit, ...]) -> float:
        """Return the relative difference between the steps of two runs with ``edits``."""
        after = self._step(edits)
        waiting = after.waits_ms / after.ms if after is not None and after.ms else 0.0
        return max(GPU_LIMITED_STEP_DIFFERENCE, min(HOST_LIMITED_STEP_DIFFERENCE, waiting))

    def _host_speed_edit(self, best: BestStepTime, edge: Edge) -> tuple[Edit, ...]:
        """Return the edit that sets the run's host speed (likely, least or most time); empty if not needed.

        * A run's step may be shorter than its replay. The replay's host is then too slow, because it still contains some of the
          recording's cost, and would hide gains on the GPU.
        * If the GPU limits the step, the host's speed is unknown. The host may be faster, or slower as long as the GPU hides it.
        """
        now = self._step(())
        if best.ms is None or not best.represented or now is None or now.work_ms > best.ms * GPU_LIMITED_RATIO:
            return ()
        if best.ms not in self._host_times:
            self._host_times[best.ms] = self._host_time_range(best.ms, now)
        factor: float = getattr(self._host_times[best.ms], edge)
        return (FasterHost(factor),) if factor != 1.0 else ()

    def _host_time_range(self, best_ms: float, now: MeanStep) -> HostTimeRange:

        def step_ms(factor: float) -> float:
            return (self._step((FasterHost(factor),)) or now).ms

        if best_ms * GPU_LIMITED_RATIO < now.ms:
            floor = step_ms(MIN_HOST_TIME_RATIO)
            reached = max(best_ms, floor * GPU_LIMITED_RATIO)
            slowest, _ = turning_point(
                lambda factor: step_ms(factor) <= reached, MIN_HOST_TIME_RATIO, 1.0, halvings=SEARCH_HALVINGS
            )
            likely_factor = MIN_HOST_TIME_RATIO if best_ms <= floor * GPU_LIMITED_RATIO else slowest
            return HostTimeRange(likely_factor, likely_factor, slowest)
        hidden = now.ms * GPU_LIMITED_RATIO
        if step_ms(1 / HIDDEN_HOST_ERROR_FACTOR) * GPU_LIMITED_RATIO < now.ms:
            return HostTimeRange(1.0, 1.0, 1.0)  # The host limits the replayed step, as it limits the run's step.
        if step_ms(HIDDEN_HOST_ERROR_FACTOR) <= hidden:
            return HostTimeRange(1 / HIDDEN_HOST_ERROR_FACTOR, 1.0, HIDDEN_HOST_ERROR_FACTOR)
        slowest, _ = turning_point(
            lambda factor: step_ms(factor) <= hidden, 1.0, HIDDEN_HOST_ERROR_FACTOR, halvings=HIDDEN_HALVINGS, geometric=True
        )
        return HostTimeRange(1 / HIDDEN_HOST_ERROR_FACTOR, 1.0, slowest)

    def parts_of(self, best: BestStepTime, edits: Iterable[Edit], owner_of: NDArray[np.object_]) -> ReplayedStep | None:
        """Return the replayed step with ``edits`` by owner and cause; see ``replayed_step``.

        It is the replay that ``predict_ms`` uses, but not scaled to the run's step. If ``predict_ms`` was just called with the
        same edits, its replay is reused.
        """
        problem, run = self._run((*self._host_speed_edit(best, "likely"), *edits))
        return replayed_step(problem, run, self.device, self.counted, owner_of)

    def _run(self, edits: tuple[Edit, ...]) -> tuple[ReplayProblem, Replayed]:
        """Return the replay with ``edits``; the last result is cached."""
        if not edits:
            return self.problem, self._unchanged
        if edits not in self._last:
            problem = apply(self.problem, edits)
            self._last.clear()
            self._last[edits] = problem, replay(problem)
        return self._last[edits]

    def _step(self, edits: tuple[Edit, ...]) -> MeanStep | None:
        """Return the mean step with ``edits``; None if no counted step can be timed."""
        if edits not in self._steps:
            problem, run = self._run(edits)
            starts, ends = step_spans(problem, run, self.device, self.counted)
            step = None
            if len(starts):
                work_ns, dispatched_ns = self._work_ns(problem), self._work_ns(problem, dispatched=True)
                mean_ns = max(float((ends - starts).mean()), work_ns)
                step = MeanStep(mean_ns / 1e6, work_ns / 1e6, dispatched_ns / 1e6)
            self._steps[edits] = step
        return self._steps[edits]

    @cached_property
    def _unchanged(self) -> Replayed:
        return replay(self.problem)

    def _work_ns(self, edited: ReplayProblem, *, dispatched: bool = False) -> float:
        """Return the GPU's work per step in ns: operations of ``edited`` at their unchanged starts.

        No step is shorter. With ``dispatched``, each operation includes its dispatch: the latency of its stream, but at least
        that of a CUDA graph. The unchanged starts are needed because a host that launches late hides dependencies between
        streams. With a faster host, the replay may let operations overlap that cannot overlap.
        """
        spans = step_spans(self.problem, self._unchanged, self.device, self.counted)
        on_device = np.array([device == self.device for device, _ in edited.streams], bool)[edited.ops.stream]
        start = self._unchanged.op_start[np.isin(self.problem.ops.op, edited.ops.op)]
        dispatch_ns = np.maximum(edited.ops.after_stream, GRAPH_NODE_GAP_NS) if dispatched else 0
        covered = union((start - dispatch_ns)[on_device], (start + edited.ops.dur)[on_device])
        return intersect(covered, union(*spans)).total / len(spans[0])
