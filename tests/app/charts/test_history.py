"""Tests of the chart of several runs."""

import pandas as pd

from sawtooth.app.charts import history


def names(*runs: tuple[str, float, float]) -> list[tuple[str, str]]:
    """Return the names at the dots of ``runs`` (name, busy share and MFU) with their positions."""
    chart = history.mfu_by_busy(pd.DataFrame(runs, columns=["run", "busy", "mfu"]), dark=False)
    trace = chart.figure.data[1]
    return list(zip(trace.text, trace.textposition, strict=True))


def test_names_that_would_overlap_are_on_different_sides_of_their_dots() -> None:
    drawn = names(("waits", 0.1, 0.05), ("near", 0.11, 0.052), ("works", 0.9, 0.4))
    assert drawn == [("waits", "top left"), ("near", "top right"), ("works", "top center")]


def test_a_name_does_not_cover_the_dot_of_another_run() -> None:
    drawn = names(("below", 0.5, 0.2), ("above", 0.5, 0.224), ("works", 0.9, 0.4))
    assert drawn == [("below", "bottom center"), ("above", "top center"), ("works", "top center")]


def test_a_name_without_room_is_shown_only_on_hover() -> None:
    around = [(f"run {at}", 0.5 + 0.01 * (at % 5), 0.2 + 0.01 * (at // 5)) for at in range(25)]
    drawn = names(*around, ("works", 0.9, 0.4))
    assert drawn[12][0] == "" and drawn[-1][0] == "works"  # The dot in the middle has other dots on all sides.


def test_a_long_name_at_the_left_end_is_drawn_to_the_right() -> None:
    # The name has 16 letters and takes 0.216 of the width. Centred on its dot, it would leave the picture. "next" is above it.
    drawn = names(("mlp_launch_bound", 0.06, 0.0), ("next", 0.1, 0.03), ("mm_bf16", 0.99, 0.7))
    assert drawn == [("mlp_launch_bound", "bottom right"), ("next", "top center"), ("mm_bf16", "top left")]


def test_percent_is_in_the_titles_of_the_axes() -> None:
    figure = history.mfu_by_busy(pd.DataFrame([("one", 0.25, 0.1)], columns=["run", "busy", "mfu"]), dark=False).figure
    assert (figure.layout.xaxis.title.text[-3:], figure.layout.yaxis.title.text) == (", %", "MFU, %")
    assert (list(figure.data[1].x), list(figure.data[1].y)) == ([25.0], [10.0])
