"""Tests of ``sawtooth reduce``: the summaries of a job's ranks make one run.

Late ranks join it, and its other ranks open on request.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from sawtooth.analysis.cluster.storage import is_below, list_sources
from sawtooth.app.cli import cli
from sawtooth.app.jobs.rank_summary import summarise
from sawtooth.ingest.errors import SawtoothError, UsageError
from sawtooth.ingest.runs.manifests import attach, delete_run
from sawtooth.ingest.schema import DataFolder
from tests.support.bulk_synchronous import Planted, job
from tests.support.pages import opened, words_of
from tests.support.paths import RECORDINGS

RANKS = 20  # More than the number of ranks with files.
PLANTED = Planted(loader_us={5: 800.0})


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def summarised(folder: Path, ranks: int) -> None:
    """Write the traces of a job, and the summaries of each rank in its own folder beside them."""
    (folder / "traces").mkdir()
    for rank, trace in enumerate(job(ranks, 2, PLANTED, mesh=True)):
        (source,) = list_sources([str(trace.write(folder / "traces" / f"{rank}.json"))])
        assert summarise(source, str(folder / "summaries" / f"{rank}")).failed is None


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the traces and summaries of RANKS ranks."""
    folder = tmp_path_factory.mktemp("many")
    summarised(folder, RANKS)
    return folder


def gather(folder: Path, ranks: range, place: Path) -> str:
    """Copy the summaries of ``ranks`` into one folder and return its path."""
    for rank in ranks:
        shutil.copytree(folder / "summaries" / f"{rank}", place, dirs_exist_ok=True)
    return str(place)


@pytest.mark.slow
def test_a_job_of_many_ranks_is_one_run_and_ranks_can_be_added(many: Path, tmp_path: Path, app_data: DataFolder) -> None:
    folder, data, traces = app_data, str(app_data.root), str(many / "traces")
    place = gather(many, range(RANKS - 2), tmp_path / "summaries")
    first = run("reduce", place, "--sources", traces, "--data", data, "--name", "mesh of 20").splitlines()
    assert any(line.startswith("2 of 20 ranks (18, 19) have no trace here.") for line in first)
    assert [line for line in first if line.startswith("rank 5: ") and "its data loader" in line]
    before = folder.read_manifest(first[-1])
    assert (before.name, len(before.traces) <= 16) == ("mesh of 20", True)
    assert {0, 5} <= {ref.rank for ref in before.traces}

    report = json.loads(run("report", before.id, "--data", data, "--format", "json"))
    assert [(late["ranks"], late["host"], late["reason"]) for late in report["stragglers"]] == [([5], "node0002", "data_wait")]
    assert report["stragglers"][0]["gain_ms"] == pytest.approx(0.8, abs=0.05)
    assert [finding["rule"] for finding in report["findings"]].count("straggling-rank") == 1

    gather(many, range(RANKS - 2, RANKS), tmp_path / "summaries")
    assert 13 not in {ref.rank for ref in before.traces}
    again = run("reduce", place, "--sources", traces, "--data", data, "--open", "13").splitlines()
    assert again[-1] == before.id
    assert not any("no trace" in line for line in again)
    after = folder.read_manifest(before.id)
    assert 13 in {ref.rank for ref in after.traces}
    assert after.summaries != before.summaries
    assert [path.name for path in folder.recordings.glob("*.parquet")] == [f"{after.summaries}.summaries.parquet"]

    assert attach(folder, after.id, after.traces[:1]).id == after.id
    with pytest.raises(UsageError, match="Rank 99 is not among"):
        run("reduce", place, "--sources", traces, "--data", data, "--open", "99")

    words = words_of(opened("ranks", after.id))
    assert "Rank 5 delays the job" in words
    assert "the summaries of all 20 ranks" in words
    assert "The others wait longest" not in words  # The representatives alone do not show who waits for whom.
    verdict = words_of(opened("verdict", after.id))
    assert "Feed rank 5 as fast as the others" in verdict
    assert "× 20" in verdict  # GPUs, also of ranks that have no file of their own
    delete_run(folder, after.id)
    assert list(folder.recordings.iterdir()) == []


def test_a_late_rank_is_named_even_if_its_trace_is_gone(many: Path, tmp_path: Path, app_data: DataFolder) -> None:
    place = gather(many, range(RANKS), tmp_path / "summaries")
    removed = (many / "traces" / "5.json").rename(tmp_path / "elsewhere.json")
    try:
        lines = run("reduce", place, "--sources", str(many / "traces"), "--data", str(app_data.root)).splitlines()
    finally:
        removed.rename(many / "traces" / "5.json")
    assert [line for line in lines if line.startswith("rank 5: ") and "its data loader" in line]
    manifest = app_data.read_manifest(lines[-1])
    assert 5 not in {ref.rank for ref in manifest.traces}
    assert "Rank 5 delays the job" in words_of(opened("ranks", manifest.id))
    report = json.loads(run("report", manifest.id, "--data", str(app_data.root), "--format", "json"))
    (late,) = (finding for finding in report["findings"] if finding["rule"] == "straggling-rank")
    assert "timeline" not in late["fix"]
    delete_run(app_data, manifest.id)


@pytest.mark.slow
def test_a_job_with_all_files_is_reported_like_its_traces(tmp_path: Path) -> None:
    traces = sorted((RECORDINGS / "ddp_straggler").glob("*.trace.json.gz"))
    for source in list_sources([str(path) for path in traces]):
        assert summarise(source, str(tmp_path / "summaries")).ranks == 1
    recorded, data = str(RECORDINGS / "ddp_straggler"), str(tmp_path / "reduced")
    reduced = run("reduce", str(tmp_path / "summaries"), "--sources", recorded, "--data", data).splitlines()
    assert [line for line in reduced if line.startswith("rank 1: ")]
    ingested = run("ingest", *map(str, traces), "--data", str(tmp_path / "ingested")).splitlines()
    (late,) = stragglers(reduced[-1], tmp_path / "reduced")
    assert late["ranks"] == [1]
    assert [late] == stragglers(ingested[-1], tmp_path / "ingested")


@pytest.mark.slow
def test_damaged_summaries_are_reported_and_made_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    summarised(tmp_path, 8)
    place = gather(tmp_path, range(8), tmp_path / "gathered")
    run_id = run("reduce", place, "--sources", str(tmp_path / "traces"), "--data", str(data), "--name", "mine").splitlines()[-1]
    (path,) = DataFolder(data).recordings.glob("*.parquet")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    doctor = CliRunner().invoke(cli, ["doctor", "--data", str(data)])
    assert doctor.exit_code == 1 and "The summaries" in doctor.output
    for remaining in DataFolder(data).derived.glob("*.msgpack"):
        remaining.unlink()
    assert "summaries of this job's ranks are damaged" in run("report", run_id, "--data", str(data), "--format", "json")
    # Rename it as another job's, so that the next job does not overwrite it.
    path.rename(path.with_name(f"{1:016x}.summaries.parquet"))
    manifest = DataFolder(data).read_manifest(run_id)
    DataFolder(data).write_manifest(msgspec.structs.replace(manifest, summaries=f"{1:016x}", notes="keep me"))
    assert run("reduce", place, "--sources", str(tmp_path / "traces"), "--data", str(data)).splitlines()[-1] == run_id
    again = DataFolder(data).read_manifest(run_id)
    assert (again.name, again.notes) == ("mine", "keep me")
    assert stragglers(run_id, data)[0]["ranks"] == [5]


def test_a_trace_that_was_overwritten_since_is_refused(tmp_path: Path) -> None:
    data, traces = tmp_path / "data", tmp_path / "traces"
    summarised(tmp_path, 8)
    place = gather(tmp_path, range(8), tmp_path / "gathered")
    shutil.copyfile(traces / "2.json", traces / "3.json")
    result = CliRunner().invoke(cli, ["reduce", place, "--sources", str(traces), "--data", str(data)])
    assert result.exit_code == 0
    assert "Not opened: 3.json has changed since sawtooth map summarised it" in result.stderr
    folder = DataFolder(data)
    manifest = folder.read_manifest(result.stdout.splitlines()[-1])
    assert {ref.rank for ref in manifest.traces} == {0, 1, 2, 4, 5, 6, 7}
    remaining = {ref.id for ref in manifest.traces}
    assert {path.name[:16] for path in (*folder.recordings.glob("*.duckdb"), *folder.sources.iterdir())} == remaining


@pytest.mark.parametrize("named", [[], ["elsewhere"], ["traces-not"], ["traces/../elsewhere"]])
def test_files_outside_the_named_places_stay_closed(tmp_path: Path, named: list[str]) -> None:
    for folder in ("elsewhere", "traces-not"):
        (tmp_path / folder).mkdir()
    summarised(tmp_path, 2)
    place = gather(tmp_path, range(2), tmp_path / "gathered")
    options = [word for name in named for word in ("--sources", str(tmp_path / name))]
    result = CliRunner().invoke(cli, ["reduce", place, *options, "--data", str(tmp_path / "data")])
    assert isinstance(result.exception, SawtoothError)
    assert f"{tmp_path}/traces/0.json is outside the named locations" in str(result.exception)
    assert f"add --sources {tmp_path}/traces" in str(result.exception)
    assert list(DataFolder(tmp_path / "data").recordings.glob("*.duckdb")) == []


@pytest.mark.parametrize(
    ("url", "place", "below"),
    [
        ("s3://bucket/job/a.json", "s3://bucket/job", True),
        ("s3://bucket/job/a.json", "s3://bucket/job/", True),
        ("s3://bucket/job/a.json", "s3://bucket/job/a.json", True),
        ("s3://bucket/job2/a.json", "s3://bucket/job", False),
        ("s3://bucket/job/../secret.json", "s3://bucket/job", False),
        ("s3://other/job/a.json", "s3://bucket/job", False),
        ("gs://bucket/job/a.json", "s3://bucket/job", False),
        ("s3://bucket/a.json", "/", False),
        ("/etc/passwd", "s3://bucket/job", False),
        ("https://evil.test/a.json", "/", False),
        ("{tmp}/job/a.json", "{tmp}/job", True),
        ("{tmp}/job/../secret.json", "{tmp}/job", False),
        ("{tmp}/job/link.json", "{tmp}/job", False),
        ("{tmp}/alias/a.json", "{tmp}/job", True),
        ("{tmp}/job/a.json", "{tmp}/alias", True),
        ("~/a.json", "{tmp}/job", False),
    ],
)
def test_paths_below_a_place(tmp_path: Path, url: str, place: str, below: bool) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "job")
    (tmp_path / "job" / "link.json").symlink_to(tmp_path / "secret.json")
    assert is_below(url.format(tmp=tmp_path), place.format(tmp=tmp_path)) is below


def stragglers(run_id: str, data: Path) -> list[dict[str, Any]]:
    late: list[dict[str, Any]] = json.loads(run("report", run_id, "--data", str(data), "--format", "json"))["stragglers"]
    return late
