"""Who waits for whom: collectives of several ranks matched by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from analysis.communication import matched, straggler


def rank_of(durations: list[int], name: str = "ncclDevKernel_AllReduce") -> pd.DataFrame:
    rows = pd.DataFrame({"group_name": "", "name": name, "start_ns": range(len(durations)), "dur_ns": durations, "step": 1})
    return rows.assign(nth=range(len(rows)))


def test_what_lies_beyond_the_shortest_rank_is_waiting() -> None:
    # Two collectives: the ranks spend 50 and 20, then 10 and 10. Rank 0 waits 30 for rank 1 in the first.
    rows = matched({0: rank_of([50, 10]), 1: rank_of([20, 10])})
    assert list(rows[rows["rank"] == 0]["wait_ns"]) == [30, 0]
    assert list(rows[rows["rank"] == 1]["wait_ns"]) == [0, 0]


def test_collectives_whose_counts_differ_are_not_matched() -> None:
    assert matched({0: rank_of([50, 10]), 1: rank_of([20])}).empty
    assert matched({0: rank_of([50])}).empty


def test_the_straggler_is_the_rank_that_waits_least() -> None:
    waits = pd.DataFrame({"rank": [0, 1, 2], "wait_ms": [9.0, 1.0, 11.0]})
    assert straggler(waits, 100.0) == (1, pytest.approx(10.0))
    assert straggler(waits, 1000.0) is None  # one percent of the step: within what changes from run to run
    assert straggler(waits.head(1), 100.0) is None
