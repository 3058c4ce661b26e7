"""Tests of aligning telemetry with a trace: known shifts are found within one sample.

Constant, periodic and unrelated signals give no shift.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sawtooth.analysis.intervals import union
from sawtooth.analysis.telemetry.alignment import KernelActivity, align, zones_that_fit

TENTH = 100_000_000
S = 10**9
T0 = 1_795_000_000 * S


def work(seed: int, seconds: float = 90.0) -> KernelActivity:
    """Return kernels of 30 to 400 ms with pauses of 20 to 600 ms, from T0 − 30 s on."""
    draw = np.random.default_rng(seed)
    n = int(seconds * 4)
    busy, idle = draw.integers(30, 400, n) * 10**6, draw.integers(20, 600, n) * 10**6
    starts = T0 - 30 * S + np.cumsum(busy + idle) - busy
    return KernelActivity(starts, starts + busy, int(starts[0]), int(starts[-1] + busy[-1]))


def cut(complete: KernelActivity, first: int, last: int) -> KernelActivity:
    keep = union(np.clip(complete.starts_ns, first, last), np.clip(complete.ends_ns, first, last))
    return KernelActivity(keep.starts, keep.ends, first, last)


def sampled(complete: KernelActivity, shift: int, seconds: int = 60, noise: float = 0.0, seed: int = 0, spacing: int = TENTH):
    """Return the samples from T0 − 25 s on of a sampler whose clock is ``shift`` behind.

    They are the percentage of each window in which a kernel ran.
    """
    true = T0 - 25 * S + spacing * np.arange(seconds * S // spacing + 1)
    share = np.array([_work_between(complete, a, b) for a, b in itertools.pairwise(true)]) / spacing
    percent = 100 * share + noise * np.random.default_rng(seed).normal(size=len(share))
    return true[1:] - shift, percent


def _work_between(complete: KernelActivity, a: int, b: int) -> int:
    return int(np.maximum(np.minimum(complete.ends_ns, b) - np.maximum(complete.starts_ns, a), 0).sum())


def test_alignment_of_six_windows() -> None:
    # 13 windows of 0.1 s; busy in windows 0, 1, 5, 6, 8 and 12: no other shift of the 40 has that pattern
    on = [0, 1, 5, 6, 8, 12]
    trace = KernelActivity(*union([T0 + k * TENTH for k in on], [T0 + (k + 1) * TENTH for k in on]), T0, T0 + 13 * TENTH)
    values = np.zeros(60)
    values[[20 + k for k in on]] = 100.0
    values[[3, 9, 40, 50]] = 100.0
    times = T0 - 2 * S + TENTH * np.arange(1, 61) - 7 * S  # The sampler's clock is 7 s behind.
    found = align(trace, times, values)
    assert found.shift_ns is not None
    assert abs(found.shift_ns - 7 * S) <= TENTH
    assert found.windows == 13


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), shift=st.integers(-20 * S, 20 * S), noise=st.sampled_from([0.0, 3.0, 8.0]))
def test_a_planted_shift_is_found_within_one_sample(seed: int, shift: int, noise: float) -> None:
    complete = work(seed)
    times, values = sampled(complete, shift, noise=noise, seed=seed)
    found = align(cut(complete, T0, T0 + 8 * S), times, values)
    assert found.shift_ns is not None, found
    assert abs(found.shift_ns - shift) <= TENTH
    assert found.within_ns is not None
    assert found.within_ns <= 2 * TENTH


@pytest.mark.parametrize("seed", range(40))
def test_unrelated_telemetry_is_not_aligned(seed: int) -> None:
    times, values = sampled(work(seed + 1000), 0)
    assert align(cut(work(seed), T0, T0 + 8 * S), times, values).shift_ns is None


def test_periodic_activity_is_not_aligned() -> None:
    starts = T0 - 30 * S + np.arange(180) * S // 2
    loop = KernelActivity(starts, starts + S // 5, int(starts[0]), int(starts[-1]))
    times, values = sampled(loop, 3 * S)
    found = align(cut(loop, T0, T0 + 8 * S), times, values)
    assert found.shift_ns is None
    assert "periodic" in str(found.why_none)


def test_telemetry_without_overlap_is_not_aligned() -> None:
    complete = work(5)
    times, values = sampled(complete, 0)
    late = cut(complete, T0, T0 + 8 * S)
    assert align(late, times - 3600 * S, values, most_shift_ns=120 * S).shift_ns is None
    assert align(late, times - 3600 * S, values).shift_ns == pytest.approx(3600 * S, abs=TENTH)


@pytest.mark.parametrize(
    ("trace", "word"),
    [
        (KernelActivity(np.array([T0]), np.array([T0 + 8 * S]), T0, T0 + 8 * S), "uniform"),
        (KernelActivity(np.array([T0]), np.array([T0 + S // 20]), T0, T0 + S // 10), "are needed"),
    ],
)
def test_missing_alignment_has_a_reason(trace: KernelActivity, word: str) -> None:
    times, values = sampled(work(1), 0)
    found = align(trace, times, values)
    assert found.shift_ns is None
    assert word in str(found.why_none)


def test_constant_signal_and_too_few_samples_are_not_aligned() -> None:
    trace = cut(work(2), T0, T0 + 8 * S)
    times = T0 - 10 * S + TENTH * np.arange(400)
    assert align(trace, times, np.full(400, 50.0)).shift_ns is None
    assert "too few" in str(align(trace, times[:5], np.zeros(5)).why_none)


def test_gap_in_sampling_is_not_evidence() -> None:
    complete = work(9)
    times, values = sampled(complete, S)
    inside = (times > T0 - S + 2 * S) & (times < T0 - S + 5 * S)
    assert align(cut(complete, T0, T0 + 8 * S), times[~inside], values[~inside]).shift_ns is None


def test_time_zones_that_put_the_trace_inside_the_telemetry() -> None:
    # ten minutes of local telemetry that began at 12:00; the trace is from 10:03 UTC: +2:00 only (+2:15 would begin at 09:45 and end 09:55)
    noon = 1_783_000_800 * S // (3600 * S) * 3600 * S
    assert zones_that_fit((noon - 7200 * S + 180 * S, noon - 7200 * S + 190 * S), (noon, noon + 600 * S)) == [120]
    assert zones_that_fit((noon + 30 * 3600 * S,) * 2, (noon, noon + 600 * S)) == []
