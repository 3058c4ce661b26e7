"""Step times of a running training from its step marks, with their confidence interval and drift."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

from sawtooth.analysis.quantiles import student_t

MIN_STEPS = 40  # With fewer steps, their variation is not known.
# The first second is not representative: a loader's queue is full and caches are cold. A step of 3.4 ms took 4.8 ms there.
MIN_S = 5.0
BLOCKS = 8  # Blocks of neighbouring steps: their means are nearly independent, and eight of them suffice for an interval.
WARM_UP = 0.2  # Share of the steps at the start that is left out.
TAIL = 0.975  # Quantile of Student's t distribution for a 95 % interval.
FIRST_STEPS, LONG = 10, 5.0  # Of the first 10 steps, those that take more than 5 times the median count as start-up.


def step_ms(marks: Sequence[tuple[int, int, str]]) -> tuple[list[float], float]:
    """Return the times (ms) of training steps without profile or evaluation, and the loop's seconds.

    A mark is a step's number, its end (ns) and its phase; ``marks`` are sorted.
    """
    step_times = [(b[1] - a[1]) / 1e6 for a, b in pairwise(marks) if b[0] == a[0] + 1 and a[2] == b[2] == "train"]
    return step_times, (marks[-1][1] - marks[0][1]) / 1e9 if marks else 0.0


def compiling_s(step_times: Sequence[float]) -> float:
    """Return the excess time in s of slow first steps, which compile, allocate or search algorithms."""
    usual = statistics.median(step_times) if step_times else 0.0
    return sum(ms - usual for ms in step_times[:FIRST_STEPS] if ms > LONG * usual) / 1e3


def mean_and_half_width(step_times: Sequence[float]) -> tuple[float, float]:
    """Return the mean step time after the warm-up, and half the width of its 95 % interval.

    The width is infinite for too few steps.
    """
    counted = step_times[int(WARM_UP * len(step_times)) :]
    blocks = _blocks(counted)
    if not blocks:
        return statistics.fmean(counted) if counted else 0.0, math.inf
    return statistics.fmean(counted), student_t(BLOCKS - 1, TAIL) * statistics.stdev(blocks) / math.sqrt(BLOCKS)


def halves(took: Sequence[float]) -> tuple[float, float] | None:
    """Return the step times of the two halves of a run; None for too few steps.

    Their difference is the run's drift. Each is the median of four block means. The median of all steps would be unstable if
    fast and slow steps alternate, as they do when the loader is too slow.
    """
    blocks = _blocks(took[int(WARM_UP * len(took)) :])
    middle = len(blocks) // 2
    return (statistics.median(blocks[:middle]), statistics.median(blocks[middle:])) if blocks else None


def _blocks(counted: Sequence[float]) -> list[float]:
    """Return the means of BLOCKS blocks of neighbouring steps; empty for too few steps."""
    size = len(counted) // BLOCKS if len(counted) >= MIN_STEPS else 0
    return [statistics.fmean(counted[at * size : (at + 1) * size]) for at in range(BLOCKS)] if size else []
