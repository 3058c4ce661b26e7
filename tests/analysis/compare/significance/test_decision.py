"""Tests of the verdicts of a comparison: false verdicts, power, and symmetry.

Seeds are fixed, so every figure here is reproducible.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sawtooth.analysis.compare.significance.bootstrap import (
    block_length,
    lag_one_autocorrelation,
    median_change_interval,
    noise_floor,
    relative_difference,
)
from sawtooth.analysis.compare.significance.decision import Verdict, verdict
from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps
from tests.support.paths import SHARED


def steps_like(generator, n, phi, sd, *, spikes=0.03, period=0):
    """Return AR(1) step times of about 100 ms with outliers and periodic checkpoints.

    A share of the steps is longer by an exponentially distributed time (half a step on average). Every ``period`` steps
    a checkpoint takes as long as three steps.
    """
    noise = generator.normal(size=n + 100)
    x = np.zeros(n + 100)
    for i in range(1, n + 100):
        x[i] = phi * x[i - 1] + noise[i] * np.sqrt(1 - phi**2)
    steps = 100 * (1 + sd * x[100:])
    steps = steps * np.where(generator.random(n) < spikes, 1 + generator.exponential(0.5, n), 1.0)
    if period:
        steps[int(generator.integers(period)) :: period] *= 3
    return steps


def measured(steps, *names):
    return MeasuredSteps(tuple(float(s) for s in steps), float(np.mean(steps)), "profile", names)


def shares(draws, n, phi, sd, slow_down=1.0):
    """Return the shares of false (or right) verdicts over ``draws`` pairs.

    Every second pair has checkpoints every 10 steps.
    """
    words = []
    for draw in range(draws):
        generator = np.random.default_rng([draw, n, round(phi * 10), round(sd * 100)])
        period = 10 if draw % 2 else 0
        a, b = (steps_like(generator, n, phi, sd, period=period) for _ in "ab")
        words.append(verdict([measured(a)], [measured(b * slow_down)]).word)
    return {word: words.count(word) / draws for word in ("faster", "slower", "no_difference_shown", "inconclusive")}


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("n", "phi", "sd"), [(50, 0.5, 0.02), (20, 0.8, 0.02), (100, 0.5, 0.05)])
def test_two_hundred_equal_pairs_give_at_most_five_percent_false_verdicts(n, phi, sd):
    found = shares(200, n, phi, sd)
    assert found["faster"] + found["slower"] <= 0.05


@pytest.mark.parametrize(("n", "phi", "sd", "power"), [(50, 0.5, 0.02, 0.85), (100, 0.5, 0.02, 0.9), (20, 0.0, 0.02, 0.75)])
def test_a_planted_five_percent_slow_down_is_found(n, phi, sd, power):
    found = shares(60, n, phi, sd, 1.05)
    assert found["slower"] >= power
    assert found["faster"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("n", [20, 30, 50, 100, 200])
@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("sd", [0.01, 0.02, 0.05, 0.1])
def test_false_verdicts_are_rare_over_the_whole_grid(n, phi, sd):
    found = shares(400, n, phi, sd)
    # 5 % and three times the Monte-Carlo error of 400 draws (1.1 %); the worst cell, (200, 0.8, 0.1), has 7.5 %, most have under 2 %.
    assert found["faster"] + found["slower"] <= 0.083


@pytest.mark.slow
@pytest.mark.parametrize("n", [20, 50, 100])
def test_steps_that_drift_like_a_random_walk_give_no_verdict(n):
    found = shares(400, n, 0.9, 0.05)
    # 20 such steps do not distinguish a drift from a difference: 11 % of the verdicts are wrong. With a plain block
    # bootstrap, 35 % are.
    assert found["faster"] + found["slower"] <= 0.13


def real_series():
    """Return synchronised step times of real runs without the profiler.

    They come from the shared recordings if these are available, else from two short series in this repository.
    """
    remaining = {  # ms; a GPT-2 on an H200 without and with host synchronisation, timed by a stopwatch around torch.cuda.synchronize
        "gpt": [28.53, 28.94, 26.80, 28.58, 28.02, 27.92, 28.91, 29.25, 28.73, 28.62, 29.33, 27.97, 27.29, 27.65, 27.18, 27.09],
        "gpt_sync": [33.62, 32.39, 32.07, 33.70, 29.85, 30.70, 31.17, 30.02, 30.00, 30.01, 30.76, 35.77, 32.84, 32.39, 32.04],
    }
    found = {}
    for path in sorted(SHARED.glob("recordings/*/truth*.json")):
        steps = json.loads(path.read_text()).get("step_s_synced") or []
        if len(steps) >= 12:
            found[path.parent.name] = [1000 * s for s in steps]
    return sorted({**remaining, **found}.items())


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("name", "series"), real_series())
def test_samples_of_one_recording_show_no_difference(name, series):
    # Blocks of five neighbours, drawn with replacement from one recording, make two recordings of 40 steps with nothing changed.
    words = []
    for draw in range(200):
        generator = np.random.default_rng(draw)
        a, b = (np.concatenate([series[s : s + 5] for s in generator.integers(0, len(series) - 4, size=8)]) for _ in "ab")
        words.append(verdict([measured(a)], [measured(b)]).word)
    assert sum(word in ("faster", "slower") for word in words) <= 10


series = st.lists(st.floats(1, 500), min_size=1, max_size=60).map(tuple)


@settings(max_examples=60, deadline=None)
@given(series, series, st.sampled_from(["profile", "user"]), st.floats(1, 500), st.floats(1, 500))
def test_swapping_the_sides_mirrors_the_verdict(a, b, source, best_a, best_b):
    left, right = MeasuredSteps(a, best_a, source, ("a",)), MeasuredSteps(b, best_b, source, ("b",))
    there, back = verdict([left], [right]), verdict([right], [left])
    mirrored = {"faster": "slower", "slower": "faster"}
    assert back.word == mirrored.get(there.word, there.word)
    assert back.confidence == there.confidence
    assert back.noise_floor_share == there.noise_floor_share
    if there.ci95_ms is None:
        assert back.ci95_ms is None
    else:
        assert back.ci95_ms == (-there.ci95_ms[1], -there.ci95_ms[0])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(1, 500), min_size=20, max_size=60))
def test_interval_contains_its_estimate(steps):
    values = np.asarray(steps)
    interval = median_change_interval([values], [values])
    assert (interval.low_ms, interval.change_ms, interval.high_ms) == (0.0, 0.0, 0.0)
    other = median_change_interval([values], [values[::-1] * 1.5])
    assert other.low_ms <= other.change_ms <= other.high_ms


def test_same_recording_on_both_sides_shows_no_difference():
    run = measured([10.0, 11.0, 12.0, 13.0], "f00d")
    found = verdict([run], [run])
    assert (found.word, found.confidence, found.ci95_ms) == ("no_difference_shown", "high", (0.0, 0.0))


def word(a, b):
    return verdict([measured(a, "a")], [measured(b, "b")])


def test_four_steps_that_differ_by_a_tenth_have_low_confidence():
    a, b = [100.0, 101, 102, 103], [115.0, 116, 117, 118]
    found = word(a, b)
    assert (found.word, found.confidence) == ("slower", "low")
    assert "Between these two recordings" in found.why
    assert word(b, a).word == "faster"


def test_few_steps_need_four_per_side_and_separate_ranges():
    assert word([100.0, 101, 102], [150.0, 151, 152]).word == "inconclusive"  # three steps
    assert word([100.0, 100, 101, 101], [108.0, 108, 109, 109]).word == "inconclusive"  # 8 %
    assert word([100.0, 101, 102, 118], [115.0, 116, 130, 140]).word == "inconclusive"  # 115 lies below 118
    assert word([100.0, 100, 100, 100], [110.0, 110, 110, 110]).word == "slower"


def test_one_percent_is_below_the_noise_floor():
    generator = np.random.default_rng(1)
    a = generator.normal(100, 0.1, 60)
    found = word(a, a[::-1] * 1.01)
    assert found.ci95_ms is not None
    assert found.ci95_ms[0] > 0
    assert (found.word, found.confidence) == ("no_difference_shown", "high")


def test_the_spread_of_the_profile_is_centred_on_the_stopwatch():
    # Profiled 40 → 46 ms (slower), stopwatch 32.5 → 26.3 ms (faster): the stopwatch leads.
    a = MeasuredSteps((39.5, 40.0, 40.5, 40.0), 32.5, "user", ("a",))
    b = MeasuredSteps((45.5, 46.0, 46.5, 46.0), 26.3, "user", ("b",))
    found = verdict([a], [b])
    assert (found.word, found.confidence) == ("faster", "low")


def test_different_sources_of_step_time_need_a_tenth():
    a = MeasuredSteps(tuple([100.0, 100.1] * 15), 100.0, "user", ("a",))
    b = MeasuredSteps(tuple([106.0, 106.1] * 15), 106.0, "profile", ("b",))
    assert verdict([a], [b]).word == "no_difference_shown"
    b = MeasuredSteps(tuple([112.0, 112.1] * 15), 112.0, "profile", ("b",))
    assert verdict([a], [b]).word == "slower"


def test_with_three_runs_per_side_runs_are_compared_instead_of_steps():
    def runs(*best):
        return [MeasuredSteps(tuple([value] * 50), value, "profile", (f"{value}",)) for value in best]

    # Means 100 and 106, variances 1 and 1: error √(2/3) = 0.816, 4 degrees of freedom, t = 2.776: 6 ± 2.27 ms.
    found = verdict(runs(99, 100, 101), runs(105, 106, 107))
    assert found.ci95_ms == pytest.approx((3.733, 8.267), abs=0.001)
    assert found.word == "slower"
    # 100 ± 3 ms and 103 ± 3 ms do not show a difference, even with thousands of steps per run.
    assert verdict(runs(97, 100, 103), runs(100.5, 103, 106)).word == "no_difference_shown"


def test_missing_step_time_is_inconclusive_and_names_the_side():
    found = verdict([MeasuredSteps((), None)], [measured([1.0] * 30)])
    assert found.word == "inconclusive"
    assert "A" in found.why


def test_blocks_and_correlation_by_hand():
    # 2 · 64^⅓ = 8 steps. Eight steps contain two and a half blocks of a third. Alternating steps have no positive correlation.
    assert block_length(np.ones(64)) == 8
    assert block_length(np.ones(8)) == 2
    assert lag_one_autocorrelation(np.array([1.0, 2.0] * 20)) == 0.0
    assert lag_one_autocorrelation(np.arange(40.0)) > 0.9


def test_noise_floor_is_the_difference_of_a_recording_from_itself():
    drift = np.r_[np.full(10, 100.0), np.full(10, 104.0)]
    assert noise_floor([drift]) == pytest.approx(0.04)
    assert noise_floor([np.full(5, 100.0), np.full(5, 103.0)]) == pytest.approx(0.03)
    assert noise_floor([drift[:19]]) == 0.0
    assert relative_difference(100, 110) == relative_difference(110, 100) == pytest.approx(0.1)


def test_the_smallest_visible_change_is_found_in_four_of_five_cases():
    generator = np.random.default_rng(5)
    a = steps_like(generator, 100, 0.5, 0.02)
    found: Verdict = word(a, steps_like(generator, 100, 0.5, 0.02))
    assert found.smallest_visible_share is not None
    assert 0.02 < found.smallest_visible_share < 0.06
    assert shares(60, 100, 0.5, 0.02, 1 + found.smallest_visible_share)["slower"] >= 0.7


def test_no_step_is_shorter_than_its_gpu_work():
    # 776 (768 to 784) → 137 ms (55 to 219). B's GPU works 120 ms per step, at the highest clock 2 % less, so at most 784 − 117.6 ms
    # were saved.
    a = MeasuredSteps((776.0,) * 3, 776.0, "estimate", low_ms=768.0, high_ms=784.0)
    b = MeasuredSteps((137.0,) * 3, 137.0, "estimate", low_ms=55.0, high_ms=219.0)
    free, bound = (verdict([a], [replace(b, works_ms=works)]) for works in (None, 120.0))
    assert free.ci95_ms[0] < -700 and bound.ci95_ms == (pytest.approx(-666.4), free.ci95_ms[1])
    mirrored = verdict([replace(b, works_ms=120.0)], [a])
    assert mirrored.ci95_ms == (-bound.ci95_ms[1], -bound.ci95_ms[0])
    assert verdict([a], [replace(b, works_ms=140.0)]).ci95_ms[0] == pytest.approx(0.98 * 137 - 784), (
        "B's own step is never refuted"
    )
    endless = verdict([replace(a, high_ms=None)], [replace(b, works_ms=120.0)])
    assert endless.ci95_ms is None or endless.ci95_ms[0] is None or endless.ci95_ms[0] < -664, "nothing bounds A's step"


@pytest.mark.parametrize(
    ("faster_ms", "confidence", "beside_gpu"), [(45.0, "low", "medium"), (26.0, "medium", "high"), (20.0, "high", "high")]
)
def test_host_program_varies_with_other_load(faster_ms: float, confidence: str, beside_gpu: str) -> None:
    """A difference between host-bound steps must exceed the effect of other load on the host.

    100 ms against 45 is 2.2 times; two recordings of one program differed as much. 100 to 26 is 3.8 times, and the near
    end of its interval is below 3. 100 to 20 is five times.
    """
    rng = np.random.default_rng(5)
    a, b = (
        MeasuredSteps(
            tuple(ms * rng.normal(1, 0.02, 60)),
            ms,
            "marks",
            (name,),
            low_ms=0.9 * ms,
            high_ms=1.1 * ms,
            host_bound=True,
            on_host=True,
        )
        for ms, name in ((100.0, "a"), (faster_ms, "b"))
    )
    judged = verdict([a], [b])
    assert (judged.word, judged.confidence) == ("faster", confidence)
    assert verdict([replace(a, on_host=False)], [replace(b, on_host=False)]).confidence == beside_gpu
