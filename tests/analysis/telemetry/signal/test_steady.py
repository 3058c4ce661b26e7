"""Tests of the steady part, its means and change points, on hand-made recordings."""

from __future__ import annotations

import json
import math
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sawtooth.analysis.telemetry.phases import phases, throttle_bands
from sawtooth.analysis.telemetry.signal.means import mean_over, weighted_mean
from sawtooth.analysis.telemetry.signal.steady import (
    SteadyPart,
    _whole_periods,
    _without_odd_levels,
    find_steady,
    profile_shadow,
    weights_ns,
)
from tests.support.paths import SAMPLES, SHARED
from tests.support.pulses import START_NS

RECORDINGS = [
    path
    for path in (*sorted(SHARED.glob("recordings/*/nvml.jsonl")), *sorted(SAMPLES.glob("*/nvml.jsonl")))
    if "nvml_mean" in path.with_name("truth.json").read_text()
]


def series(*parts: tuple[float, float], spacing_s: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Return samples of (seconds, level) sections."""
    values = np.concatenate([np.full(round(s / spacing_s), level) for s, level in parts])
    return START_NS + (np.arange(len(values)) * spacing_s * 1e9).astype(np.int64), values


def seconds(ns: int | None) -> float:
    assert ns is not None
    return (ns - START_NS) / 1e9


def test_idle_start_and_end_are_left_out() -> None:
    times, values = series((3, 0), (20, 80), (4, 0))
    found = find_steady(times, values)
    # The loop runs from 2.9 s (the last idle sample) to 22.9 s. One second is cut at each end.
    assert seconds(found.start_ns) == pytest.approx(3.9) and seconds(found.end_ns) == pytest.approx(21.9)
    assert weighted_mean(times, values, found) == 80
    assert found.warm_up_ns == 0
    assert [(p.kind, round(seconds(p.start_ns), 1), round(seconds(p.end_ns), 1)) for p in phases(times, values, found)] == [
        ("not_running", 0.0, 2.9),
        ("steady", 2.9, 22.9),
        ("not_running", 22.9, 26.9),
    ]


def test_start_with_another_level_is_warm_up() -> None:
    times, values = series((3, 20), (27, 80))
    found = find_steady(times, values)
    assert seconds(found.start_ns) >= 3.0
    assert weighted_mean(times, values, found) == 80
    assert phases(times, values, found)[0].kind == "warm_up"


def test_longest_stretch_between_pauses_is_used() -> None:
    times, values = series((5, 90), (6, 0), (30, 60), (5, 0), (10, 90))
    found = find_steady(times, values)
    assert weighted_mean(times, values, found) == 60
    assert [round((b - a) / 1e9) for a, b in found.pauses] == [6, 5]
    assert [p.kind for p in phases(times, values, found)] == ["pause", "steady", "pause"]


def test_regular_pauses_are_checkpoints() -> None:
    times, values = series(*([(20, 80), (4, 0)] * 4), (20, 80))
    kinds = [p.kind for p in phases(times, values, find_steady(times, values))]
    assert kinds.count("checkpoint") == 4 and "pause" not in kinds


def test_waits_of_a_sawtooth_are_not_pauses() -> None:
    times, values = series(*([(1, 100), (3, 0)] * 15))
    found = find_steady(times, values)
    assert found.pauses == ()
    assert weighted_mean(times, values, found) == pytest.approx(25, abs=2)


def test_shift_of_level_is_a_change_point_and_noise_is_not() -> None:
    rng = np.random.default_rng(0)
    times, values = series((60, 80), (60, 50))
    values = np.clip(values + 3 * rng.standard_normal(len(values)), 0, 100)
    found = [p for p in phases(times, values, find_steady(times, values)) if p.kind == "level"]
    assert len(found) == 2
    assert seconds(found[0].end_ns) == pytest.approx(60, abs=2)
    for seed in range(10):
        noise = np.clip(60 + 8 * np.random.default_rng(seed).standard_normal(len(times)), 0, 100)
        assert [p.kind for p in phases(times, noise, find_steady(times, noise))] == ["steady"]


def test_periodic_waits_stay_in_the_steady_part() -> None:
    """A checkpoint of 1.5 s after every 0.4 s of work belongs to the loop: 21 % utilization, not 100."""
    times, values = series((1.2, 0), *([(0.4, 98), (1.5, 0)] * 4), (0.4, 98), (2, 0))
    found = find_steady(times, values)
    assert len(found.periods) >= 4
    assert weighted_mean(times, values, found) == pytest.approx(98 * 0.4 / 1.9, abs=1.5)


def test_profile_is_not_a_pause() -> None:
    times, values = series((10, 80), (3, 0), (1, 40), (3, 0), (10, 60))
    shadow = (START_NS + 10 * 10**9, START_NS + 17 * 10**9)
    found = find_steady(times, values, [shadow])
    assert found.pauses == () and weighted_mean(times, values, found) == 80


@pytest.mark.parametrize(
    ("before", "level"), [((7, 33), 98), ((7, 98), 33), ((0.3, 0), 98)], ids=["a search", "a full GPU", "nothing"]
)
def test_marks_limit_the_training_time(before: tuple[float, float], level: float) -> None:
    """A search for kernels before the first step is not training, though it takes longer."""
    times, values = series((1, 0), before, (5, level), (1, 0), (3, 60))
    first = START_NS + round((1 + before[0]) * 1e9)
    part = find_steady(times, values, marked=(first, first + 5 * 10**9))
    assert weighted_mean(times, values, part) == pytest.approx(level, abs=1)


def test_marks_of_another_time_are_ignored() -> None:
    times, values = series((1, 0), (5, 80), (1, 0))
    part = find_steady(times, values, marked=(START_NS - 2 * 10**9, START_NS - 10**9))
    assert weighted_mean(times, values, part) == pytest.approx(80, abs=1)


@settings(deadline=None)
@given(
    level=st.floats(8, 100),
    noise=st.floats(0, 0.05),
    start_up=st.tuples(st.floats(0, 4), st.floats(0, 0.4)),
    evaluation=st.tuples(st.floats(0, 2.5), st.floats(0, 0.4)),
    idle=st.floats(0, 5),
    seed=st.integers(0, 1000),
)
def test_inserted_work_is_cut_or_widens_the_interval(
    level: float, noise: float, start_up: tuple[float, float], evaluation: tuple[float, float], idle: float, seed: int
) -> None:
    """Start-up, evaluation and idle time have other levels than training.

    The result is right within 10 %, or the interval contains the truth.
    """
    rng = np.random.default_rng(seed)
    times, values = series(
        (2, 0), (start_up[0], start_up[1] * level), (6, level), (evaluation[0], evaluation[1] * level), (6, level), (idle, 0)
    )
    values = np.clip(values * (1 + noise * rng.standard_normal(len(values))), 0, 100)
    found = mean_over(times, values, find_steady(times, values))
    assert found is not None
    assert abs(found.value / level - 1) <= 0.1 or found.low <= level <= found.high


def test_no_steady_part_without_work() -> None:
    times, values = series((10, 0))
    found = find_steady(times, values)
    assert found.start_ns is None and found.why_none == "the GPU never worked while it was sampled"
    assert weighted_mean(times, values, found) is None
    assert find_steady(times[:2], values[:2]).why_none == "2 samples are too few"


def test_means_are_weighted_by_time_without_gaps() -> None:
    # 0 s … 1 s at 10 %, a gap of 9 s, then 1 s at 50 %: the gap has the weight of one period, not of nine seconds.
    times = START_NS + np.array([0, 250, 500, 750, 1000, 10_000, 10_250, 10_500, 10_750, 11_000], np.int64) * 1_000_000
    values = np.array([10.0] * 5 + [50.0] * 5)
    complete = SteadyPart(int(times[0]) - 1, int(times[-1]))
    assert weights_ns(times).tolist() == [250_000_000] * 10
    assert weighted_mean(times, values, complete) == 30
    assert weighted_mean(np.repeat(times, 3), np.repeat(values, 3), complete) == 30  # Samples given twice change nothing.
    # Samples that are further apart have a larger weight: 1 s at 0 %, then 3 s at 100 %.
    slow = START_NS + np.array([0, 1, 4], np.int64) * 10**9
    assert weighted_mean(slow, np.array([0.0, 0.0, 100.0]), SteadyPart(int(slow[0]), int(slow[-1]))) == 75


def test_samples_under_the_profiler_are_left_out() -> None:
    times, values = series((10, 50), (5, 100), (10, 50))
    complete = SteadyPart(int(times[0]) - 1, int(times[-1]))
    window = (int(times[100]) - 50_000_000, int(times[149]) + 1)
    assert weighted_mean(times, values, complete, [window]) == 50


def test_profile_affects_preparation_and_writing() -> None:
    # The trace ends at 9.5 s. While it is written, from 10 to 13 s, the GPU is idle.
    times, values = series((10, 80), (3, 0), (10, 80))
    start, end = profile_shadow(times, values, (START_NS + 9 * 10**9, START_NS + 9_500_000_000))
    assert seconds(start) == 8.0 and seconds(end) == pytest.approx(13.5)
    busy = np.full(len(times), 80.0)  # Another process writes the trace, so the GPU is not idle.
    assert seconds(profile_shadow(times, busy, (START_NS + 9 * 10**9, START_NS + 9_500_000_000))[1]) == 10.0


def test_throttling_bands_have_reason_time_and_clock() -> None:
    times, clock = series((1, 1980), (2, 1400), (1, 1980))
    mask = np.where(clock < 1900, 4.0, 0.0)
    mask[0] = 1.0  # Idle time is not a problem.
    (band,) = throttle_bands(times, mask, clock)
    assert band.reason == "power cap" and band.clock_sm_mhz == 1400
    assert (band.end_ns - band.start_ns) == pytest.approx(2e9, rel=0.01)
    both = throttle_bands(times, np.where(clock < 1900, 4.0 + 0x20, 0.0), clock)
    assert {b.reason for b in both} == {"power cap", "software thermal slowdown"}


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda p: p.parent.name)
def test_means_agree_with_the_independent_truth(path: Path) -> None:
    # The means of truth.json cover the stopwatch's window, which begins with the loop.
    rows = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    truth = json.loads(path.with_name("truth.json").read_text())["nvml_mean"]
    times = np.array([r["t_ns"] for r in rows], np.int64)
    busy = np.array([r.get("gpm_graphics", math.nan) for r in rows], float)
    steady = find_steady(times, busy)
    profiled = json.loads(path.with_name("truth.json").read_text()).get("profiled_window_ns")
    shadow = [profile_shadow(times, busy, tuple(profiled))] if profiled else []
    for key in ("gpu_util", "gpm_tensor_any", "gpm_sm", "gpm_dram_bw"):
        mean = weighted_mean(times, np.array([r.get(key, math.nan) for r in rows], float), steady, shadow)
        assert mean == pytest.approx(truth[key], abs=2.0), key


def test_day_with_a_slow_period_is_read_quickly() -> None:
    values = np.tile(np.repeat([90.0, 0.0], [40, 20]), 14_400)  # 4 s of work in every 6 s, at 10 Hz, for 24 hours
    times = START_NS + np.arange(len(values), dtype=np.int64) * 10**8
    starts = times[::60]
    begin = time.process_time()
    periods = _whole_periods(times, values, starts)
    assert time.process_time() - begin < 2.0  # If each period read all samples, this would take 18 s.
    assert periods == tuple(starts.tolist())


def test_clock_that_jumps_by_years_needs_no_memory() -> None:
    """Levels of half-second parts over 36 years would take 25 GB."""
    times = START_NS + np.arange(60, dtype=np.int64) * 10**8
    times[30:] += 36 * 365 * 86_400 * 10**9
    part = SteadyPart(int(times[0]), int(times[-1]), runs_ns=(int(times[0]), int(times[-1])))
    tracemalloc.start()
    _without_odd_levels(times, np.where(np.arange(60) % 7 < 5, 90.0, 80.0), part)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 100e6
