"""Tests of a comparison's statistics, by hand or by a second, slower implementation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sawtooth.analysis.compare.significance import bootstrap as statistics
from sawtooth.analysis.compare.significance.bootstrap import (
    Interval,
    block_length,
    lag_one_autocorrelation,
    median_change_interval,
    noise_floor,
    relative_difference,
)


def series(*values):
    return np.array(values, np.float64)


def drawn(n, seed, level=10.0, phi=0.5):
    chance = np.random.default_rng(seed)
    noise = np.zeros(n)
    for i in range(1, n):
        noise[i] = phi * noise[i - 1] + chance.normal()
    return level + 0.1 * noise


def test_autocorrelation_by_hand():
    # Ranks about their mean: -3 -2 3 -1 2 0 1; squares 28, neighbours 6 - 6 - 3 - 2 + 0 + 0 = -5.
    # (7 * -5 / 28 + 1) / (7 - 3) = -0.0625; one standard error sqrt((1 - 0.0625^2) / 7) = 0.377226.
    assert lag_one_autocorrelation(series(1, 2, 7, 3, 6, 4, 5)) == pytest.approx(
        -0.0625 + math.sqrt((1 - 0.0625**2) / 7), abs=1e-12
    )
    assert lag_one_autocorrelation(series(10, 20, 70, 30, 60, 40, 500)) != lag_one_autocorrelation(series(1, 2, 7, 3, 6, 4, 5))


def test_autocorrelation_keeps_within_its_bounds():
    assert lag_one_autocorrelation(np.arange(8.0)) == 0.97
    assert lag_one_autocorrelation(series(1, 4, 2, 5, 3, 6)) == 0.0  # -0.381 and an error of 0.377
    assert lag_one_autocorrelation(series(1, 2, 3, 4)) == 0.0  # too few
    assert lag_one_autocorrelation(series(1, 2, 3, 4, 5)) == 0.97
    assert lag_one_autocorrelation(series(*[3] * 50)) == 0.0


@pytest.mark.parametrize(
    ("n", "block"), [(1, 1), (2, 1), (3, 1), (6, 2), (8, 2), (15, 5), (16, 5), (30, 7), (60, 8), (1000, 20)]
)
def test_blocks_by_hand(n, block):
    """The block length is 2 n^(1/3) rounded up, but at least 5, and at most n / 3 (or 1).

    For n = 60, 7.83 gives 8. For n = 30, 6.2 gives 7.
    """
    assert block_length(np.zeros(n)) == block


def test_dependence_by_hand():
    # (1 + 0.5) / (1 - 0.5) = 3; 1 + 2 (2/3 * 0.5 + 1/3 * 0.25) = 1 + 2 * 0.41667
    assert statistics._dependence(0.5, 3) == pytest.approx((3.0, 1 + 2 * (1 / 3 + 1 / 12)))
    assert statistics._dependence(0.0, 5) == (1.0, 1.0)


def test_half_width_and_zero():
    assert Interval(2.0, 1.0, 4.0, (5, 5), 4.0).half_width_ms == 1.5
    for low, high, excludes in ((0.0, 1.0, False), (-1.0, 0.0, False), (-1.0, 1.0, False), (0.1, 1.0, True), (-2.0, -0.1, True), (0.5, 0.9, True)):  # fmt: skip
        assert Interval(0.0, low, high, (5, 5), 4.0).excludes_zero() is excludes


def test_share_of_the_faster_side():
    assert relative_difference(10, 11) == relative_difference(11, 10) == pytest.approx(0.1)
    assert relative_difference(0, 0) == 0.0 and relative_difference(0, 3) == math.inf and relative_difference(0.5, 1.0) == 1.0


def test_noise_floor_by_hand():
    halves = np.concatenate([np.full(10, 10.0), np.full(10, 12.0)])
    assert noise_floor([halves]) == pytest.approx(0.2)
    assert noise_floor([halves[:19]]) == 0.0  # One too few.
    skewed = np.concatenate([np.full(9, 10.0), [100.0], np.full(10, 12.0)])  # Medians, not means.
    assert noise_floor([skewed]) == pytest.approx(0.2)
    odd = np.concatenate([np.full(10, 10.0), [99.0], np.full(10, 12.0)])  # The middle step is in neither half.
    assert noise_floor([odd]) == pytest.approx(0.2)
    assert noise_floor([series(10, 10, 16), series(11, 11, 12), series()]) == pytest.approx(0.1)  # among runs
    assert noise_floor([series(10, 11)]) == noise_floor([]) == 0.0


def slow_interval(a, b, resamples):
    """Return the interval that the tested function documents, one resample at a time."""
    medians, missed, stretches, blocks = [], [1.0], [], []
    for runs in (a, b):
        generators = [np.random.Generator(np.random.PCG64(statistics._seed(steps))) for steps in runs]
        starts = [
            generator.integers(0, len(s) - block_length(s) + 1, size=(resamples, math.ceil(len(s) / block_length(s))))
            for s, generator in zip(runs, generators, strict=True)
        ]
        pooled = []
        for row in range(resamples):
            values = []
            for s, begin in zip(runs, starts, strict=True):
                values += [s[at + i] for at in begin[row] for i in range(block_length(s))][: len(s)]
            pooled.append(float(np.median(values)))
        medians.append(pooled)
        counts = []
        for s in runs:
            phi, block, n = lag_one_autocorrelation(s), block_length(s), len(s)
            tau = (1 + phi) / (1 - phi)
            remaining = 1 + 2 * sum((1 - lag / block) * phi**lag for lag in range(1, block))
            counts.append(n / max(block, tau))
            missed.append(tau / remaining / (1 - min(block / n, 0.5)))
        stretches.append(sum(counts))
        blocks.append(max(block_length(s) for s in runs))
    change = float(np.median(np.concatenate(b)) - np.median(np.concatenate(a)))
    ordered = sorted(y - x for x, y in zip(*medians, strict=True))
    tail = int(resamples * 0.025)
    factor = stats.t.ppf(0.975, max(sum(stretches) - 2, 1.0)) / 1.96 * math.sqrt(max(missed))
    low = change - factor * max(change - ordered[tail], 0)
    return low, change + factor * max(ordered[-1 - tail] - change, 0), tuple(blocks), min(stretches)


@pytest.mark.parametrize(
    ("a", "b"),
    [([drawn(30, 1)], [drawn(45, 2, 10.5)]), ([drawn(25, 3, phi=0.0), drawn(70, 4)], [drawn(28, 5)]), ([drawn(20, 6, phi=0.9)], [drawn(21, 7)])],
)  # fmt: skip
def test_the_interval_equals_a_slow_one(a, b):
    found = median_change_interval(a, b, resamples=200)
    low, high, blocks, stretches = slow_interval(a, b, 200)
    assert (found.low_ms, found.high_ms) == pytest.approx((low, high), rel=1e-12)
    assert found.blocks == blocks and found.stretches == pytest.approx(stretches)
    assert found.change_ms == np.median(np.concatenate(b)) - np.median(np.concatenate(a))


def test_resamples_do_not_depend_on_how_many_are_drawn_at_once(monkeypatch):
    a, b = [drawn(30, 1)], [drawn(30, 2)]
    complete = median_change_interval(a, b, resamples=100)
    monkeypatch.setattr(statistics, "RESAMPLED_VALUES_PER_BATCH", 90)  # Three at a time.
    assert median_change_interval(a, b, resamples=100) == complete


def test_with_one_step_per_side_the_block_is_the_series():
    found = median_change_interval([series(10.0)], [series(12.0)])
    assert (found.change_ms, found.low_ms, found.high_ms, found.blocks) == (2.0, 2.0, 2.0, (1, 1))
    assert found.stretches == 1.0


def test_long_series_are_thinned_evenly():
    long = np.arange(2001.0)
    assert statistics._thinned(long[:2000]) is not None and len(statistics._thinned(long[:2000])) == 2000
    thinned = statistics._thinned(long)
    assert len(thinned) == 2000 and thinned[0] == 0 and thinned[-1] == 2000
    assert np.diff(thinned).max() <= 2
