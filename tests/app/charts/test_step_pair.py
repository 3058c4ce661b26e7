"""Tests of the bands between two steps, and of the axis of their ratio."""

from itertools import pairwise

import pytest

from sawtooth.app.charts.step_pair import Ratio, ratio_axis


def place(css: str) -> float:
    return float(css.rstrip("%"))


@pytest.mark.parametrize(("low", "value", "high"), [(5.7, 6.6, 7.6), (0.3, 0.4, 0.5), (0.999, 1.0, 1.001), (30, 90, 300)])
def test_the_axis_contains_the_interval_and_equality_on_one_scale(low: float, value: float, high: float) -> None:
    axis = ratio_axis([Ratio("measured", value, low, high)])
    mark = axis.marks[0]
    start, at, end = place(mark.left), place(mark.at), place(mark.left) + place(mark.width)
    assert 0 < start < at < end < 100
    ticks = dict(axis.ticks)
    assert (place(ticks["same"]) < at) == (value > 1) or value == 1
    labels = sorted((place(where), 2.4 * len(text)) for text, where in axis.ticks)  # A letter is 6.7 of the axis' 280 pixels.
    assert all(b - a >= (wide + other) / 2 for (a, wide), (b, other) in pairwise(labels)), "labels do not touch"


def test_the_ratio_itself_has_a_tick() -> None:
    axis = ratio_axis([Ratio("measured", 5.0, 4.4, 5.6)])
    ticks = [text.replace("\u00a0", " ") for text, _ in axis.ticks]
    assert ticks[0] == "same" and "5 ×" in ticks


@pytest.mark.parametrize(("value", "is_right"), [(5.0, True), (0.2, False)])
def test_the_bar_reaches_from_equality_to_the_ratio(value: float, is_right: bool) -> None:
    axis = ratio_axis([Ratio("measured", value, 0.9 * value, 1.1 * value)])
    mark, same = axis.marks[0], place(axis.same)
    left, right = place(mark.bar_left), place(mark.bar_left) + place(mark.bar_width)
    assert (left, right) == pytest.approx((same, place(mark.at)) if is_right else (place(mark.at), same), abs=0.02)


def test_a_prediction_is_hollow_and_on_the_same_scale() -> None:
    axis = ratio_axis([Ratio("predicted", 4, 2, 8, predicted=True), Ratio("measured", 4, 2, 8)])
    predicted, measured = axis.marks
    assert predicted.hollow and not measured.hollow
    assert (predicted.at, predicted.left, predicted.width) == (measured.at, measured.left, measured.width)
    assert (predicted.name, predicted.text) == ("predicted", "4.0\u00a0× (2.0 to 8.0)")
