"""Tests of the intervals of a comparison's step times, with the arithmetic in comments."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sawtooth.analysis.compare.significance import decision as words
from sawtooth.analysis.compare.significance import reasons
from sawtooth.analysis.compare.significance.bootstrap import median_change_interval
from sawtooth.analysis.compare.significance.decision import verdict
from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps
from tests.support.measured_sides import bounded, random_steps, run, runs_with_step_times


@pytest.mark.parametrize(("change", "word", "confidence"), [(1.05, "slower", "medium"), (1.12, "slower", "high"), (0.9, "faster", "high"), (1.015, "no_difference_shown", "high")])  # fmt: skip
def test_intervals_and_their_confidence(change, word, confidence):
    a = random_steps(100)
    b = a[::-1] * change
    found = verdict([run(a)], [run(b)])
    assert (found.word, found.confidence) == (word, confidence)
    interval = median_change_interval([a], [b])
    assert found.ci95_ms == (interval.low_ms, interval.high_ms)
    error = interval.half_width_ms / 1.96 / min(np.median(a), np.median(b))
    assert found.smallest_visible_share == pytest.approx(max(0.02, 1.96 * error) + 0.84 * error)


@pytest.mark.parametrize(("sources", "floor"), [(("user", "user"), 0.0), (("user", "profile"), 0.1), (("telemetry", "telemetry"), 0.1), (("estimate", "estimate"), 0.0)])  # fmt: skip
def test_noise_floor_of_each_source(sources, floor):
    assert words._source_floor([run([1.0], source=sources[0])], [run([1.0], source=sources[1])]) == floor


def test_steps_are_centred_on_the_best_step_time():
    assert run([1.0, 3.0], best=4.0, source="user").steps_at_best().tolist() == [2.0, 6.0]
    assert run([1.0, 3.0], best=4.0).steps_at_best().tolist() == [1.0, 3.0]
    assert MeasuredSteps((1.0, 3.0), None, "user").steps_at_best().tolist() == [1.0, 3.0]
    assert run([0.0, 0.0], best=4.0, source="user").steps_at_best().tolist() == [0.0, 0.0]
    assert run([], best=4.0, source="user").steps_at_best().tolist() == []
    assert run([1.0] * 3).length == 3 and run([1.0] * 3, recorded=5).length == 5


def test_with_few_steps_the_interval_is_the_95_percent_interval_of_the_step_times():
    # 100 (90 … 110) → 70 (66 … 76), 90 % each: √(10² + 4²) = 10.77 below and √(10² + 6²) = 11.66 above, × 1.96 / 1.645.
    # Intervals of telemetry are too wide: only 0.65 of them is used if the host limits the step, otherwise 0.5.
    found = verdict(
        *([replace(run, host_bound=True)] for run in (bounded(100.0, 90.0, 110.0, "a"), bounded(70.0, 66.0, 76.0, "b")))
    )
    to_95 = 0.65 * 1.959964 / 1.644854
    assert found.ci95_ms == pytest.approx((-30 - to_95 * 116**0.5, -30 + to_95 * 136**0.5), abs=1e-4)
    # At least 30 − 9.0 = 21 ms of 70 are saved, 30 %. A host's own speed may differ by more from run to run.
    assert (found.word, found.confidence) == ("faster", "low")
    assert "widened to 95 %" in found.why
    assert "profiled steps scaled to the run's own" in found.why  # The page shows the recorded ranges, which may overlap.


def test_uncertain_step_times_withdraw_the_verdict():
    # 100 (60 … 140) → 70 (50 … 110): 30 ms of change, ± 53 ms. Only the steps do not overlap.
    a, b = bounded(100.0, 60.0, 140.0, "a"), bounded(70.0, 50.0, 110.0, "b")
    other_source = bounded(70.0, 50.0, 110.0, "b", source="estimate")
    found = verdict([a], [other_source])
    assert (found.word, found.confidence) == ("inconclusive", "low")
    assert "not known well enough" in found.why
    assert verdict([a], [b]).answer == "cannot_tell"  # The errors of two recordings of one source are independent.


def test_unbounded_end_of_the_interval_stays_open():
    open_b = verdict([bounded(100.0, 95.0, 105.0, "a")], [bounded(70.0, 66.0, None, "b")])
    assert open_b.ci95_ms is not None
    assert open_b.ci95_ms[0] == pytest.approx(-30 - 0.5 * 1.959964 / 1.644854 * 41**0.5, abs=1e-4)
    assert (open_b.ci95_ms[1], open_b.word) == (None, "inconclusive")
    assert "One side's step time has no upper limit" in open_b.why


def test_many_steps_do_not_narrow_an_estimate():
    a, b = (
        MeasuredSteps(
            tuple(random_steps(level, seed=seed)), level, "estimate", (name,), low_ms=0.6 * level, high_ms=1.6 * level
        )
        for level, seed, name in ((100.0, 1, "a"), (80.0, 2, "b"))
    )
    assert verdict([a], [b]).answer == "cannot_tell"
    alone = [MeasuredSteps(run.steps_ms, run.best_ms, "profile", run.recordings) for run in (a, b)]
    assert (verdict(alone[:1], alone[1:]).word, verdict(alone[:1], alone[1:]).confidence) == ("faster", "high")


@pytest.mark.parametrize("steps", [1, 3, 4, 19])
def test_every_pair_with_step_times_has_an_interval(steps):
    found = verdict([run([10.0] * steps, name="a")], [run([9.0] * steps, name="b")])
    assert found.ci95_ms is not None
    assert found.ci95_ms[0] < -1.0 < found.ci95_ms[1]


def test_run_without_profiled_steps_has_no_scatter():
    # Marks alone have no device steps. The interval is the other run's, and the step time is from all runs of the side.
    profiled, marked = run(random_steps(100)), run([], best=100.0, source="marks", recorded=60)
    after = run(random_steps(80, seed=2))
    alone, both = verdict([profiled], [after]), verdict([profiled, marked], [after])
    assert alone.word == both.word == "faster"
    assert both.ci95_ms == pytest.approx((-20, -20), abs=2.5)
    assert verdict([marked], [after]).word == "inconclusive"


def test_the_number_of_runs_that_a_change_needs_is_stated():
    # 2 · ((1.96 + 0.84) · 0.1 ÷ 0.15)² = 6.97 runs, and one more because the spread is estimated.
    assert (reasons.runs_needed(0.1, 0.15), reasons.runs_needed(0.1, 0.3), reasons.runs_needed(0.01, 0.05)) == (8, 3, 2)
    noisy = runs_with_step_times(90, 100, 110), runs_with_step_times(89.9, 99.9, 109.9)
    found = verdict(*noisy)
    # The standard deviation is 10 of 100 ms.
    assert found.word == "no_difference_shown"
    assert (
        "Runs of one side differ by 10.0 %: record about 8 runs per side for a change of 15 % or 64 runs per side for a change of 5 %."
        in found.why
    )
