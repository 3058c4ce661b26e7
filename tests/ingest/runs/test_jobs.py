"""Tests of traces without a rank, whose process groups and times show that they are one job."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.schema import DataFolder
from tests.support.bulk_synchronous import Planted, job
from tests.support.chrome_trace import ChromeTrace


def ingested_runs(folder: Path, traces: dict[str, ChromeTrace]) -> list[Manifest]:
    data = DataFolder(folder / "data").create()
    paths = []
    for name, trace in traces.items():
        trace.top.pop("distributedInfo", None)
        trace.top["made_for"] = name  # Different bytes make it a different recording.
        paths.append(trace.write(folder / name))
    return ingest_into_runs(data, [(path, path.name) for path in paths]).runs


@pytest.mark.parametrize("mesh", [False, True])
def test_ranks_with_common_groups_are_one_job(tmp_path: Path, mesh: bool) -> None:
    """In the mesh, ranks 0 and 3 have no common group, but ranks 1 and 2 connect them."""
    traces = job(4, 2, Planted(), mesh=mesh)
    (run,) = ingested_runs(tmp_path, {f"rank_{i:04d}.json": traces[i] for i in (0, 3, 1, 2)})
    assert {ref.source_name: ref.rank for ref in run.recordings} == {f"rank_{i:04d}.json": i for i in range(4)}


def test_ranks_are_unknown_if_file_names_do_not_contain_them(tmp_path: Path) -> None:
    traces = job(3, 3, Planted())
    (run,) = ingested_runs(tmp_path, {f"{name}.json": trace for name, trace in zip("abc", traces, strict=True)})
    assert [ref.rank for ref in run.recordings] == [None, None, None]


def test_two_profiles_of_one_process_are_two_runs(tmp_path: Path) -> None:
    first, second = job(2, 2, Planted())[0], job(2, 2, Planted())[0]
    second.top["baseTimeNanoseconds"] += 60_000_000_000
    assert len(ingested_runs(tmp_path, {"first.json": first, "second.json": second})) == 2


def test_a_group_has_at_most_its_size_in_ranks(tmp_path: Path) -> None:
    """Two jobs of two ranks each ran at the same time. Four ranks are too many for one job."""
    traces = [*job(2, 2, Planted()), *job(2, 2, Planted(loader_us={0: 100.0}))]
    assert sorted(len(run.recordings) for run in ingested_runs(tmp_path, {f"{i}.json": t for i, t in enumerate(traces)})) == [
        2,
        2,
    ]


@pytest.mark.parametrize("first", [[0], [0, 1]])
def test_a_rank_joins_the_profile_of_its_job_that_is_nearest_in_time(tmp_path: Path, first: list[int]) -> None:
    """The job was profiled twice within two minutes, at first perhaps of rank 0 alone."""
    data = DataFolder(tmp_path / "data").create()
    paths = []
    for profile, ranks in enumerate([first, [0, 1]]):
        for rank, trace in enumerate(job(2, 2, Planted())[: len(ranks)]):
            trace.top["baseTimeNanoseconds"] += profile * 60_000_000_000
            paths.append(trace.write(tmp_path / f"profile{profile}_{rank}.json"))
    runs = ingest_into_runs(data, [(path, path.name) for path in paths]).runs
    expected = [{f"profile{profile}_{rank}.json" for rank in ranks} for profile, ranks in enumerate([first, [0, 1]])]
    assert [{ref.source_name for ref in run.recordings} for run in runs] == expected
