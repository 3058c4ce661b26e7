"""Tests of the histogram of a kernel's launches.

The axis is logarithmic if durations differ by more than a few times.
"""

from __future__ import annotations

import pandas as pd
import pytest

from sawtooth.app.charts.rankings import histogram


def test_durations_far_apart_have_a_logarithmic_axis() -> None:
    rows = pd.DataFrame({"low_us": [1.0, 100.0], "high_us": [10.0, 1000.0], "launches": [300, 2]})
    figure = histogram(rows, "t", "a", dark=False).figure
    assert list(figure.data[0].x) == pytest.approx([0.5, 2.5])  # log10 of the middle of each
    assert list(figure.layout.xaxis.ticktext) == ["1", "10", "100", "1,000"]


def test_similar_durations_have_a_linear_axis() -> None:
    rows = pd.DataFrame({"low_us": [10.0, 12.0], "high_us": [12.0, 14.0], "launches": [3, 2]})
    figure = histogram(rows, "t", "a", dark=False).figure
    assert list(figure.data[0].x) == pytest.approx([11.0, 13.0]) and figure.layout.xaxis.ticktext is None


def test_launch_counts_are_integers() -> None:
    rows = pd.DataFrame({"low_us": [10.0, 12.0], "high_us": [12.0, 14.0], "launches": [2, 1]})
    axis = histogram(rows, "t", "a", dark=False).figure.layout.yaxis
    assert (axis.dtick, axis.title.text) == (1, "launches")
    assert histogram(rows.assign(launches=[300, 2]), "t", "a", dark=False).figure.layout.yaxis.dtick is None
