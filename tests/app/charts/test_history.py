"""Tests of the chart of several runs."""

import pandas as pd

from sawtooth.app.charts import history


def names(*runs: tuple[str, float, float]) -> list[str]:
    """Return the names that stand at the dots of ``runs``: name, busy share and MFU."""
    chart = history.mfu_by_busy(pd.DataFrame(runs, columns=["run", "busy", "mfu"]), dark=False)
    return list(chart.figure.data[1].text)


def test_names_that_would_overlap_are_shown_only_on_hover() -> None:
    assert names(("waits", 0.1, 0.05), ("near", 0.11, 0.052), ("works", 0.9, 0.4)) == ["waits", "", "works"]


def test_a_name_does_not_cover_the_dot_of_another_run() -> None:
    assert names(("below", 0.5, 0.2), ("above", 0.5, 0.224), ("works", 0.9, 0.4)) == ["", "above", "works"]
