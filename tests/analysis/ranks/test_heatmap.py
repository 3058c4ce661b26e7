"""Tests of the table of ranks and steps, on jobs with planted times."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from sawtooth.analysis.ranks.heatmap import HEATMAP_COLUMNS, RankStalls, pooled_heat, rank_steps, stalls
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.bulk_synchronous import Planted, job


def heat_of(folder: Path, planted: Planted) -> pd.DataFrame:
    data = DataFolder(folder / "data").create()
    paths = [trace.write(folder / f"{i}.json") for i, trace in enumerate(job(4, 2, planted))]
    (run,) = ingest_into_runs(data, [(path, path.name) for path in paths]).runs
    result = analyse(run, Library(data))
    assert result.communication is not None
    heat = rank_steps(result.ranks, result.communication)
    for rank in result.ranks:
        own_rank = heat[heat["rank"] == rank.rank]
        assert (own_rank["own_ms"] + own_rank["wait_ms"]).tolist() == pytest.approx(rank.device_step_ms, abs=1e-9)
    return heat


def test_a_rank_late_in_two_steps_makes_the_others_wait_in_these(tmp_path: Path) -> None:
    heat = heat_of(tmp_path, Planted(loader_us={3: 800.0}, late_in=frozenset({2, 4})))
    assert tuple(heat.columns) == HEATMAP_COLUMNS
    waits = heat.pivot(index="rank", columns="step", values="wait_ms")
    assert list(waits.index) == [0, 1, 2, 3]
    late = [0.8 if step in ("ProfilerStep#2", "ProfilerStep#4") else 0.0 for step in waits]
    for rank in (0, 1, 2):
        assert waits.loc[rank].tolist() == pytest.approx(late, abs=0.001)
    assert waits.loc[3].tolist() == pytest.approx([0.0] * len(late), abs=0.001)
    assert heat.drop_duplicates("rank")["host"].tolist() == ["node0000", "node0000", "node0001", "node0001"]
    assert heat["stage"].isna().all()


def table(ranks: int, steps: int = 2) -> pd.DataFrame:
    """Return a table of two steps in which rank r works r ms in the first and waits r ms in the second.

    There are two ranks per host and no stages.
    """
    rows = [
        {"rank": r, "host": f"n{r // 2}", "stage": None, "step": f"s{s}", "own_ms": r * (1 - s), "wait_ms": r * s}
        for r in range(ranks)
        for s in range(steps)
    ]
    return pd.DataFrame(rows, columns=list(HEATMAP_COLUMNS))


def test_neighbours_share_a_row_that_shows_the_worst() -> None:
    # Seven ranks are in at most three rows: three, three and one.
    rows = pooled_heat(table(7), max_rows=3)
    assert list(dict.fromkeys(rows["label"])) == ["rank 0 to 2", "rank 3 to 5", "rank 6"]
    assert rows.loc[rows["step"] == "s0", "own_ms"].tolist() == [2, 5, 6]
    assert rows.loc[rows["step"] == "s1", "wait_ms"].tolist() == [2, 5, 6]
    assert rows.loc[rows["step"] == "s0", "rank"].tolist() == [0, 3, 6]


@pytest.mark.parametrize(("ranks", "steps", "rows"), [(1_024, 2, 512), (1_024, 20, 114), (60, 100, 60)])
def test_heatmap_with_many_steps_has_fewer_rows(ranks: int, steps: int, rows: int) -> None:
    # A heat map has at most 512 rows and 2,500 cells, but always up to 64 rows. With 1,024 ranks and 20 steps, nine ranks share
    # each of 114 rows.
    assert pooled_heat(table(ranks, steps))["label"].nunique() == rows


def test_known_hosts_and_stages_are_rows() -> None:
    rows = pooled_heat(table(4), "host")
    assert rows.loc[rows["step"] == "s0", ["label", "own_ms"]].to_numpy().tolist() == [["n0", 1], ["n1", 3]]
    assert pooled_heat(table(4), "stage").empty
    staged = table(4).assign(stage=[0, 0, 0, 0, 1, 1, 1, 1])
    rows = pooled_heat(staged, "stage")
    assert rows.loc[rows["step"] == "s1", ["label", "wait_ms"]].to_numpy().tolist() == [["stage 0", 1], ["stage 1", 3]]


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ([40, 122, 40, 40, 126, 40, 40], RankStalls(("#1", "#4"), 7, 84.0)),  # The others take 40 ms: excesses of 82 and 86.
        ([120, 122, 121, 119, 120, 122, 121], None),  # Late in every step.
        ([40, 120, 80, 60, 50, 70, 40], None),  # No clear stalls: 80 ms, and 40 in another step.
        ([40, 40, 40, 40, 40, 40, 40], None),
        ([10, 20, 30, 10, 20, 30, 10], None),  # Faster than the others.
    ],
)
def test_stalls_are_a_few_exceptional_steps(own: list[float], expected: RankStalls | None) -> None:
    rows = [
        {"rank": rank, "step": f"#{step}", "own_ms": float(ms if rank == 1 else 40)}
        for rank in range(3)
        for step, ms in enumerate(own)
    ]
    assert stalls(pd.DataFrame(rows), 1) == expected
    assert stalls(pd.DataFrame(rows), 7) is None


def test_single_rank_has_no_stalls() -> None:
    assert stalls(pd.DataFrame({"rank": [0, 0, 0], "step": ["a", "b", "c"], "own_ms": [1.0, 1.0, 9.0]}), 0) is None
