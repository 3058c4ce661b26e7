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
    labels = sorted((place(where), 1.9 * len(text)) for text, where in axis.ticks)  # a letter is 1.9 % of a phone's axis
    assert all(b - a >= (wide + other) / 2 for (a, wide), (b, other) in pairwise(labels)), "labels do not touch"


def test_the_ratio_itself_has_a_tick_and_its_words_stand_where_there_is_room() -> None:
    axis = ratio_axis([Ratio("measured", 5.0, 4.4, 5.6)])
    assert [text.replace("\u00a0", " ") for text, _ in axis.ticks] == ["same", "1.5 ×", "2 ×", "3 ×", "4 ×", "5 ×"]
    assert axis.marks[0].side == "left"
    assert ratio_axis([Ratio("measured", 0.2, 0.19, 0.21)]).marks[0].side == "right"
    assert ratio_axis([Ratio("measured", 1.0, 0.99, 1.01)]).marks[0].side == "above"


def test_a_prediction_is_hollow_and_on_the_same_scale() -> None:
    axis = ratio_axis([Ratio("predicted", 4, 2, 8, predicted=True), Ratio("measured", 4, 2, 8)])
    predicted, measured = axis.marks
    assert predicted.hollow and not measured.hollow
    assert (predicted.at, predicted.left, predicted.width) == (measured.at, measured.left, measured.width)
    assert predicted.text == "predicted 4.0\u00a0× (2.0 to 8.0\u00a0×)"
