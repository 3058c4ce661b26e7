"""Interval of a change of step times, computed from the intervals of the step times.

It is used if there are too few steps for a bootstrap interval, or if the steps do not show enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sawtooth.analysis.compare.significance.bootstrap import TAIL_SHARE
from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps, mean_of_all
from sawtooth.analysis.quantiles import normal, student_t

TAIL_OF_ESTIMATES = 0.05  # Step times come with 90 % intervals.
# Share of a step by which two runs of one program on one machine differ, even if their steps are nearly equal.
RUN_TO_RUN = 0.02
# Of 139 step times from a profile of a busy GPU or from telemetry, 136 have a 90 % interval that contains the stopwatch's time. These
# intervals are too wide, so ratios use a part of their width. With these parts, 56 of 60 intervals of ratios contain the stopwatch's
# ratio (docs/evidence/comparisons.md).
PART_IF_GPU_LIMITS, PART_IF_HOST_LIMITS = 0.5, 0.65
# The GPU's clock changes within a run, so the same work may take less time than in the profile, by this share.
FASTER_THAN_PROFILED = 0.02
NOTHING_KNOWN = 0.10  # Share of a step. It is used if only one step and no interval is known.

Interval = tuple[float | None, float | None]  # In ms. None means that this side has no bound.


def change_interval(a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps], change_ms: float) -> Interval:
    """Return the 95 % interval of a change from A to B (ms), from the intervals of both step times.

    The two sides' errors are assumed to be independent.
    """
    (down_a, up_a), (down_b, up_b) = _half_widths(a), _half_widths(b)
    below, above = _combine(up_a, down_b), _combine(down_a, up_b)
    return (None if below is None else change_ms - below, None if above is None else change_ms + above)


def ratio_interval(a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps], change: Interval) -> tuple[float, float] | None:
    """Return the 95 % interval of A's step time ÷ B's that matches the interval of their ``change`` (ms).

    The interval of the change alone does not say how much of the uncertainty belongs to each side. The intervals of the
    two step times do. The logarithms of the step times combine like independent errors. Returns None if a side's
    interval or an end of the change's interval is not known. Returns None also if the change may be as long as the
    step.
    """
    low, high = change
    best_a, best_b = mean_of_all([run.best_ms for run in a]), mean_of_all([run.best_ms for run in b])
    have_intervals = all(run.low_ms is not None and run.high_ms is not None for run in (*a, *b))
    if not have_intervals or low is None or high is None or not best_a or not best_b:
        return None
    (down_a, up_a), (down_b, up_b) = _half_widths(a), _half_widths(b)
    middle = best_b - best_a
    above = _ratio_error(middle - low, (up_a or 0.0, down_b or 0.0), (best_a, -best_b))
    below = _ratio_error(high - middle, (down_a or 0.0, up_b or 0.0), (-best_a, best_b))
    if above is None or below is None:
        return None
    return best_a / best_b * math.exp(-below), best_a / best_b * math.exp(above)


def open_ratio_interval(a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps], change: Interval) -> Interval | None:
    """Return the interval of A's step time ÷ B's, with an open end where the ``change`` has one.

    Returns None without step times. If the step times' own intervals are not known, all uncertainty is assigned to the
    slower side.
    """
    if (ratio := ratio_interval(a, b, change)) is not None:
        return ratio
    best_a, best_b = mean_of_all([run.best_ms for run in a]), mean_of_all([run.best_ms for run in b])
    if not best_a or not best_b:
        return None
    faster, (low, high) = min(best_a, best_b), change

    def at(change_ms: float) -> float:
        return 1 - change_ms / faster if change_ms <= 0 else 1 / (1 + change_ms / faster)

    return None if high is None else at(high), None if low is None else at(low)


def _ratio_error(half_ms: float, widths: tuple[float, float], best_ms: tuple[float, float]) -> float | None:
    """Return the error of the ratio's logarithm if the error of the change is ``half_ms``.

    ``widths`` divide the error between the sides. ``best_ms`` is negative for the side that gets shorter.
    """
    total = math.hypot(*widths)
    shares = [width / total for width in widths] if total else [math.sqrt(0.5)] * 2
    moves = [1 + share * half_ms / ms for share, ms in zip(shares, best_ms, strict=True)]
    return math.hypot(*map(math.log, moves)) if min(moves) > 0 else None


def widened_interval(by_steps: Interval, by_estimates: Interval, change_ms: float) -> Interval:
    """Return an interval that covers both the steps' spread and the step times' own intervals."""
    (low, high), (lowest, highest) = by_steps, by_estimates
    below = None if low is None or lowest is None else math.hypot(max(change_ms - low, 0.0), change_ms - lowest)
    above = None if high is None or highest is None else math.hypot(max(high - change_ms, 0.0), highest - change_ms)
    return (None if below is None else change_ms - below, None if above is None else change_ms + above)


def limit_to_gpu_work(change: Interval, a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps]) -> Interval:
    """Return the interval of a ``change`` (ms) in which no step is shorter than the GPU's work.

    The work is that at the GPU's highest clock.
    """
    best_a, best_b = mean_of_all([run.best_ms for run in a]), mean_of_all([run.best_ms for run in b])
    if best_a is None or best_b is None:
        return change
    low, high = change
    works_a, works_b = (mean_of_all([run.works_ms for run in side]) for side in (a, b))
    longest_a, longest_b = (mean_of_all([run.longest_ms for run in side]) for side in (a, b))
    if low is not None and works_b is not None and longest_a is not None:
        low = max(low, (1 - FASTER_THAN_PROFILED) * min(works_b, best_b) - longest_a)
    if high is not None and works_a is not None and longest_b is not None:
        high = min(high, longest_b - (1 - FASTER_THAN_PROFILED) * min(works_a, best_a))
    return low, high


def includes_zero(interval: Interval) -> bool:
    """Return whether the interval includes a change of 0."""
    low, high = interval
    return (low is None or low <= 0) and (high is None or high >= 0)


def _half_widths(runs: Sequence[MeasuredSteps]) -> tuple[float | None, float | None]:
    """Return how far the 95 % interval of a side's mean step time extends below and above it, in ms."""
    widths = [_half_width(run) for run in runs]
    lower, upper = _combine(*(width[0] for width in widths)), _combine(*(width[1] for width in widths))
    return None if lower is None else lower / len(runs), None if upper is None else upper / len(runs)


def _half_width(run: MeasuredSteps) -> tuple[float | None, float | None]:
    best = run.best_ms or 0.0
    if run.low_ms is not None:
        to_95 = _part_of_width(run) * normal(1 - TAIL_SHARE) / normal(1 - TAIL_OF_ESTIMATES)
        above = None if run.high_ms is None else to_95 * max(run.high_ms - best, 0.0)
        return to_95 * max(best - run.low_ms, 0.0), above
    steps = run.steps_at_best()
    if len(steps) < 2:
        return NOTHING_KNOWN * best, NOTHING_KNOWN * best
    error = student_t(len(steps) - 1, 1 - TAIL_SHARE) * float(steps.std(ddof=1)) / math.sqrt(len(steps))
    half = math.hypot(error, RUN_TO_RUN * best)
    return half, half


def _part_of_width(run: MeasuredSteps) -> float:
    """Return the part of a step time's interval that a ratio uses.

    It is 1 for marks, for a stopwatch and for replays, whose intervals are not too wide.
    """
    if run.source in ("profile", "telemetry") and not run.host_bound:
        return PART_IF_GPU_LIMITS
    return PART_IF_HOST_LIMITS if run.source == "telemetry" else 1.0


def _combine(*halves: float | None) -> float | None:
    known_halves = [half for half in halves if half is not None]
    return math.hypot(*known_halves) if len(known_halves) == len(halves) else None
