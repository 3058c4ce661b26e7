"""Tests of the unit of a time axis: the unit in its title is that of its values."""

from __future__ import annotations

import pytest

from sawtooth.app.charts import waterfall
from sawtooth.app.charts.waterfall import WaterfallBar


@pytest.mark.parametrize(("scale", "unit", "ends"), [(1.0, "ms", [20.0, 10.0]), (100.0, "s", [2.0, 1.0])])
def test_an_axis_beyond_a_second_is_in_seconds(scale: float, unit: str, ends: list[float]) -> None:
    bars = [WaterfallBar("other_compute", None, 10 * scale, 10 * scale), WaterfallBar("idle", "data_wait", 10 * scale, 0.0)]
    figure = waterfall.waterfall(bars, ("a", "b"), "title", dark=False, method="").figure
    assert figure.layout.xaxis.title.text == f"{unit} per step"
    assert [bar.x[0] for bar in figure.data][:: len(figure.data) - 1] == ends
    dots = waterfall.step_dots([20 * scale], [10 * scale], ("a", "b"), dark=False).figure
    assert dots.layout.yaxis.title.text == unit and [side.y[0] for side in dots.data] == ends
