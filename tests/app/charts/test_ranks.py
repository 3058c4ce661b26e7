"""Tests of the labels of rank rows."""

from __future__ import annotations

import pandas as pd

from sawtooth.app.charts.ranks import labels_of, side_by_side, title
from sawtooth.app.theme import CAUSES, OWNERS


def test_ranks_have_numbers_and_unknown_ranks_have_positions() -> None:
    known = pd.DataFrame({"rank": [0, 1], "device": [0, 1]})
    assert labels_of(known) == ["rank 0, device 0", "rank 1, device 1"]
    devices = pd.DataFrame({"rank": [None, None], "device": [0, 1]})
    assert labels_of(devices) == ["device 0", "device 1"]
    alike = pd.DataFrame({"rank": [None] * 3, "device": [0] * 3})
    assert labels_of(alike) == ["trace 0", "trace 1", "trace 2"]  # Without distinct labels, four bars would be on one row.


def test_title_and_bars_use_the_same_name() -> None:
    rows = pd.DataFrame({"rank": [None] * 2, "device": [0] * 2, "step_ms": [100.0, 100.0], "comm_wait_ms": [2.0, 9.0]})
    assert title(rows) == "Trace 1 waits most for other ranks: 9.00\u00a0ms of each step of 100\u00a0ms"


def test_idle_time_has_the_colour_and_the_name_of_its_cause() -> None:
    rows = pd.DataFrame(
        {
            "rank": [0, 1],
            "device": [0, 1],
            "step_ms": [50.0, 50.0],
            "other_compute_ms": [30.0, 30.0],
            "comm_wait_ms": [19.6, 0.0],
            "idle_python_host_ms": [0.0, 19.7],
            "idle_host_sync_ms": [0.4, 0.1],
            "idle_launch_bound_ms": [0.0, 0.2],
        }
    )
    chart = side_by_side(rows, "Rank 0 waits for rank 1", "ms per step", dark=False)
    python = CAUSES["python_host"]
    assert python.label in [entry.label for entry in chart.legend]
    late = next(piece for piece in chart.bars[1].parts if piece.hint.startswith(python.label))
    assert (late.colour, late.texture, late.label) == (python.light, python.texture, "Python on the host 19.7\u00a0ms")
    assert late.number == "19.7\u00a0ms"  # Next to a legend on a narrow page.
    grey = [piece.hint for piece in chart.bars[1].parts if piece.colour == OWNERS["idle"].light]
    assert grey == ["idle: 300\u00a0µs"]  # Causes below a percent of the step, together.
    assert [bar.time for bar in chart.bars] == ["50.0\u00a0ms", "50.0\u00a0ms"]


def test_with_many_ranks_only_the_legend_has_names() -> None:
    rows = pd.DataFrame({"rank": range(16), "device": 0, "step_ms": 50.0, "other_compute_ms": 50.0})
    chart = side_by_side(rows, "No rank waits", "ms per step", dark=True)
    assert {piece.label for bar in chart.bars for piece in bar.parts} == {""}
    assert [entry.label for entry in chart.legend] == [OWNERS["other_compute"].label]
