"""What a change would bring to a run: the step time of its replay with edits made, carried onto the run's own step, and its interval."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from sawtooth.analysis.intervals import intersect, union
from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.replay.bisection import turning_point
from sawtooth.analysis.replay.edits import (
    AsGraph,
    Edit,
    FasterHost,
    ScaledOps,
    TimedOps,
    WithoutCalls,
    WithoutHostCause,
    WithoutWaits,
    apply,
)
from sawtooth.analysis.replay.machine import I32, Replayed, ReplayProblem, replay, step_spans

GAIN_OFF = 0.2  # of a predicted gain, what the replay misses of it on the pairs in tests/recordings,
STEP_OFF = 0.15  # and never more of the step that is left: what goes is known to go
READS_MORE = 1.0  # of their predicted gain is what reads may cost beyond it: where the host was the limit, three pairs gained 1.7 to 3.4 times as much
TIMES_OFF = (0.8, 1.25)  # of new kernel times that come without an interval of their own
QUICKEST_HOST = 0.25  # of the replay's: recording makes a host up to four times as slow as it is
PACE_HALVINGS = 7  # to within 1 % of that
HIDDEN_HOST = 1.6  # times or a part of what the replay says a host takes that its GPU hides: so far off a step is that its host limits, told by the trace
HIDDEN_HALVINGS = 3  # to within 6 % of that
RUNS_DIFFER = 0.03  # two runs of one program that the GPU limits, and the step time before the change
HOSTS_DIFFER = (
    0.12  # two that the host limits: two stretches of one loop differed by 0 to 14 % (docs/accuracy.md, the usual example)
)
QUICK, MIDDLE, SLOW = 0, 1, 2  # edges of an interval, and what lies between
REACHED = 1.01  # times the step of the quickest host: from there on the GPU sets the pace, and no host is known to be quicker


@dataclass(frozen=True)
class WhatIf:
    """The replay of one device, ready to be edited. ``problem`` is the run without the profiler's cost; ``counted`` its steady steps."""

    problem: ReplayProblem
    device: int
    counted: I32
    _cache: dict[tuple[Edit, ...], tuple[float, float] | None] = field(default_factory=dict, compare=False, repr=False)
    _paces: dict[float, tuple[float, float, float]] = field(default_factory=dict, compare=False, repr=False)

    def step_ms(self, edits: Iterable[Edit] = ()) -> float | None:
        """Return the mean step time in ms with all ``edits`` made, None where no counted step can be timed."""
        timed = self._timed(tuple(edits))
        return timed[0] if timed is not None else None

    def predict_ms(self, best: BestStepTime, edits: Iterable[Edit]) -> float | None:
        """Return the run's step time in ms with all ``edits`` made, None where it is unknown or cannot be replayed.

        The replay's change is carried onto ``best``, but never below what the GPU then still works: only its waits can be shorter in the
        run than in the replay. What the run takes longer than the replay is waiting too, and goes with it. Where the whole step is shorter
        than the GPU's work as recorded, that work is taken to fill it. Nor is it below what the loader's workers need, unless ``edits`` are about them.
        """
        edits = tuple(edits)
        return _fed(best, edits, self._unfed_ms(best, edits))

    def _unfed_ms(self, best: BestStepTime, edits: tuple[Edit, ...], edge: int = MIDDLE) -> float | None:
        pace = self._pace(best, edge)
        now, then = self._timed(pace), self._timed((*pace, *edits))
        if best.ms is None or now is None or then is None or not now[0]:
            return None
        # Where the profiled steps are not the run, the rest of its step is not in the profile: the change cannot shorten it.
        carried = _carried(best.ms, now, then) if best.represented else best.ms - (now[0] - then[0])
        return max(carried, then[1] * min(1.0, best.ms / now[1]) if now[1] else 0.0)

    def predict_range_ms(self, best: BestStepTime, edits: Iterable[Edit]) -> tuple[float, float] | None:
        """Return the interval in ms of ``predict_ms``, None where that is None.

        It is as wide as the new times of kernels are uncertain, as the pace of a host that the GPU hides now, and as the replay misses gains. ``best`` is
        taken as it is: whether a change gains does not hang on how well the step before it is known.
        """
        edits = tuple(edits)
        middle = self._unfed_ms(best, edits)
        low, high = (self._unfed_ms(best, tuple(_at_edge(edit, edge) for edit in edits), edge) for edge in (QUICK, SLOW))
        if middle is None or low is None or high is None or best.ms is None:
            return None
        off = min(GAIN_OFF * abs(best.ms - middle), STEP_OFF * middle)
        now, then = self._timed(()), self._timed(edits)
        if then is not None and any(isinstance(edit, (WithoutWaits, WithoutCalls)) for edit in edits):
            low = min(low, max(low - max(best.ms - middle, 0.0) * READS_MORE, then[1]))
        if now is not None and then is not None and best.ms > now[0]:
            # What the run takes beyond the replay goes whole with the change, where the replay takes off too much of the profiler's cost just
            # there, or stays whole: nothing tells.
            low, high = min(low, max(then)), max(high, best.ms - (now[0] - then[0]))
        low, high = (
            _fed(best, edits, ms, edge) for ms, edge in ((max(min(low, middle) - off, 0.0), -1), (max(high, middle) + off, 1))
        )
        return (low, high) if low is not None and high is not None else None

    def of_another_run(self, best: BestStepTime, edits: Iterable[Edit], between: tuple[float, float]) -> tuple[float, float]:
        """Return the interval in ms for another run that has ``edits`` made, from that of this run's step, ``between``.

        It differs by HOSTS_DIFFER where the host limits it: a host that much quicker or slower moves a step by no more than the GPU waits in it. Whether
        the change gains is asked of one run, so the other's host takes the interval no further than the step as it is.
        """
        then = self._timed((*self._pace(best), *edits))
        waiting = 1 - then[1] / then[0] if then is not None and then[0] else 0.0
        off = max(RUNS_DIFFER, min(HOSTS_DIFFER, waiting))
        return between[0] * (1 - off), max(between[1] * (1 + RUNS_DIFFER), min(between[1] * (1 + off), best.ms or 0.0))

    def _pace(self, best: BestStepTime, edge: int = MIDDLE) -> tuple[Edit, ...]:
        """Return the edit by which the host is as quick as the run needs, or may be at the QUICK or the SLOW edge; none where that is the replay's.

        Where a run's step is shorter than its replay, what recording cost the host was taken off too little, and a change that the slow host would
        hide may well gain. Where the GPU sets the pace, nothing tells the host's: it may be quicker, and slower as long as the GPU still hides it.
        """
        now = self._timed(())
        if best.ms is None or not best.represented or now is None or now[1] > best.ms:
            return ()
        if best.ms not in self._paces:
            self._paces[best.ms] = self._paces_of(best.ms, now)
        factor = self._paces[best.ms][edge]
        return (FasterHost(factor),) if factor != 1.0 else ()

    def _paces_of(self, best_ms: float, now: tuple[float, float]) -> tuple[float, float, float]:
        """Return the host's time as factors of the replay's: at the least, likely, and at the most."""

        def step_ms(factor: float) -> float:
            return (self._timed((FasterHost(factor),)) or now)[0]

        if best_ms < now[0]:
            floor = step_ms(QUICKEST_HOST)
            reached = max(best_ms, floor * REACHED)
            slowest, _ = turning_point(lambda factor: step_ms(factor) <= reached, QUICKEST_HOST, 1.0, halvings=PACE_HALVINGS)
            likely = QUICKEST_HOST if best_ms <= floor * REACHED else slowest
            return likely, likely, slowest
        hidden = now[0] * REACHED
        if step_ms(1 / HIDDEN_HOST) * REACHED < now[0]:
            return 1.0, 1.0, 1.0  # the host sets the pace, as it does in the run
        if step_ms(HIDDEN_HOST) <= hidden:
            return 1 / HIDDEN_HOST, 1.0, HIDDEN_HOST
        slowest, _ = turning_point(
            lambda factor: step_ms(factor) <= hidden, 1.0, HIDDEN_HOST, halvings=HIDDEN_HALVINGS, geometric=True
        )
        return 1 / HIDDEN_HOST, 1.0, slowest

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


def _fed(best: BestStepTime, edits: tuple[Edit, ...], ms: float | None, edge: int = 0) -> float | None:
    """Return ``ms``, or what the loader's workers need for a step where that is more: at the least (``edge`` -1), likely or at most (1).

    They need no more than the run's step takes now. An edit of what the loader costs changes them too.
    """
    fed = best.feeding
    if (
        ms is None
        or fed is None
        or best.ms is None
        or any(isinstance(e, WithoutHostCause) and e.cause == "data_wait" for e in edits)
    ):
        return ms
    likely, least, most = fed.floors_ms(best.ms)
    return max(ms, {-1: least, 0: likely, 1: most}[edge])


def _at_edge(edit: Edit, edge: int) -> Edit:
    """Return ``edit`` with the least (``edge`` QUICK) or the most (SLOW) that its operations may take."""
    slow = edge == SLOW
    match edit:
        case ScaledOps(ops, factor, low, high):
            return ScaledOps(ops, (low, high)[slow] or factor * TIMES_OFF[slow])
        case TimedOps(ops, durations, low, high):
            return TimedOps(ops, (low, high)[slow] or tuple(round(ns * TIMES_OFF[slow]) for ns in durations))
        case WithoutHostCause(keep_at_most=float(most)) if slow:
            return WithoutHostCause(edit.cause, most, edit.calls)
        case AsGraph(first_ops=()) if slow:
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
