"""Step times of a running training, from its marks, and how well they are known."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

from sawtooth.analysis.quantiles import student_t

LEAST_STEPS = 40  # fewer say nothing about how steps vary
LEAST_S = 5.0  # A loader's queue is full and caches are cold in the first second: 4.8 ms were measured there instead of 3.4.
BLOCKS = 8  # means of neighbouring steps: these are nearly independent, and eight give an interval
WARM_UP = 0.2  # share of the steps that is left out at the start, while the trial runs
TAIL = 0.975
FIRST_STEPS, LONG = 10, 5.0  # a step is long from this many times the median on


def step_ms(marks: Sequence[tuple[int, int, str]]) -> tuple[list[float], float]:
    """Return the times of the unprofiled steps (ms), and the seconds of the loop.

    ``marks`` are in order: step, end (ns) and phase.
    """
    took = [(b[1] - a[1]) / 1e6 for a, b in pairwise(marks) if b[0] == a[0] + 1 and a[2] == b[2] == "train"]
    return took, (marks[-1][1] - marks[0][1]) / 1e9 if marks else 0.0


def compiling_s(took: Sequence[float]) -> float:
    """Return how much longer the first steps took than usual (compilation, allocation, search), s."""
    usual = statistics.median(took) if took else 0.0
    return sum(ms - usual for ms in took[:FIRST_STEPS] if ms > LONG * usual) / 1e3


def mean_and_half_width(took: Sequence[float]) -> tuple[float, float]:
    """Return the mean step time after the warm-up, and half of its 95 % interval (else infinite)."""
    counted = took[int(WARM_UP * len(took)) :]
    blocks = _blocks(counted)
    if not blocks:
        return statistics.fmean(counted) if counted else 0.0, math.inf
    return statistics.fmean(counted), student_t(BLOCKS - 1, TAIL) * statistics.stdev(blocks) / math.sqrt(BLOCKS)


def halves(took: Sequence[float]) -> tuple[float, float] | None:
    """Return the step times of a run's halves; None for too few steps.

    Their difference is the run's drift. Each is the median of four blocks' means. A median of steps would jump where fast and
    slow steps alternate, as they do with a loader that starves.
    """
    blocks = _blocks(took[int(WARM_UP * len(took)) :])
    middle = len(blocks) // 2
    return (statistics.median(blocks[:middle]), statistics.median(blocks[middle:])) if blocks else None


def _blocks(counted: Sequence[float]) -> list[float]:
    """Return the means of neighbouring steps; none if they are too few."""
    size = len(counted) // BLOCKS if len(counted) >= LEAST_STEPS else 0
    return [statistics.fmean(counted[at * size : (at + 1) * size]) for at in range(BLOCKS)] if size else []
