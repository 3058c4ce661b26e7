"""The Ranks screen of jobs made by hand: its verdict, its pictures and what they carry."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sawtooth.analysis.cluster import reduction
from sawtooth.analysis.cluster.places import list_sources
from sawtooth.app.jobs.rank_summary import summarise
from sawtooth.app.jobs.whole_job import bring_in_job
from sawtooth.app.page.rank_panels import position_of
from sawtooth.ingest.schema import DataFolder
from tests.support.bulk_synchronous import Planted, job
from tests.support.pages import charts, opened, run_of, words_of
from tests.support.pipelined import pipelined


def test_a_late_rank_stands_out_and_a_click_would_open_it(app_data: DataFolder, tmp_path: Path) -> None:
    traces = job(4, 2, Planted(loader_us={3: 800.0}), mesh=True)
    run = run_of(app_data, *(trace.write(tmp_path / f"{i}.json") for i, trace in enumerate(traces)))
    test = opened("ranks", run)
    text = words_of(test)
    assert text.index("Rank 3 holds the job up") < text.index("Rank 3 waits least")
    assert "node0001 is waited for longest" in text
    assert "Data parallel communication takes" in text
    squares, between = (chart["data"] for chart in charts(test)[:2])
    assert squares[0]["y"] == [f"rank {i}" for i in range(4)]
    assert squares[1]["mode"] == "markers"
    assert between[0]["x"] == between[0]["y"] == ["node0000", "node0001"]
    by_host = opened("ranks", run, rows="by host", heat="Own time")
    assert "node0001 takes" in words_of(by_host)
    assert charts(by_host)[0]["data"][0]["y"] == ["node0000", "node0001"]


def test_a_pipeline_is_told_beside_what_its_design_waits(app_data: DataFolder, tmp_path: Path) -> None:
    run = run_of(app_data, *(trace.write(tmp_path / f"{i}.json") for i, trace in enumerate(pipelined([300, 300], 2))))
    text = words_of(opened("ranks", run)).replace("\u00a0", " ").replace("&#39;", "'")
    assert "No rank is a straggler; the pipeline's stages wait" in text
    assert "2 microbatches on 2 equal stages would wait 33 %" in text
    assert "go to filling and draining the pipeline" in text


def test_the_map_of_a_job_of_summaries_has_all_ranks_though_those_opened_here_share_no_collective(
    app_data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "traces").mkdir()
    for rank, trace in enumerate(job(8, 2, Planted(loader_us={3: 800.0}), mesh=True)):
        trace.write(tmp_path / "traces" / f"{rank}.json")
    for source in list_sources([str(tmp_path / "traces")]):
        summarise(source, str(tmp_path / "summaries"))
    monkeypatch.setattr(reduction, "MOST", 1)
    run = bring_in_job(app_data, str(tmp_path / "summaries")).manifest.id
    test = opened("ranks", run)
    assert "Rank 3 holds the job up" in words_of(test)
    assert charts(test)[0]["data"][0]["y"] == [f"rank {i}" for i in range(8)]


@pytest.mark.parametrize(
    ("numbers", "job_ranks", "rank", "position"),
    [
        ((0, 5, 9), 1_024, 9, 2),
        ((0, 5, 9), 1_024, 500, None),
        ((1, 0), None, 1, 0),
        ((None, None), None, 1, 1),
        ((None, None), 40, 1, None),
    ],
)
def test_a_square_opens_the_rank_if_it_has_a_file_here(
    numbers: tuple[int | None, ...], job_ranks: int | None, rank: int, position: int | None
) -> None:
    result: Any = SimpleNamespace(ranks=[SimpleNamespace(rank=number) for number in numbers])
    communication: Any = SimpleNamespace(job_ranks=job_ranks)
    assert position_of(rank, result, communication) == position
