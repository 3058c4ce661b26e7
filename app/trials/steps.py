"""Step times of a running training from its step marks, with their confidence interval and drift."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

from sawtooth.analysis.quantiles import student_t

MIN_STEPS = 40  # The variation of fewer steps is not known.
# The first second is not representative, because the loader's queue is full and caches are cold. There, a step of 3.4 ms took 4.8 ms.
MIN_S = 5.0
MEAN_BLOCKS = 8  # Blocks of neighbouring steps. Their means are nearly independent, and eight means suffice for an interval.
WARM_UP_SHARE = 0.2  # Share of the steps at the start that is left out.
QUANTILE = 0.975  # Quantile of Student's t distribution for a 95 % interval.
# Steps among the first 10 that take more than 5 times the median count as start-up.
FIRST_STEPS, LONG_STEP_FACTOR = 10, 5.0


def step_ms(marks: Sequence[tuple[int, int, str]]) -> tuple[list[float], float]:
    """Return the times (ms) of training steps, and the time (s) from the first to the last mark.

    Steps with a profile or an evaluation are left out. ``marks`` has the number of each step, its end (ns) and its phase, in the order of time.
    """
    step_times = [
        (end_ns - start_ns) / 1e6
        for (before, start_ns, phase_before), (number, end_ns, phase) in pairwise(marks)
        if number == before + 1 and phase_before == phase == "train"
    ]
    return step_times, (marks[-1][1] - marks[0][1]) / 1e9 if marks else 0.0


def compiling_s(step_times: Sequence[float]) -> float:
    """Return the excess time in s of slow first steps, which compile, allocate or search algorithms."""
    median_ms = statistics.median(step_times) if step_times else 0.0
    return sum(ms - median_ms for ms in step_times[:FIRST_STEPS] if ms > LONG_STEP_FACTOR * median_ms) / 1e3


def mean_and_half_width(step_times: Sequence[float]) -> tuple[float, float]:
    """Return the mean step time after the warm-up, and half the width of its 95 % interval, in ms.

    The width of too few steps is infinite.
    """
    counted = step_times[int(WARM_UP_SHARE * len(step_times)) :]
    blocks = _blocks(counted)
    if not blocks:
        return statistics.fmean(counted) if counted else 0.0, math.inf
    return statistics.fmean(counted), student_t(MEAN_BLOCKS - 1, QUANTILE) * statistics.stdev(blocks) / math.sqrt(MEAN_BLOCKS)


def half_medians(step_times: Sequence[float]) -> tuple[float, float] | None:
    """Return the step times in ms of the two halves of a run, which show its drift.

    It is None for too few steps. Each half has the median of four block means. A median of steps would be unstable if fast and slow steps alternate, as with
    a slow loader.
    """
    blocks = _blocks(step_times[int(WARM_UP_SHARE * len(step_times)) :])
    middle = len(blocks) // 2
    return (statistics.median(blocks[:middle]), statistics.median(blocks[middle:])) if blocks else None


def _blocks(counted: Sequence[float]) -> list[float]:
    """Return the means of MEAN_BLOCKS blocks of neighbouring steps; empty for too few steps."""
    size = len(counted) // MEAN_BLOCKS if len(counted) >= MIN_STEPS else 0
    return [statistics.fmean(counted[i * size : (i + 1) * size]) for i in range(MEAN_BLOCKS)] if size else []
