"""What the rows of ranks are called beside each other."""

from __future__ import annotations

import pandas as pd

from sawtooth.app.charts.ranks import labels_of, title


def test_ranks_have_their_numbers_and_traces_of_unknown_ranks_theirs() -> None:
    known = pd.DataFrame({"rank": [0, 1], "device": [0, 1]})
    assert labels_of(known) == ["rank 0, device 0", "rank 1, device 1"]
    devices = pd.DataFrame({"rank": [None, None], "device": [0, 1]})
    assert labels_of(devices) == ["device 0", "device 1"]
    alike = pd.DataFrame({"rank": [None] * 3, "device": [0] * 3})
    assert labels_of(alike) == ["trace 0", "trace 1", "trace 2"]  # four bars on one row before


def test_the_title_calls_the_row_as_the_bars_do() -> None:
    rows = pd.DataFrame({"rank": [None] * 2, "device": [0] * 2, "step_ms": [100.0, 100.0], "comm_wait_ms": [2.0, 9.0]})
    assert title(rows) == "Trace 1 waits most for other ranks: 9.00\u00a0ms of each step of 100\u00a0ms"
