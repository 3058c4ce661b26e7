"""Tests of the limits of a comparison: they agree with the confidence of its verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sawtooth.analysis.compare.comparison import Comparison, compare
from sawtooth.app.charts import poster_bars
from sawtooth.app.charts.waterfall import WaterfallBar
from sawtooth.app.words.comparisons import comparison as words
from sawtooth.app.words.comparisons import intervals, limits
from tests.support.measured_sides import bounded
from tests.support.run_results import run_of, side

ALONE = "this alone can make a difference of 10\u00a0% or more"


def of_two_sources(a: tuple[float, float, float], b: tuple[float, float, float]) -> Comparison:
    """Compare a step time from telemetry with one from the profile; each is ms, low and high."""
    sides = []
    for name, source, (ms, low, high) in (("a", "telemetry", a), ("b", "profile", b)):
        run = run_of(name * 16, best_ms=ms, source=source)
        sides.append(replace(side(run), measured=(bounded(ms, low, high, name, source),)))
    return compare(*sides)


def test_a_certain_verdict_is_not_called_uncertain_below_it() -> None:
    """A fivefold change has high confidence, so times that may differ by 10 % are no reason against it."""
    clear = of_two_sources((776.0, 730.0, 820.0), (157.0, 150.0, 165.0))
    sentence = next(line for line in limits.sentences(clear) if line.startswith("Source of the step time differs"))
    assert "High confidence" in words.below(clear)
    assert ALONE not in sentence and "the change is far larger" in sentence and "telemetry" in sentence
    assert "10\u00a0% and more" not in words.why_sure(clear) and "at least twice as large" in words.why_sure(clear)


def test_a_small_change_keeps_its_limit() -> None:
    small = of_two_sources((100.0, 98.0, 102.0), (94.0, 92.0, 96.0))
    assert "High confidence" not in words.below(small)
    assert any(ALONE in sentence for sentence in limits.sentences(small))


@pytest.mark.parametrize(("a", "b", "stated"), [(776.0, 157.0, "4.94\u00a0× as fast"), (157.0, 776.0, "4.94\u00a0× as long")])
def test_the_picture_states_the_ratio_of_the_headline(a: float, b: float, stated: str) -> None:
    found = of_two_sources((a, a * 0.95, a * 1.05), (b, b * 0.95, b * 1.05))
    assert intervals.stated_ratio(found) == stated
    assert stated in words.headline(found)
    bars = [WaterfallBar("other_compute", None, a, b)]
    first, second = poster_bars.both_steps(bars, dark=False, ratio=stated)
    assert (first.ratio, second.ratio) == ("", stated)


def test_the_source_of_the_times_limits_no_comparison_of_two_models() -> None:
    two = replace(of_two_sources((100.0, 98.0, 102.0), (94.0, 92.0, 96.0)), other_model=True)
    assert not any("Source of the step time" in sentence for sentence in limits.sentences(two))


def test_a_change_of_unknown_size_has_no_ratio() -> None:
    assert intervals.stated_ratio(of_two_sources((100.0, 90.0, 110.0), (99.0, 90.0, 110.0))) == ""
