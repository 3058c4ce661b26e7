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
    places = sorted(place(where) for where in ticks.values())
    assert all(b - a >= 11.9 for a, b in pairwise(places)), "labels do not touch"


def test_a_prediction_is_hollow_and_on_the_same_scale() -> None:
    axis = ratio_axis([Ratio("predicted", 4, 2, 8, predicted=True), Ratio("measured", 4, 2, 8)])
    predicted, measured = axis.marks
    assert predicted.hollow and not measured.hollow
    assert (predicted.at, predicted.left, predicted.width) == (measured.at, measured.left, measured.width)
    assert predicted.text == "predicted 4.0\u00a0× (80\u00a0%: 2.0 to 8.0\u00a0×)"
