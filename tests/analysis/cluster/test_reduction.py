"""Tests of reducing summaries: the same results as from traces, and the planted stragglers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sawtooth.analysis.cluster.reduction import JobOverview, overview_of, reduce_job
from sawtooth.analysis.cluster.representatives import choose
from sawtooth.analysis.cluster.storage import list_sources, storage_at
from sawtooth.analysis.cluster.summary_file import gather
from sawtooth.analysis.cluster.tables import JobTables
from sawtooth.analysis.ranks.heatmap import rank_steps
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.app.jobs.rank_summary import summarise
from sawtooth.ingest.errors import NotFoundError, SawtoothError, UsageError
from sawtooth.ingest.schema import DataFolder
from tests.support.bulk_synchronous import Planted, job
from tests.support.pipelined import pipelined


def summaries_of(folder: Path, planted: Planted, *, ranks: int = 8, without: tuple[int, ...] = ()) -> list[Path]:
    (folder / "traces").mkdir(exist_ok=True)
    paths = []
    for rank, trace in enumerate(job(ranks, 2, planted, mesh=True)):
        if rank not in without:
            paths.append(trace.write(folder / "traces" / f"{rank}.json"))
    for source in list_sources([str(path) for path in paths]):
        assert summarise(source, str(folder / "summaries")).ranks == 1
    return paths


def reduced(folder: Path) -> JobOverview:
    data = DataFolder(folder / "data").create()
    return reduce_job(JobTables(data.summaries_file(gather(storage_at(str(folder / "summaries")), data))))


def test_a_reduced_job_equals_the_run_of_the_same_traces(tmp_path: Path) -> None:
    paths = summaries_of(tmp_path, Planted(loader_us={3: 800.0}))
    job_overview = reduced(tmp_path)
    data = DataFolder(tmp_path / "of_traces").create()
    (run,) = ingest_into_runs(data, [(path, path.name) for path in paths]).runs
    result = analyse(run, Library(data))
    assert result.communication is not None
    (late,) = job_overview.stragglers
    assert (late.kind, late.ranks, late.host, late.reason) == ("rank", (3,), "node0001", "data_wait")
    assert late.own_ms == pytest.approx(0.8, abs=0.02)
    assert job_overview.stragglers == tuple(replace(item, positions=(3,)) for item in result.communication.stragglers)
    waits = pd.DataFrame([vars(item) for item in result.communication.ranks]).sort_values("rank")
    for column in ("wait_ms", "late_ms", "last_share"):
        assert np.allclose(job_overview.ranks[column].astype(float), waits[column].astype(float)), column
    heat = rank_steps(result.ranks, result.communication)
    pd.testing.assert_frame_equal(job_overview.heat, heat, check_dtype=False)
    assert job_overview.groups == result.communication.groups
    assert [(use.parallelism, use.groups, use.group_size, use.within_host) for use in job_overview.groups] == [
        ("dp", 4, 2, True),
        ("dp", 2, 4, False),
    ]


@pytest.mark.slow
def test_a_pipeline_has_the_same_schedule_from_summaries_as_from_traces(tmp_path: Path) -> None:
    # There are four microbatches on three stages, the last of which works twice as long.
    paths = [trace.write(tmp_path / f"{i}.json") for i, trace in enumerate(pipelined([300, 300, 600], 4))]
    for source in list_sources([str(path) for path in paths]):
        assert summarise(source, str(tmp_path / "summaries")).ranks == 1
    reported = reduced(tmp_path)
    data = DataFolder(tmp_path / "of_traces").create()
    (run,) = ingest_into_runs(data, [(path, path.name) for path in paths]).runs
    result = analyse(run, Library(data))
    assert result.communication is not None and result.communication.schedule is not None and reported.schedule is not None
    by_traces = result.communication.schedule
    assert [[result.ranks[position].rank for position in stage] for stage in by_traces.stages] == [[0], [1], [2]]
    assert reported.schedule.stages == ((0,), (1,), (2,))
    for same in ("microbatches", "schedule", "chunks", "ideal_share"):
        assert getattr(reported.schedule, same) == getattr(by_traces, same), same
    assert reported.schedule.stage_ms == pytest.approx((3.6, 3.6, 7.2), rel=0.03), "microbatches times three passes, as planted"
    # Equal stages would work for 4.8 ms and fill the pipeline for 2 / 4 of that: 7.2 ms per step. With the slow stage, the
    # shortest step is 9 ms.
    assert (reported.schedule.fill_ms, reported.schedule.imbalance_ms) == pytest.approx((2.4, 1.8), rel=0.03)
    for field in ("step_ms", "bubble_share"):
        assert getattr(reported.schedule, field) == pytest.approx(getattr(by_traces, field), rel=0.02), field
    assert [(use.parallelism, use.groups, use.kinds) for use in reported.groups] == [("pp", 2, ("sendrecv",))]


def test_summaries_are_reduced_again_only_after_a_change(tmp_path: Path) -> None:
    summaries_of(tmp_path, Planted(), ranks=2)
    data = DataFolder(tmp_path / "data").create()
    path = data.summaries_file(gather(storage_at(str(tmp_path / "summaries")), data))
    first = overview_of(path)
    assert overview_of(path) is first
    os.utime(path, ns=(1, 1))
    assert overview_of(path) is not first
    path.unlink()
    with pytest.raises(NotFoundError, match="not in this data folder"):
        overview_of(path)


@pytest.mark.slow
def test_no_rank_is_late_if_none_was_planted(tmp_path: Path) -> None:
    summaries_of(tmp_path, Planted(clock_us={1: 4_000.0, 3: -2_000.0}))
    overview = reduced(tmp_path)
    assert overview.stragglers == ()
    planted_ns = np.repeat([0, 4_000_000, 0, -2_000_000], 2)  # One value per rank; two ranks per host.
    assert np.abs(overview.ranks["clock_offset_ns"].to_numpy(np.int64) - planted_ns).max() < 10_000


@pytest.mark.slow
@pytest.mark.parametrize(("late_in", "named"), [({2, 6}, True), ({2}, False)])
def test_a_repeatedly_late_loader_is_named_and_one_late_once_is_not(tmp_path: Path, late_in: set[int], named: bool) -> None:
    """On one rank, two of the nine counted steps are 2.5 ms longer. On average this is 0.56 ms per step."""
    (tmp_path / "traces").mkdir()
    traces = job(8, 2, Planted(loader_us={3: 2500.0}, late_in=frozenset(late_in)), mesh=True, steps=10)
    paths = [trace.write(tmp_path / "traces" / f"{rank}.json") for rank, trace in enumerate(traces)]
    for source in list_sources([str(path) for path in paths]):
        summarise(source, str(tmp_path / "summaries"))
    late = reduced(tmp_path).stragglers
    assert [(item.ranks, item.reason) for item in late] == ([((3,), "data_wait")] if named else [])
    assert [item.own_ms for item in late] == ([pytest.approx(2 * 2.5 / 9, rel=0.15)] if named else [])


def test_missing_ranks_are_named_and_can_be_added_later(tmp_path: Path) -> None:
    summaries_of(tmp_path, Planted(), without=(2, 5))
    before = reduced(tmp_path)
    assert before.notes[-2:] == (
        "2 of 8 ranks (2, 5) have no trace here.",
        "Map the missing traces into the same place. Then run reduce again.",
    )
    summaries_of(tmp_path, Planted(), without=(0, 1, 3, 4, 6, 7))
    after = reduced(tmp_path)
    assert after.ranks["rank"].tolist() == list(range(8))
    assert not [note for note in after.notes if "no trace" in note]


@pytest.mark.slow
def test_a_rank_with_two_traces_counts_once(tmp_path: Path) -> None:
    summaries_of(tmp_path, Planted(loader_us={3: 800.0}))
    copy = tmp_path / "traces" / "copy_of_3.json"
    copy.write_bytes((tmp_path / "traces" / "3.json").read_bytes())
    (source,) = list_sources([str(copy)])
    summarise(source, str(tmp_path / "summaries"))
    overview = reduced(tmp_path)
    assert overview.ranks["rank"].tolist() == list(range(8))
    assert [note for note in overview.notes if "not used: 1." in note]
    assert ([late.ranks for late in overview.stragglers], overview.unmatched) == ([(3,)], 0), "its calls count once"


def test_summaries_of_two_jobs_are_refused(tmp_path: Path) -> None:
    summaries_of(tmp_path, Planted(), ranks=2)
    (tmp_path / "other").mkdir()
    summaries_of(tmp_path / "other", Planted(), ranks=4)
    for path in (tmp_path / "other" / "summaries").iterdir():
        path.rename(tmp_path / "summaries" / path.name)
    with pytest.raises(UsageError, match="to 2 jobs"):
        reduced(tmp_path)


def test_a_file_that_is_not_a_summary_is_refused(tmp_path: Path) -> None:
    data = DataFolder(tmp_path / "data").create()
    with pytest.raises(UsageError, match="no summaries"):
        gather(storage_at(str(tmp_path / "nothing")), data)
    summaries_of(tmp_path, Planted(), ranks=2)
    (first, _) = sorted((tmp_path / "summaries").iterdir())
    first.write_bytes(first.read_bytes()[:-20])
    with pytest.raises(SawtoothError, match="not a summary of a rank"):
        gather(storage_at(str(tmp_path / "summaries")), data)
    assert not list(data.recordings.iterdir())


def test_a_flipped_bit_in_the_summaries_is_reported(tmp_path: Path) -> None:
    summaries_of(tmp_path, Planted(), ranks=2)
    data = DataFolder(tmp_path / "data").create()
    path = data.summaries_file(gather(storage_at(str(tmp_path / "summaries")), data))
    sound = path.read_bytes()
    for at in range(4, len(sound), len(sound) // 40):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        with pytest.raises(SawtoothError, match="damaged"):
            JobTables(path)
    path.write_bytes(sound)
    assert len(JobTables(path).ranks) == 2


def test_representatives_include_late_first_waiting_and_usual_ranks() -> None:
    ranks = pd.DataFrame({"wait_ms": [5.0] * 100})
    ranks.loc[40, "wait_ms"] = 9.0
    lost = pd.DataFrame({"position": range(100), "cause": "work", "ms": [10.0 + 0.01 * abs(p - 70) for p in range(100)]})
    roles = [list(range(50))] * 50 + [list(range(50, 100))] * 50
    chosen = choose(lost, ranks, roles, late=[17, 60])
    assert {0, 17, 40, 60} <= set(chosen)
    assert any(p >= 50 for p in chosen if p not in (17, 60)), "one of each role"
    assert len(choose(lost, ranks, roles, late=list(range(30)))) == 16
    few = pd.DataFrame({"wait_ms": [1.0] * 5})
    assert choose(lost[:5], few, [list(range(5))] * 5, late=[]) == (0, 1, 2, 3, 4), "of few ranks all"
