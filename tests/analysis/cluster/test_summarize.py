"""Tests of a rank's summary: it agrees with the rank's recording."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sawtooth.analysis.cluster.storage import SourceVersion, list_sources
from sawtooth.analysis.cluster.summary import SCHEMA, pack, unpack
from sawtooth.analysis.ranks.contention import kernels_of
from sawtooth.analysis.ranks.stragglers.outliers import RankLosses
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.app.jobs.rank_summary import summarise
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.schema import DataFolder
from tests.support.bulk_synchronous import Planted, job
from tests.support.paths import ROOT

PLANTED = Planted(loader_us={1: 800.0})


def summary_of(path: Path, to: Path) -> dict:
    (source,) = list_sources([str(path)])
    outcome = summarise(source, str(to))
    assert (outcome.ranks, outcome.refused, outcome.failed) == (1, None, None)
    (written,) = to.iterdir()
    assert written.stat().st_size < 20_000
    (row,) = unpack(written.read_bytes()).to_pylist()
    return row


def test_a_summary_has_lost_time_steps_and_collectives(tmp_path: Path) -> None:
    path = job(2, 2, PLANTED)[1].write(tmp_path / "1.json")
    row = summary_of(path, tmp_path / "summaries")
    data = DataFolder(tmp_path / "data").create()
    (run,) = ingest_into_runs(data, [(path, path.name)]).runs
    library = Library(data)
    result = analyse(run, library)
    rank = result.ranks[0]
    assert (row["kind"], row["rank"], row["world"], row["host"], row["id"]) == ("trace", 1, 2, "node0000", rank.recording_id)
    assert [step["label"] for step in row["step"] if step["counted"]] == rank.counted["name"].tolist()
    with library.open(rank.recording_id) as recording:
        kernels = kernels_of(recording, rank.device)
        losses = RankLosses.from_recording(recording, rank, kernels, {shape: ns for shape, (ns, _) in kernels.quiet.items()})
    assert {lost["cause"]: lost["ms"] for lost in row["lost"]} == {cause: ms for cause, ms in losses.lost_ms.items() if ms}
    assert {lost["cause"]: lost["ms"] for lost in row["lost"]}["data_wait"] == pytest.approx(0.8, rel=0.02), "as planted"
    assert sorted((kernel["ns"], kernel["calls"]) for kernel in row["quiet"]) == sorted(losses.quiet.values())
    assert [call["name"] for call in row["call"]] == ["allreduce"] * len(rank.steps)
    assert row["step_ms"] == rank.best.mean_ms


def test_an_unreadable_source_has_a_summary_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "truth.json"
    path.write_text('{"answer": 42}')
    (source,) = list_sources([str(path)])
    outcome = summarise(source, str(tmp_path / "summaries"))
    assert outcome.refused is not None
    assert "traceEvents" in outcome.refused
    (row,) = unpack(next((tmp_path / "summaries").iterdir()).read_bytes()).to_pylist()
    assert (row["kind"], row["why"]) == ("refused", outcome.refused)


def test_telemetry_is_summarised_by_gpu(tmp_path: Path) -> None:
    (listed,) = list_sources([str(ROOT / "tests" / "telemetry" / "dcgmi.txt")])
    assert summarise(listed, str(tmp_path)).ranks > 0
    rows = unpack(next(tmp_path.iterdir()).read_bytes()).to_pylist()
    assert {row["kind"] for row in rows} == {"telemetry"}
    assert all(row["sampled"] for row in rows)


def test_a_source_that_disappears_fails_and_leaves_no_file(tmp_path: Path) -> None:
    outcome = summarise(SourceVersion(str(tmp_path / "gone.json"), "1-1", 1), str(tmp_path / "summaries"))
    assert outcome.failed is not None
    assert "does not exist any more" in outcome.failed
    assert not (tmp_path / "summaries").exists()


def test_only_files_written_by_sawtooth_are_read_as_summaries(tmp_path: Path) -> None:
    content = pack([{"kind": "refused", "source": "a", "why": "b"}])
    assert unpack(content).schema.equals(SCHEMA)
    other = tmp_path / "other.parquet"
    pq.write_table(unpack(content), other, store_schema=False)
    for bytes_ in (other.read_bytes(), content[:-9], b"", b"PAR1"):
        with pytest.raises(SawtoothError, match="not a summary of a rank"):
            unpack(bytes_)
