"""Tests of the telemetry lanes: labels above each line, and shaded areas."""

from __future__ import annotations

import numpy as np
import pandas as pd

from sawtooth.analysis.tables.timeline import TimelineSpan
from sawtooth.analysis.telemetry import series
from sawtooth.analysis.telemetry.clock import AS_RECORDED
from sawtooth.analysis.telemetry.series import TelemetrySeries
from sawtooth.app.charts.telemetry import lanes
from sawtooth.app.charts.telemetry_bands import period
from sawtooth.app.theme import CAUSES

SECOND = 10**9


def sampled() -> TelemetrySeries:
    """Return ten seconds with a sample each: idle for five, then at 80 % and 400 W."""
    busy = np.arange(1, 11) > 5
    samples = pd.DataFrame(
        {"time_ns": np.arange(1, 11) * SECOND, "util_pct": np.where(busy, 80.0, 0.0), "power_w": np.where(busy, 400.0, 100.0)}
    )
    none = pd.DataFrame(columns=["start_ns", "end_ns", "reason"])
    return TelemetrySeries(
        device=0, name=None, clock=AS_RECORDED, span=TimelineSpan(0, 10 * SECOND), samples=samples, gaps=none, throttles=none
    )


def test_averages_refer_to_the_steady_part_and_the_rest_is_faded() -> None:
    complete = sampled()
    steady = series.cut_to(complete, TimelineSpan(6 * SECOND, 9 * SECOND))
    chart = lanes(complete, "title", "alt", origin_ns=0, dark=False, steady=steady)
    headings = " ".join(note.text for note in chart.figure.layout.annotations)
    assert "<b>80\u00a0%</b>" in headings and "<b>400\u00a0W</b>" in headings
    shades = [shape for shape in chart.figure.layout.shapes if shape.type == "rect"]
    assert [(shade.x0, shade.x1) for shade in shades] == [(0.0, 6.0), (9.0, 10.0)]
    assert all(shade.layer == "above" and shade.fillcolor.startswith("rgba(255,255,255") for shade in shades)
    notes = [(note.x, note.text) for note in chart.figure.layout.annotations if note.xref != "paper"]
    assert notes == [(3.0, "not averaged")]  # The first six seconds have room for the text, the last one has not.


def test_averages_of_the_analysis_come_before_those_of_the_drawn_samples() -> None:
    chart = lanes(sampled(), "title", "alt", origin_ns=0, dark=False, means={"util_pct": 36.4})
    headings = " ".join(note.text for note in chart.figure.layout.annotations)
    assert "<b>36\u00a0%</b>" in headings and "<b>250\u00a0W</b>" in headings  # The mean of 100 and 400 W.


def test_a_period_is_not_drawn_as_lost_time() -> None:
    for dark in (False, True):
        band = period(1.0, 2.0, dark)
        assert band["fillcolor"] not in {
            colour.on(dark) for colour in CAUSES.values()
        }  # The colour of a cause marks throttling.
        assert (band["x0"], band["x1"], band["y1"]) == (1.0, 2.0, 100)  # The text is above the band.


def test_without_a_steady_part_averages_refer_to_all_samples() -> None:
    chart = lanes(sampled(), "title", "alt", origin_ns=0, dark=False)
    assert "<b>40\u00a0%</b>" in chart.figure.layout.annotations[0].text
    assert [chart.figure.layout[axis].title.text for axis in ("yaxis", "yaxis2")] == ["%", "W"]  # Each axis says its unit.
    assert not chart.figure.layout.shapes and not chart.legend
