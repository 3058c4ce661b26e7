"""Tests of the verdicts of a comparison at their thresholds, with the arithmetic in comments."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sawtooth.analysis.compare.significance import decision as words
from sawtooth.analysis.compare.significance import reasons
from sawtooth.analysis.compare.significance.decision import verdict
from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps
from tests.support.measured_sides import bounded, random_steps, run, runs_with_step_times


def test_comparison_of_runs_by_hand():
    # Variances 1 and 1 over 3 runs: error sqrt(1/3 + 1/3) = 0.8165; 4 degrees of freedom, t = 2.7764: half 2.2670.
    # Smallest: max(2 % + 0.84 * 0.8165 / 100, (2.2670 + 0.84 * 0.8165) / 100) = 2.953 %.
    found = verdict(runs_with_step_times(99, 100, 101), runs_with_step_times(105, 106, 107))
    assert (found.word, found.confidence) == ("slower", "medium")
    assert found.ci95_ms == pytest.approx((6 - 2.26696, 6 + 2.26696), abs=1e-4)
    assert found.smallest_visible_share == pytest.approx(0.029528, abs=1e-6)
    assert verdict(runs_with_step_times(105, 106, 107), runs_with_step_times(99, 100, 101)).word == "faster"
    assert verdict(runs_with_step_times(99, 100, 100, 101), runs_with_step_times(105, 106, 106, 107)).confidence == "high"
    assert verdict(runs_with_step_times(99, 100, 100, 101), runs_with_step_times(105, 106, 107)).confidence == "medium"


def test_unequal_variances_reduce_the_degrees_of_freedom():
    # Variances 1 and 9: parts 1/3 and 3, error sqrt(10/3) = 1.8257; freedom 1 / (0.1^2/2 + 0.9^2/2) = 2.4390; t = 3.6400: half 6.646.
    found = verdict(runs_with_step_times(99, 100, 101), runs_with_step_times(117, 120, 123))
    assert (found.ci95_ms[1] - found.ci95_ms[0]) / 2 == pytest.approx(stats.t.ppf(0.975, 1 / 0.41) * (10 / 3) ** 0.5, rel=1e-9)
    assert found.word == "slower"


def test_runs_without_spread():
    found = verdict(runs_with_step_times(100, 100, 100), runs_with_step_times(102, 102, 102))
    assert (found.word, found.ci95_ms, found.smallest_visible_share) == ("slower", (2.0, 2.0), 0.02)  # Exactly the 2 %.
    assert verdict(runs_with_step_times(100, 100, 100), runs_with_step_times(101.9, 101.9, 101.9)).word == "no_difference_shown"
    none = verdict(runs_with_step_times(100, 100, 100), runs_with_step_times(101, 101, 101))
    assert none.confidence == "high" and "within the 2.0 %" in none.why


def test_runs_with_little_spread_are_limited_by_two_percent():
    # Variances 0.0001: error sqrt(2 * 0.0001 / 3) = 0.008165, far below 2 %: 0.02 + 0.84 * 0.008165 / 100.
    found = verdict(runs_with_step_times(99.99, 100, 100.01), runs_with_step_times(104.99, 105, 105.01))
    assert found.smallest_visible_share == pytest.approx(0.02 + 0.84 * (2e-4 / 3) ** 0.5 / 100, rel=1e-9)


def test_different_medians_and_equal_stopwatches_are_inconclusive():
    a = random_steps(100)
    a[::10] *= 3
    found = verdict([run(a, best=100.0, source="user")], [run(random_steps(100, seed=2), best=100.0, source="user")])
    assert found.word == "inconclusive"


def test_two_runs_per_side_are_judged_by_their_steps():
    two = (
        [run(random_steps(100, seed=s), name=f"a{s}") for s in (1, 2)],
        [run(random_steps(110, seed=s), name=f"b{s}") for s in (3, 4)],
    )
    found = verdict(*two)
    assert found.word == "slower" and "between these 2 and 2 recordings" in found.why


def test_short_recordings_by_hand():
    # Medians 101.5 and 190.5; 130 - 101.5 + 190.5 - 150 = 69 against 1.5 + 1.5 = 3: 69 / 101.5 = 68 %.
    found = verdict([run([100, 101, 102, 130])], [run([150, 190, 191, 192])])
    assert (found.word, found.confidence) == ("slower", "low")
    assert found.smallest_visible_share == pytest.approx(69 / 101.5)
    mirrored = verdict([run([150, 190, 191, 192])], [run([100, 101, 102, 130])])
    assert mirrored.word == "faster" and mirrored.smallest_visible_share == pytest.approx(69 / 101.5)
    tight = verdict([run([100.0] * 4)], [run([110.0] * 4)])  # exactly 10 %
    assert (tight.word, tight.smallest_visible_share) == ("slower", 0.1)
    below = verdict([run([100.0] * 4)], [run([109.0] * 4)])
    assert below.word == "inconclusive" and "9.0 % is below the 10 %" in below.why
    touching = verdict([run([100, 100, 100, 115])], [run([115, 130, 130, 130])])
    assert touching.word == "inconclusive" and "overlap" in touching.why
    assert touching.why.startswith("4 and 4 counted steps are too few to show how steps vary")


def test_smallest_visible_change_is_reported():
    # Medians 100 and 110 ms; 2100 - 100 + 110 - 90 = 2020 ms apart, 20 times the median: 2020 / 100 + 1 = a factor of 21.
    wild = verdict([run([90, 100, 100, 2100])], [run([90, 110, 110, 130])])
    assert wild.smallest_visible_share == pytest.approx(20.2)
    assert "only changes by a factor of 21 or more" in wild.why
    assert "%" not in wild.why.removesuffix(words.OF_ESTIMATES)
    # 150 - 100 + 105 - 90 = 65 %. A change of less than 100 % is a percentage without decimals.
    assert "reliably show only changes of 65 % or more" in verdict([run([90, 100, 100, 150])], [run([90, 105, 105, 120])]).why


def test_number_of_steps_needed_for_a_change():
    few, many = [100.0] * 3, [150.0] * 3
    assert verdict([run(few, recorded=4)], [run(many, recorded=4)]).word == "slower"
    assert verdict([run(few, recorded=3)], [run(many, recorded=4)]).word == "inconclusive"
    assert verdict([run(few[:2], recorded=4)], [run(many, recorded=4)]).word == "inconclusive"
    assert verdict([run(few)], [run(many)]).why.startswith("3 recorded steps are too few: a verdict needs 4 per side")
    first_left_out = verdict([run(few[:2], recorded=5)], [run(many, recorded=5)])
    assert first_left_out.why.startswith("2 counted steps are too few: a verdict needs 3 per side")
    assert words.OF_ESTIMATES in verdict([run(random_steps(100, 19))], [run(random_steps(150, 40))]).why
    assert verdict([run(random_steps(100, 20))], [run(random_steps(150, 40))]).ci95_ms is not None


def test_median_and_mean_that_disagree_are_inconclusive():
    # Every tenth step of A takes three times as long: mean 120, median 100. B: 106 throughout. The median rises, the mean falls.
    a = random_steps(100)
    a[::10] *= 3
    found = verdict([run(a)], [run(random_steps(106, seed=2))])
    assert found.word == "inconclusive" and "opposite directions" in found.why


def test_a_few_long_steps_move_the_mean_only():
    b = random_steps(100, seed=2)
    b[::10] *= 3
    found = verdict([run(random_steps(100))], [run(b)])
    assert (found.word, found.confidence) == ("no_difference_shown", "low") and "because of a few long steps" in found.why


def test_drifting_steps_have_too_few_independent_stretches():
    found = verdict([run(np.linspace(100, 100.5, 30))], [run(np.linspace(150, 150.5, 30))])
    assert (found.word, found.confidence) == ("slower", "low")
    assert found.ci95_ms is not None and "independent stretches" in found.why and found.why[0].isupper()


@pytest.mark.parametrize(("smallest", "confidence"), [(0.05, "high"), (0.0501, "medium"), (0.1, "medium"), (0.1001, "low")])
def test_confidence_of_no_change(smallest, confidence):
    assert words.no_change_confidence(smallest) == confidence


def test_reason_for_no_difference():
    assert reasons.why_none(0.5, 0.02, includes_zero=True) == "the 95 % interval of the change includes 0."
    assert (
        reasons.why_none(0.0123, 0.02, includes_zero=False)
        == "a change of 1.2 % is within the 2.0 % by which such recordings differ without any change."
    )


def test_a_side_without_a_step_time_is_named():
    known, unknown, zero = run([1.0] * 30), MeasuredSteps((), None), MeasuredSteps((0.0,) * 30, 0.0)
    for a, b, side in ((unknown, known, "A"), (known, unknown, "B"), (zero, known, "A"), (known, zero, "B")):
        found = verdict([a], [b])
        assert (found.word, found.confidence, found.why) == ("inconclusive", "low", f"No step time is known for {side}.")
        assert (found.noise_floor_share, found.smallest_visible_share, found.ci95_ms) == (0.0, None, None)
    assert words._mean_best([known, unknown]) is None and words._mean_best([run([2.0]), run([4.0])]) == 3.0


def test_steps_of_zero_length_cannot_be_compared():
    half = run([0.0] * 20 + [4.0] * 10, best=2.0, source="user")
    found = verdict([half], [run([2.0] * 30, source="user")])
    assert found.word == "inconclusive" and "no time" in found.why
    assert verdict([run([2.0] * 30, source="user")], [half]).word == "inconclusive"


def test_the_same_recordings_show_no_difference_and_unnamed_ones_are_compared():
    one, two = run([1.0] * 30, name="x"), run([2.0] * 30, name="y")
    found = verdict([one, two], [two, one])
    assert (found.word, found.confidence, found.ci95_ms, found.noise_floor_share) == (
        "no_difference_shown",
        "high",
        (0.0, 0.0),
        0.0,
    )
    assert verdict([one], [two]).word == "slower"
    assert verdict([run([1.0] * 30)], [run([2.0] * 30)]).word == "slower"  # Without names, they are not the same.


def test_half_a_millisecond_is_a_step_time():
    assert verdict([run([0.5] * 30)], [run([0.75] * 30)]).word == "slower"


def test_a_change_of_exactly_two_percent_counts():
    found = verdict([run([100.0] * 30)], [run([102.0] * 30)])
    assert (found.word, found.confidence, found.ci95_ms) == ("slower", "medium", (2.0, 2.0))


def test_smaller_change_counts_for_few_steps():
    # The means are 100 and 119.25, the medians 100 and 109. The medians differ by 9 %, which is below the limit of 10 %.
    assert verdict([run([100.0] * 4)], [run([109, 109, 109, 150])]).word == "inconclusive"


def test_comparison_of_runs_needs_three_on_both_sides():
    three = [run(random_steps(100, seed=s), name=f"a{s}") for s in (1, 2, 3)]
    assert "between these 3 and 1 recordings" in verdict(three, [run(random_steps(110, seed=4), name="b")]).why


def test_a_run_without_a_name_is_not_the_same_recording():
    sides = [run(random_steps(100), name="x"), run(random_steps(100, seed=2))]
    assert verdict(sides, sides).why != "Both sides are the same recording."


def test_stopwatch_without_steps_is_inconclusive():
    found = verdict([MeasuredSteps((), 5.0, "user")], [run([5.0] * 30)])
    assert (found.word, found.confidence) == ("inconclusive", "low") and found.why.startswith("0 recorded steps are too few")


def test_the_reason_says_which_sides_have_no_steps():
    a, b = bounded(10.0, 9.0, 11.0, "a", steps=0), bounded(20.0, 19.0, 21.0, "b", steps=0)
    assert verdict([a], [b]).why.startswith("Neither side has recorded steps.")
    assert verdict([a], [bounded(20.0, 19.0, 21.0, "b")]).why.startswith("One side has no recorded steps.")


def test_no_change_says_whether_the_interval_contains_zero():
    assert "includes 0" in verdict([run(random_steps(100))], [run(random_steps(100, seed=2))]).why
    assert "within the 2.0 %" in verdict([run(random_steps(100))], [run(random_steps(100)[::-1] * 1.015)]).why
