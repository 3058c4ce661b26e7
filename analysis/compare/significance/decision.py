"""Decide the verdict of a comparison, its confidence and its reason. Times are milliseconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sawtooth.analysis.compare.significance import reasons
from sawtooth.analysis.compare.significance.bootstrap import (
    F64,
    MIN_STEPS_FOR_INTERVAL,
    TAIL_SHARE,
    median_change_interval,
    noise_floor,
    relative_difference,
)
from sawtooth.analysis.compare.significance.certainty import (
    MIN_CHANGE,
    MIN_SURE_CHANGE,
    OF_ESTIMATES,
    TWO_SOURCES,
    ComparisonEvidence,
    Confidence,
    Verdict,
    Word,
    change_confidence,
    no_change_confidence,
    verdict_by_intervals,
    with_ratio_limit,
)
from sawtooth.analysis.compare.significance.change_interval import (
    RUN_TO_RUN,
    change_interval,
    includes_zero,
    limit_to_gpu_work,
    open_ratio_interval,
    widened_interval,
)
from sawtooth.analysis.compare.significance.direction import with_direction
from sawtooth.analysis.compare.significance.host_variation import limit_confidence
from sawtooth.analysis.compare.significance.measured_steps import (
    MeasuredSteps,
    before_profile,
    mean_of_all,
    without_drift,
)
from sawtooth.analysis.metrics.step_sources import ESTIMATED
from sawtooth.analysis.quantiles import student_t
from sawtooth.analysis.units import percent

MIN_RECORDED_STEPS = 4  # Two sets of 4 independent draws do not overlap in 2 · 4! · 4! / 8! = 2.9 % of cases.
# Steps without the first recorded step. Two sets of 3 draws do not overlap in 10 % of cases, so a verdict also needs a 10 % change.
MIN_COUNTED_STEPS = 3
MIN_RUNS_AS_UNIT = 3  # With fewer runs, the spread between runs has at most one degree of freedom per side.
MIN_CHANGE_FEW_STEPS = 0.10  # A few steps cannot show smaller changes.
SOURCE_FLOOR = 0.10  # Step times from telemetry have errors of up to 10 %. Estimates from traces are not better.
# Share of a step. The profiler more than doubles the steps of some programs and does not change those of others.
PROFILER_FLOOR = 1.0
MIN_INDEPENDENT = 3  # With fewer per side, 10 to 20 % of the intervals miss the true value (AR(1) at 0.9, 20 to 50 steps).


def verdict(a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps]) -> Verdict:
    """Return the verdict on whether B's best step time differs from A's.

    "faster" and "slower" need an interval that excludes 0, and a change of at least max(2 %, floor). The floor is how much the sides
    may differ if nothing changed. With fewer than 20 steps per side, the interval comes from the intervals of the step times. If
    it does not show the change, "faster" and "slower" have low confidence. They then need at least 4 steps per side, ranges that do not overlap,
    and a change of at least max(10 %, floor). With 3 or more runs per side, the runs are compared instead of the steps.
    The table in ``certainty`` defines the confidence.
    """
    a, b = before_profile(a, b)
    judged = _with_host_variation(a, b)
    ratio = open_ratio_interval(a, b, judged.ci95_ms) if judged.ci95_ms is not None else None
    return with_ratio_limit(judged, ratio, bounded=all(run.low_ms is not None for run in (*a, *b)))


def _with_host_variation(a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps]) -> Verdict:
    """Return the verdict; lower its confidence if the host limits a run."""
    judged = _verdict(a, b)
    if judged.ci95_ms is not None:
        judged = replace(judged, ci95_ms=limit_to_gpu_work(judged.ci95_ms, a, b))
    single = min(len(a), len(b)) < MIN_RUNS_AS_UNIT
    if single and not judged.shown:
        judged = with_direction(_by_marked_steps(judged, a, b), a, b)
    return limit_confidence(judged, a, b, single=single)


def _by_marked_steps(judged: Verdict, a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps]) -> Verdict:
    """Return the verdict; if only the marked steps differ, use their direction."""
    sides = without_drift(a, b)
    if sides is None or not (marked := _verdict(*sides)).shown:
        return judged
    return replace(judged, word=marked.word, confidence="low", why=reasons.ONLY_MARKED)


def _verdict(a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps]) -> Verdict:
    by_steps = _by_steps(a, b)
    best_a, best_b = _mean_best(a), _mean_best(b)
    if best_a is None or best_b is None or best_a <= 0 or best_b <= 0 or _one_recording(a, b):
        return by_steps
    estimated = any(run.source in ESTIMATED for run in (*a, *b))
    same_source = len({run.source for run in (*a, *b)}) == 1
    change, floor = best_b - best_a, _source_floor(a, b)
    if by_steps.ci95_ms is None:
        interval, source = change_interval(a, b, change), OF_ESTIMATES
        if any(run.low_ms is None for run in (*a, *b)):
            floor = max(floor, PROFILER_FLOOR)
    elif (estimated or not same_source) and min(len(a), len(b)) < MIN_RUNS_AS_UNIT and all(run.steps_ms for run in (*a, *b)):
        interval, source = widened_interval(by_steps.ci95_ms, change_interval(a, b, change), change), reasons.WIDENED
    else:
        return by_steps
    return verdict_by_intervals(by_steps, ComparisonEvidence(change, min(best_a, best_b), interval, floor, same_source), source)


def _by_steps(a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps]) -> Verdict:
    """Judge by the spread of steps or runs alone."""
    if _one_recording(a, b):
        return Verdict("no_difference_shown", "high", "Both sides are the same recording.", (0.0, 0.0))
    best_a, best_b = _mean_best(a), _mean_best(b)
    if best_a is None or best_b is None or best_a <= 0 or best_b <= 0:
        side = "A" if best_a is None or best_a <= 0 else "B"
        return Verdict("inconclusive", "low", f"No step time is known for {side}.")
    floor = _source_floor(a, b)
    if min(len(a), len(b)) >= MIN_RUNS_AS_UNIT:
        return _by_runs(a, b, best_b - best_a, floor)
    if _step_times_decide((*a, *b)):
        return _by_marks(a, b, best_a, best_b, floor)
    # A run without profiled steps does not show how steps vary. Only its best step time is used.
    steps_a, steps_b = ([run.steps_at_best() for run in side if run.steps_ms] for side in (a, b))
    floor = max(floor, noise_floor(steps_a), noise_floor(steps_b))
    pair = _SidePair(a=steps_a, b=steps_b, best_a=best_a, best_b=best_b, floor=floor, between=reasons.between_recordings(a, b))
    if steps_a and steps_b and min(float(np.median(steps)) for steps in pair.joined()) <= 0:
        return Verdict("inconclusive", "low", reasons.NO_LENGTH, noise_floor_share=floor)
    if pair.min_steps >= MIN_STEPS_FOR_INTERVAL:
        return _by_interval(pair)
    recorded = min(sum(run.length for run in side) for side in (a, b))
    for kind, steps, needed in (("recorded", recorded, MIN_RECORDED_STEPS), ("counted", pair.min_steps, MIN_COUNTED_STEPS)):
        if steps < needed:
            why = f"{steps} {kind} steps are too few: a verdict needs {needed} per side, an interval {MIN_STEPS_FOR_INTERVAL}."
            return Verdict("inconclusive", "low", why, noise_floor_share=floor)
    return _by_ranges(pair)


def _one_recording(a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps]) -> bool:
    return sorted(run.recordings for run in a) == sorted(run.recordings for run in b) and all(run.recordings for run in a)


def _step_times_decide(runs: Sequence[MeasuredSteps]) -> bool:
    """Return whether step times decide. All need intervals, and all marks or a run without recorded steps."""
    marked = all(run.source == "marks" for run in runs)
    bounded = all(run.low_ms is not None and run.high_ms is not None for run in runs)
    return bounded and (marked or any(not run.steps_ms for run in runs))


@dataclass(frozen=True)
class _SidePair:
    """Steps and best step times of both sides in ms; ``floor`` is a share, ``between`` is for messages."""

    a: Sequence[F64]
    b: Sequence[F64]
    best_a: float
    best_b: float
    floor: float
    between: str

    @property
    def change(self) -> float:
        return self.best_b - self.best_a

    @property
    def min_steps(self) -> int:
        return min(sum(map(len, self.a)), sum(map(len, self.b)))

    def joined(self) -> tuple[F64, F64]:
        """Return all steps of each side."""
        return np.concatenate(self.a), np.concatenate(self.b)


def _mean_best(runs: Sequence[MeasuredSteps]) -> float | None:
    return mean_of_all([run.best_ms for run in runs])


def _source_floor(a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps]) -> float:
    sources = {run.source for run in (*a, *b)}
    return SOURCE_FLOOR if len(sources) > 1 or "telemetry" in sources else 0.0


def _word(change: float) -> Word:
    return "faster" if change < 0 else "slower"


def _by_runs(a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps], change: float, floor: float) -> Verdict:
    """Judge by Welch's interval of the difference of the runs' mean best step times."""
    sides = [np.asarray([run.best_ms for run in side], dtype=np.float64) for side in (a, b)]
    variances = [float(side.var(ddof=1)) / len(side) for side in sides]
    error = math.sqrt(sum(variances))
    variance = sum(variances)  # Divide before squaring, because the squares of tiny variances would become 0.
    freedom = 1 / sum((v / variance) ** 2 / (len(s) - 1) for v, s in zip(variances, sides, strict=True)) if variance else 1.0
    half_width = student_t(freedom, 1 - TAIL_SHARE) * error if error else 0.0
    mean_a, mean_b = float(sides[0].mean()), float(sides[1].mean())
    limit, share = max(MIN_CHANGE, floor), relative_difference(mean_a, mean_b)
    smallest = max(
        limit + reasons.POWER_MARGIN * error / min(mean_a, mean_b),
        (half_width + reasons.POWER_MARGIN * error) / min(mean_a, mean_b),
    )
    runs, range_of_change = f"{len(a)} and {len(b)} runs, each counted once", (change - half_width, change + half_width)
    if abs(change) > half_width and share >= limit:
        confidence: Confidence = "high" if min(len(a), len(b)) > MIN_RUNS_AS_UNIT else "medium"
        reason = f"{runs}: the 95 % interval of the change excludes 0."
        return Verdict(_word(change), confidence, reason, range_of_change, floor, smallest)
    reason = (
        f"{runs}: {reasons.why_none(share, limit, includes_zero=abs(change) <= half_width)} {reasons.could_have_seen(smallest)}"
    )
    spread = math.sqrt(sum(float(side.var(ddof=1)) for side in sides) / 2) / min(mean_a, mean_b)
    reason += reasons.more_runs(spread, min(len(a), len(b)))
    return Verdict("no_difference_shown", no_change_confidence(smallest), reason, range_of_change, floor, smallest)


def _by_marks(a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps], best_a: float, best_b: float, floor: float) -> Verdict:
    """Judge by the step times, not by the recorded steps. Marks cover many more steps."""
    change = best_b - best_a
    variation_ms = RUN_TO_RUN * math.hypot(best_a / math.sqrt(len(a)), best_b / math.sqrt(len(b)))
    interval = widened_interval((change - variation_ms, change + variation_ms), change_interval(a, b, change), change)
    half_width = max(change - (interval[0] or 0.0), (interval[1] or 0.0) - change)
    limit, share = max(MIN_CHANGE, floor), relative_difference(best_a, best_b)
    smallest = max(limit, half_width / min(best_a, best_b))
    sources = {run.source for run in (*a, *b)}
    evidence = ComparisonEvidence(change, min(best_a, best_b), interval, floor, same_source=len(sources) == 1)
    confidence = change_confidence(evidence)
    missing = sum(any(not run.steps_ms for run in side) for side in (a, b))
    missing_steps = "Neither side has recorded steps." if missing == 2 else "One side has no recorded steps."
    basis = reasons.BY_MARKS if sources == {"marks"} else f"{missing_steps} {reasons.BY_TIMES}"
    basis += f" {TWO_SOURCES}" if len(sources) > 1 else ""
    unclear = f"{reasons.why_none(share, limit, includes_zero=includes_zero(interval))} {reasons.could_have_seen(smallest)}"
    unclear = f"{unclear[0].upper()}{unclear[1:]}"
    return Verdict(
        word=_word(change) if confidence is not None else "no_difference_shown",
        confidence=confidence or no_change_confidence(smallest),
        why=f"{basis} {'It excludes 0.' if confidence is not None else unclear}",
        ci95_ms=interval,
        noise_floor_share=floor,
        smallest_visible_share=smallest,
    )


def _by_ranges(pair: _SidePair, *, similar_steps: bool = False) -> Verdict:
    """Judge by the ranges of the steps, because they are too few or (``similar_steps``) too similar."""
    (a, b), floor = pair.joined(), pair.floor
    limits = (
        f"{len(a)} and {len(b)} counted steps are too few to show how steps vary (at least {MIN_STEPS_FOR_INTERVAL} per side)"
    )
    if similar_steps:
        limits = f"The {len(a)} and {len(b)} steps drift slowly and have fewer than {MIN_INDEPENDENT} independent stretches"
    limit = max(MIN_CHANGE_FEW_STEPS, floor)
    middle_a, middle_b = float(np.median(a)), float(np.median(b))
    distance = max((a.max() - middle_a) + (middle_b - b.min()), (middle_a - a.min()) + (b.max() - middle_b))
    smallest = max(limit, float(distance) / min(middle_a, middle_b))
    separate = bool(b.min() > a.max()) if pair.change > 0 else bool(b.max() < a.min())
    share = min(relative_difference(pair.best_a, pair.best_b), relative_difference(middle_a, middle_b))
    if separate and share >= limit:
        reason = f"{limits}. {pair.between[0].upper()}{pair.between[1:]}, the ranges of the step times do not overlap."
        return Verdict(_word(pair.change), "low", reason, None, floor, smallest)
    reason = (
        f"a change of {percent(share, 1)} is below the {percent(limit)} that so few steps can show"
        if separate
        else "the steps of both sides overlap"
    )
    return Verdict("inconclusive", "low", f"{limits}, and {reason}. {reasons.could_have_seen(smallest)}", None, floor, smallest)


def _by_interval(pair: _SidePair) -> Verdict:
    """Judge by the moving-block bootstrap interval of the change of the median."""
    interval, floor, between = median_change_interval(pair.a, pair.b), pair.floor, pair.between
    ends = (interval.low_ms, interval.high_ms)
    if interval.stretches < MIN_INDEPENDENT:
        return replace(_by_ranges(pair, similar_steps=True), ci95_ms=ends)
    middle_a, middle_b = (float(np.median(steps)) for steps in pair.joined())
    limit = max(MIN_CHANGE, floor)
    share = relative_difference(middle_a, middle_b)
    error = interval.half_width_ms / 1.96 / min(middle_a, middle_b)
    smallest = max(limit, 1.96 * error) + reasons.POWER_MARGIN * error
    agree = (pair.change > 0) == (interval.change_ms > 0)
    is_significant = interval.excludes_zero() and share >= limit
    if is_significant and agree:
        confidence: Confidence = "high" if share >= max(MIN_SURE_CHANGE, 2 * floor) else "medium"
        reason = f"The 95 % interval of the change {between} excludes 0. Two recordings do not show how runs vary."
        return Verdict(_word(pair.change), confidence, reason, ends, floor, smallest)
    if is_significant:
        reason = f"The median step and the mean step change in opposite directions {between}, because of a few long steps."
        return Verdict("inconclusive", "low", reason, ends, floor, smallest)
    if relative_difference(pair.best_a, pair.best_b) >= limit > share:
        reason = f"Only the mean step changes, because of a few long steps. The median step does not. {reasons.could_have_seen(smallest)}"
        return Verdict("no_difference_shown", "low", reason, ends, floor, smallest)
    note = reasons.why_none(share, limit, includes_zero=not interval.excludes_zero())
    reason = f"{between[0].upper()}{between[1:]}, {note} {reasons.could_have_seen(smallest)}"
    return Verdict("no_difference_shown", no_change_confidence(smallest), reason, ends, floor, smallest)
