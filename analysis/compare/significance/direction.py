"""Direction of a change if its interval includes 0.

The direction comes from the best steps, the profiled steps and the kernels together. The thresholds come from pairs of
recordings with a stopwatch (``docs/evidence/comparisons.md``). Profiling distorts a ratio of step times by a factor of
up to 2.5. Profiled steps alone show the wrong direction in about one of twelve pairs. So no single source decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from sawtooth.analysis.compare.significance.certainty import Verdict
from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps, mean_of_all

Direction = Literal["faster", "slower"]

BOTH_AGREE = 2.0  # Factor that the best steps and the profiled steps must both reach.
BOTH_AGREE_TELEMETRY = 1.3  # The same factor if telemetry gives both step times.
ALL_AGREE = 1.15  # The same factor if, on one GPU, the kernels' time also changes by this factor in the same direction.
KERNELS_LONGER = 1.15  # Factor over the other side's complete profiled step, because clocks differ by up to 8 %.

AGREE = "The best steps and the profiled steps agree on the direction, by {times} times or more. The size is not known."
ALL = "The best steps, the profiled steps and the kernels agree on the direction, by {times} times or more. The size is not known."
KERNELS = (
    "The kernels of {slower} alone take longer than a whole profiled step of {faster}. The size of the difference is not known."
)
DISAGREE = "The best steps and the profiled steps point in opposite directions."


def with_direction(judged: Verdict, a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps]) -> Verdict:
    """Return the verdict, with a direction if several sources agree on one.

    A verdict whose interval already shows the direction is returned unchanged.
    """
    if judged.shown or judged.ci95_ms is None or judged.ci95_ms == (0.0, 0.0):
        return judged
    if (answer := direction(a, b)) is not None:
        return replace(judged, word=answer[0], confidence="low", why=answer[1])
    if judged.word == "inconclusive" and contradict(a, b):
        return replace(judged, why=f"{judged.why} {DISAGREE}")
    return judged


def direction(a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps]) -> tuple[Direction, str] | None:
    """Return whether B is faster or slower than A, and why.

    Returns None if the sources do not show it, or if they contradict each other.
    """
    best, profiled = _ratio(a, b, "best_ms"), _ratio(a, b, "profiled_ms")
    if best is None or profiled is None or contradict(a, b):
        return None
    telemetry = all(run.source == "telemetry" for run in (*a, *b))
    threshold = BOTH_AGREE_TELEMETRY if telemetry else BOTH_AGREE
    if min(_factor(a, b, "best_ms"), _factor(a, b, "profiled_ms")) >= threshold:
        return ("faster" if best > 1 else "slower"), AGREE.format(times=f"{threshold:g}")
    kernels = _ratio(a, b, "kernels_ms")
    factors = [_factor(a, b, name) for name in ("best_ms", "profiled_ms", "kernels_ms")]
    if kernels is not None and (best > 1) == (kernels > 1) and min(factors) >= ALL_AGREE:
        return ("faster" if best > 1 else "slower"), ALL.format(times=f"{ALL_AGREE:g}")
    if best >= 1 and _kernels_longer(a, b):
        return "faster", KERNELS.format(slower="A", faster="B")
    if best <= 1 and _kernels_longer(b, a):
        return "slower", KERNELS.format(slower="B", faster="A")
    return None


def contradict(a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps]) -> bool:
    """Return whether the profiled steps and the best steps change in opposite directions."""
    best, profiled = _ratio(a, b, "best_ms"), _ratio(a, b, "profiled_ms")
    return best is not None and profiled is not None and (best - 1) * (profiled - 1) < 0


def _kernels_longer(a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps]) -> bool:
    """Return whether A's kernels alone take longer than B's profiled step.

    The profiler can only make B's step longer, so B's own step is then shorter than A's.
    """
    kernels, step = mean_of_all([run.kernels_ms for run in a]), mean_of_all([run.profiled_ms for run in b])
    return kernels is not None and bool(step) and kernels >= KERNELS_LONGER * (step or 0.0)


def _factor(
    a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps], name: Literal["best_ms", "profiled_ms", "kernels_ms"]
) -> float:
    """Return the longer mean time ÷ the shorter one, for either order of the sides.

    It is 1 if one time is not known.
    """
    ratios = [ratio for ratio in (_ratio(a, b, name), _ratio(b, a, name)) if ratio is not None]
    return max(ratios, default=1.0)


def _ratio(
    a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps], name: Literal["best_ms", "profiled_ms", "kernels_ms"]
) -> float | None:
    """Return A's mean time ÷ B's, or None if one is not known."""
    time_a, time_b = (mean_of_all([getattr(run, name) for run in side]) for side in (a, b))
    return time_a / time_b if time_a and time_b else None
