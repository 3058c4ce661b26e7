"""Tests of the sawtooth on signals with a known period.

It is found within tolerance or reported as not found, never below the aliasing limit, and never in noise.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sawtooth.analysis.telemetry.signal.sawtooth import MIN_SAMPLES, find_sawtooth, renewal
from sawtooth.analysis.telemetry.signal.steady import find_steady, profile_shadow
from tests.support.paths import RECORDINGS, SAMPLES, SHARED
from tests.support.pulses import START_NS, pulse_train

FILES = [
    *sorted(SHARED.glob("recordings/*/nvml.jsonl")),
    *sorted(SAMPLES.glob("*/nvml.jsonl")),
    *sorted(RECORDINGS.glob("*/nvml.jsonl")),
]
# as planted: loader, torch.save every 2nd and 25th, an epoch of six steps
STEPS_OF_A_TOOTH = {"resnet_starved": 1, "checkpointing_io": 2, "checkpoint_unseen": 25, "loader_restarts": 6}


def regular(values: list[float], spacing_s: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    return START_NS + (np.arange(len(values)) * spacing_s * 1e9).astype(np.int64), np.array(values, float)


def test_computed_sawtooth_is_recognised() -> None:
    # 3 busy and 7 idle samples of 0.1 s: a period of 1 s, duty 30 %, from 0 to 100.
    found = find_sawtooth(*regular(([100] * 3 + [0] * 7) * 20))
    assert found.period_s == pytest.approx(1.0, rel=0.01)
    assert (found.duty, found.depth, found.high, found.low, found.mean) == (0.3, 100, 100, 0, 30)
    assert found.confidence == "high" and found.cycles == pytest.approx(19.9, rel=0.01)
    assert found.shortest_visible_s == pytest.approx(0.2)
    assert found.alias_periods_s == ()


def test_harmonics_are_not_the_period() -> None:
    # A pulse of one sample in ten has harmonics at 1/2, 1/3, 1/4 and 1/5 of its period, all nearly as strong.
    found = find_sawtooth(*regular(([100] + [0] * 9) * 30))
    assert found.period_s == pytest.approx(1.0, rel=0.01)


def test_a_mirrored_signal_has_the_same_period() -> None:
    found = find_sawtooth(*regular(([0] + [100] * 9) * 30))
    assert found.period_s == pytest.approx(1.0, rel=0.01)
    assert found.duty == pytest.approx(0.9)


@pytest.mark.sweep(20)
@pytest.mark.parametrize("seed", range(60))
def test_random_sawtooth_is_found_or_reported_as_uncertain(seed: int) -> None:
    rng = np.random.default_rng(seed)
    spacing = float(rng.choice([0.02, 0.1, 1.0, 15.0]))
    period = spacing * float(rng.uniform(2.2, 40))
    times, values = pulse_train(
        rng,
        period_s=period,
        duty=float(rng.uniform(0.08, 0.92)),
        samples=max(int(rng.choice([150, 400])), int(12 * period / spacing)),
        spacing_s=spacing,
        noise=float(rng.choice([0, 1, 4])),
        jitter=float(rng.choice([0, 0.01, 0.03])),
        high=float(rng.choice([100, 80, 60, 35])),
    )
    found = find_sawtooth(times, values)
    if found.period_s is None:
        assert found.why_none
    else:
        assert found.period_s == pytest.approx(period, rel=0.05)
        assert found.shortest_visible_s is not None and found.period_s >= found.shortest_visible_s


def test_clear_sawtooth_is_found_nearly_always() -> None:
    missed = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        period = 0.1 * float(rng.uniform(3.5, 30))
        found = find_sawtooth(
            *pulse_train(rng, period_s=period, duty=float(rng.uniform(0.1, 0.45)), samples=400, noise=1, jitter=0.01)
        )
        if found.period_s is None:
            missed.append((seed, period, found.why_none))
    assert len(missed) <= 2, missed


@pytest.mark.sweep(20)
@pytest.mark.parametrize("seed", range(60))
def test_no_period_below_the_aliasing_limit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times, values = pulse_train(
        rng,
        period_s=0.1 * float(rng.uniform(0.25, 1.9)),
        duty=float(rng.uniform(0.08, 0.92)),
        samples=int(rng.choice([120, 300, 600])),
        noise=float(rng.choice([0, 1, 4])),
        jitter=float(rng.choice([0, 0.01, 0.03])),
        high=float(rng.choice([100, 80, 60, 35])),
    )
    found = find_sawtooth(times, values)
    assert found.period_s is None, (found.period_s, found.confidence)


def test_slow_samples_of_a_fast_sawtooth_list_possible_periods() -> None:
    # 0.289 s seen through windows of 0.1 s every 0.2 s (NVML's utilization on an H200) looks like 1/(1/0.2 − 1/0.289) = 0.65 s.
    rng = np.random.default_rng(0)
    times, values = pulse_train(rng, period_s=0.289, duty=0.11, samples=300, spacing_s=0.2, window_s=0.1, sampling_jitter=0)
    strict = find_sawtooth(times, values, windows_tile=False)
    assert strict.period_s is None and strict.why_none is not None and "too close" in strict.why_none
    assert any(p == pytest.approx(0.289, rel=0.02) for p in strict.alias_periods_s)
    # So slow a period is reported, but with the faster ones that look the same, and with lower confidence.
    times, values = pulse_train(rng, period_s=1.5, duty=0.3, samples=300, spacing_s=0.2, window_s=0.1)
    found = find_sawtooth(times, values, windows_tile=False)
    assert found.period_s == pytest.approx(1.5, rel=0.02) and found.confidence == "medium"
    assert any(p == pytest.approx(1 / (1 / 0.2 - 1 / 1.5), rel=0.02) for p in found.alias_periods_s)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("kind", ["white", "autoregressive", "telegraph", "bursts"])
def test_noise_has_no_period(kind: str) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n = int(rng.choice([60, 150, 400]))
        if kind == "white":
            values = 30 + 25 * rng.standard_normal(n)
        elif kind == "autoregressive":
            values, state = np.zeros(n), 0.0
            for i in range(n):
                state = 0.8 * state + rng.standard_normal()
                values[i] = 30 + 25 * state
        elif kind == "telegraph":
            edges = np.cumsum(rng.exponential(4, n).astype(int) + 1)
            values = 100.0 * (np.searchsorted(edges, np.arange(n)) % 2)
        else:
            values = np.where(rng.random(n) < 0.2, rng.uniform(20, 100, n), 0)
        found = find_sawtooth(*regular(np.clip(values, 0, 100).tolist()))
        assert found.period_s is None, (kind, seed, found)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([100.0] * 100, "stays at 100 %"),
        ([97.0, 100.0] * 50, "stays between 97 and 100 %"),
        ([78, 90, 75, 88, 76, 89, 77] * 20, "and has no low stretches"),
        ([0, 100] * 5, "too few"),
        ([float("nan")] * 100, "too few"),
    ],
)
def test_missing_period_has_a_reason(values: list[float], why: str) -> None:
    found = find_sawtooth(*regular(values))
    assert found.period_s is None and found.why_none is not None and why in found.why_none


def test_irregular_sampling_and_gaps_do_not_change_the_period() -> None:
    rng = np.random.default_rng(1)
    times, values = pulse_train(rng, period_s=0.7, duty=0.3, samples=600, sampling_jitter=0.15)
    keep = np.ones(600, bool)
    keep[200:260] = False
    keep[400:405] = False
    found = find_sawtooth(times[keep], values[keep])
    assert found.period_s == pytest.approx(0.7, rel=0.02)
    shuffled = rng.permutation(np.flatnonzero(keep))
    assert find_sawtooth(times[shuffled], values[shuffled]).period_s == found.period_s


def test_duplicate_samples_do_not_change_the_period() -> None:
    times, values = pulse_train(np.random.default_rng(2), period_s=0.7, duty=0.3, samples=200)
    assert find_sawtooth(np.repeat(times, 2), np.repeat(values, 2)) == find_sawtooth(times, values)


def test_steps_of_a_slow_counter_are_recognised() -> None:
    slow = np.random.default_rng(3).uniform(10, 90, 60)
    assert renewal(np.repeat(slow, 2)) == 2
    assert renewal(np.repeat(slow, 5)) == 5
    assert renewal(slow) == 1
    assert renewal(np.array(([100.0] * 4 + [0.0] * 6) * 20)) == 1  # An idle or full GPU has constant samples.


def test_slow_sawtooth_in_a_long_recording() -> None:
    times, values = pulse_train(np.random.default_rng(4), period_s=30.0, duty=0.4, samples=6000, noise=2)
    assert find_sawtooth(times, values).period_s == pytest.approx(30.0, rel=0.03)


def test_drifting_period_is_the_mean_period() -> None:
    # Teeth of 9 samples, and every fifth one of 7: (4 × 9 + 7) / 5 = 8.6 samples = 0.86 s, though 0.9 s is the most frequent.
    teeth = [tooth for _ in range(14) for tooth in (9, 9, 9, 9, 7)]
    found = find_sawtooth(*regular([value for tooth in teeth for value in [100.0] * 3 + [0.0] * (tooth - 3)]))
    assert found.period_s == pytest.approx(0.86, rel=0.005)


def test_too_few_samples_are_reported() -> None:
    assert (
        find_sawtooth(*regular([0.0, 100.0] * (MIN_SAMPLES // 2 - 1))).why_none
        == f"{MIN_SAMPLES - 2} samples are too few (at least {MIN_SAMPLES} are needed)"
    )


# Recordings whose step time a stopwatch measured


def activity(path: Path) -> tuple[np.ndarray, np.ndarray]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [r for r in rows if r.get("gpm_graphics") is not None]
    return np.array([r["t_ns"] for r in rows], np.int64), np.array([r["gpm_graphics"] for r in rows], float)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.parent.name)
def test_periods_of_recordings_with_known_truth(path: Path) -> None:
    times, values = activity(path)
    name, truth = path.parent.name, json.loads(path.with_name("truth.json").read_text())
    steady = find_steady(times, values)
    keep = steady.mask(times)
    if "profiled_window_ns" in truth:
        start, end = profile_shadow(times, values, tuple(truth["profiled_window_ns"]))
        keep &= (times < start) | (times > end)
    found = find_sawtooth(times[keep], values[keep])
    if name == "resnet_2workers":  # Two workers finish together: two steps of the 0.124 to 0.140 s that the stopwatch says.
        assert found.period_s == pytest.approx(0.289, rel=0.05)
    elif name in STEPS_OF_A_TOOTH:
        assert found.period_s == pytest.approx(STEPS_OF_A_TOOTH[name] * truth["step_s_pipelined"], rel=0.05)
    else:
        assert found.period_s is None, name


@pytest.mark.parametrize(("between", "period"), [((1.8, 1.9, 1.9, 2.0), 1.9), ((1.8, 2.5, 1.2, 2.1), None), ((1.9, 1.9), None)])
def test_few_equal_bursts_have_a_period(between: tuple[float, ...], period: float | None) -> None:
    # There is a checkpoint every tenth step: bursts of 0.25 s, each up to a tenth of a period early or late.
    starts = np.cumsum([0.0, *between])
    times = np.arange(0, starts[-1], 0.1)
    since = times - starts[np.searchsorted(starts, times, side="right") - 1]
    found = find_sawtooth(
        (times * 1e9).astype(np.int64), np.where(since < 0.25, 98.0, 1.0), bursts=[int(s * 1e9) for s in starts]
    )
    assert found.period_s == (None if period is None else pytest.approx(period))
    assert found.confidence == (None if period is None else "low")


def test_error_of_a_counted_period_is_that_of_its_ends_if_it_is_regular() -> None:
    # 20 periods of 1 s: 19 times between rises, and both ends are known to one sample of 0.1 s: 1.645 × 0.1 ÷ √6 ÷ 19 = 3.5 ms.
    found = find_sawtooth(*regular(([100] * 3 + [0] * 7) * 20))
    assert found.error_s == pytest.approx(1.645 * 0.1 / 6**0.5 / 18, rel=0.06)
    # Times of 0.9 and 1.1 s in turn scatter by 0.1 s around the same mean: 1.73 × 0.1 ÷ √19 = 40 ms more.
    uneven = find_sawtooth(*regular(([100] * 3 + [0] * 6 + [100] * 3 + [0] * 8) * 10))
    assert uneven.period_s == pytest.approx(1.0, rel=0.01)
    assert uneven.error_s == pytest.approx(1.73 * 0.1 / 19**0.5, rel=0.1)
