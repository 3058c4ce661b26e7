"""Bootstrap interval of the change of the median of two step series, and the noise floor.

Steps of one run are autocorrelated because of clocks, caches, loaders and checkpoints. A test that assumes independent
steps reports changes that do not exist. This module therefore uses a moving-block bootstrap of the change of the
median. The interval is widened because a short recording has few blocks. The module ``decision`` turns the interval
into a verdict. All times are milliseconds.

Source of the method: Künsch 1989 (moving blocks), Kendall 1954 (bias of an autocorrelation).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.quantiles import student_t

F64 = NDArray[np.float64]

MIN_STEPS_FOR_INTERVAL = 20  # With fewer steps, a block would be about as long as the series and the interval too narrow.
# The 2.5 % tail then has 50 resamples. Between seeds, its quantile varies by about 5 % of the interval's width.
RESAMPLES = 2000
MIN_BLOCK = 5  # Shorter blocks break the correlation of neighbouring steps.
MAX_AUTOCORRELATION = 0.97  # Above this value, no recording of usual length has two independent stretches.
MAX_BLOCK_SHARE = 1 / 3  # With longer blocks there are fewer than three, which do not show how blocks vary.
# Longer series are thinned evenly. The interval gets wider, never too narrow, and its computation takes less than a
# second.
MAX_STEPS = 2_000
RESAMPLED_VALUES_PER_BATCH = 100_000  # This is 0.8 MB of resampled steps, which fits into the cache of a core.
TAIL_SHARE = 0.025  # Each side of a 95 % interval excludes this share.


@dataclass(frozen=True)
class Interval:
    """95 % interval of the change of the median step, B − A, in ms.

    ``blocks`` is the longest block of each side, in steps. ``stretches`` is the smaller number of independent stretches
    of the two sides.
    """

    change_ms: float
    low_ms: float
    high_ms: float
    blocks: tuple[int, int]
    stretches: float

    @property
    def half_width_ms(self) -> float:
        """Half of the interval's width in ms."""
        return (self.high_ms - self.low_ms) / 2

    def excludes_zero(self) -> bool:
        """Return whether zero is outside the interval."""
        return self.low_ms > 0 or self.high_ms < 0


def lag_one_autocorrelation(steps: F64) -> float:
    """Return a cautious estimate of the lag-one autocorrelation of the steps' ranks, from 0 to 0.97.

    Ranks are used so that one long checkpoint step does not hide the dependence of the other steps. Subtracting the
    mean of a series reduces the estimate by (1 + 3φ) ÷ n on average (Kendall 1954). This bias is added back, and one
    standard error is added on top. An estimate that is too high only makes the interval wider. An estimate that is too
    low would cause false verdicts.
    """
    n = len(steps)
    if n < MIN_BLOCK:
        return 0.0
    centred = pd.Series(steps).rank().to_numpy() - (n + 1) / 2
    variance = float(centred @ centred)
    if variance == 0:
        return 0.0
    phi = (n * float(centred[:-1] @ centred[1:]) / variance + 1) / (n - 3)
    error = math.sqrt(max(1 - phi**2, 0.0) / n)
    return min(max(phi + error, 0.0), MAX_AUTOCORRELATION)


def block_length(steps: F64) -> int:
    """Return the block length in steps: max(5, ⌈2·n^⅓⌉), at most a third of the series."""
    n = len(steps)
    return max(1, min(max(MIN_BLOCK, math.ceil(2 * n ** (1 / 3))), int(n * MAX_BLOCK_SHARE)))


def _dependence(phi: float, block: int) -> tuple[float, float]:
    """Return the autocorrelation time of an AR(1) series, and the part of it that blocks preserve.

    ``block`` is the length of a block in steps.
    """
    variance_ratio = (1 + phi) / (1 - phi)
    block_ratio = 1 + 2 * sum((1 - lag / block) * phi**lag for lag in range(1, block))
    return variance_ratio, block_ratio


def _seed(steps: F64) -> int:
    # The seed comes from the data, so a side draws the same resamples as A and as B. Swapping the sides then negates
    # the interval exactly, and no user can pick a favourable seed.
    return int.from_bytes(hashlib.sha256(np.ascontiguousarray(steps).tobytes()).digest()[:8], "little")


def _block_medians(runs: Sequence[F64], blocks: Sequence[int], resamples: int) -> F64:
    """Return the median of each of ``resamples`` pooled resamples.

    No block spans two runs.
    """
    generators = [np.random.Generator(np.random.PCG64(_seed(steps))) for steps in runs]
    at_once = max(1, RESAMPLED_VALUES_PER_BATCH // sum(len(steps) for steps in runs))
    medians = []
    for first in range(0, resamples, at_once):
        rows = min(at_once, resamples - first)
        batches = []
        for steps, block, generator in zip(runs, blocks, generators, strict=True):
            starts = generator.integers(0, len(steps) - block + 1, size=(rows, math.ceil(len(steps) / block)))
            resampled = np.lib.stride_tricks.sliding_window_view(steps, block)[starts].reshape(rows, -1)
            batches.append(resampled[:, : len(steps)])
        medians.append(np.median(np.concatenate(batches, axis=1), axis=1, overwrite_input=True))
    return np.concatenate(medians)


def _thinned(steps: F64) -> F64:
    return steps if len(steps) <= MAX_STEPS else steps[np.linspace(0, len(steps) - 1, MAX_STEPS).astype(np.int64)]


def median_change_interval(a: Sequence[F64], b: Sequence[F64], *, resamples: int = RESAMPLES) -> Interval:
    """Return the 95 % interval of median(B) − median(A).

    Each side is a list of step series in ms. The ends of the interval are percentiles of a moving-block bootstrap. Few and
    short blocks underestimate the spread. So both distances from the observed change to the ends are multiplied by t(0.975,
    ν) ÷ 1.96 · √(τ ÷ τ_block ÷ (1 − block ÷ n)). ν is the number of independent stretches of both sides − 2. τ is the
    autocorrelation time of an AR(1) series like this one, and τ_block the part of it that blocks preserve.

    Each run needs at least one step. A run with more than MAX_STEPS is thinned evenly. Swapping the sides negates the
    interval exactly. Equal series give a width of 0.
    """
    change = float(np.median(np.concatenate(b)) - np.median(np.concatenate(a)))
    a, b = ([_thinned(steps) for steps in runs] for runs in (a, b))
    medians, longest, stretches, missed = [], [], [], 1.0
    for runs in (a, b):
        blocks = [block_length(steps) for steps in runs]
        medians.append(_block_medians(runs, blocks, resamples))
        longest.append(max(blocks))
        stretches.append(0.0)
        for steps, block in zip(runs, blocks, strict=True):
            variance_ratio, block_ratio = _dependence(lag_one_autocorrelation(steps), block)
            stretches[-1] += len(steps) / max(block, variance_ratio)
            # In a run of one step, the block is the complete series.
            missed = max(missed, variance_ratio / block_ratio / (1 - min(block / len(steps), 0.5)))
    middle = float(np.median(np.concatenate(b)) - np.median(np.concatenate(a)))
    ordered = np.sort(medians[1] - medians[0])
    tail = int(resamples * TAIL_SHARE)
    below, above = max(middle - float(ordered[tail]), 0.0), max(float(ordered[-1 - tail]) - middle, 0.0)
    stretch = student_t(max(sum(stretches) - 2, 1.0), 1 - TAIL_SHARE) / 1.96 * math.sqrt(missed)
    return Interval(change, change - stretch * below, change + stretch * above, (longest[0], longest[1]), min(stretches))


def relative_difference(a: float, b: float) -> float:
    """Return |b − a| divided by the smaller of the two."""
    smaller = min(a, b)
    return abs(b - a) / smaller if smaller > 0 else math.inf if a != b else 0.0


def noise_floor(runs: Sequence[F64]) -> float:
    """Return the largest relative difference between parts of one side.

    The parts are the two halves of each run, and the runs of the side. The result is 0.0 if nothing can be compared, for
    example if the only run has fewer than 20 steps. Then only the 2 % of ``MIN_CHANGE`` applies.
    """
    differences = [0.0]
    for steps in runs:
        if len(steps) >= MIN_STEPS_FOR_INTERVAL:
            half = len(steps) // 2
            differences.append(relative_difference(float(np.median(steps[:half])), float(np.median(steps[-half:]))))
    medians = [float(np.median(steps)) for steps in runs if len(steps)]
    if len(medians) > 1:
        differences.append(relative_difference(min(medians), max(medians)))
    return max(differences)
