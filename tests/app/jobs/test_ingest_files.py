"""Tests of the messages about a file during its ingest."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from sawtooth.app.jobs.ingest_files import files_of, ingest_into_runs
from sawtooth.ingest.manifest import RecordingRef
from sawtooth.ingest.runs import telemetry_match
from sawtooth.ingest.schema import DataFolder
from tests.support import sampled_loop
from tests.support.bundles import manifest_bytes, packed
from tests.support.chrome_trace import matmul_loop
from tests.support.paths import GRAPH_BREAKS


def test_a_truncated_trace_is_reported_at_ingest(tmp_path: Path) -> None:
    whole = matmul_loop().write(tmp_path / "whole.json")
    cut = tmp_path / "cut.json"
    cut.write_bytes(whole.read_bytes()[: int(0.8 * whole.stat().st_size)])
    folder = DataFolder(tmp_path / "data").create()
    assert ingest_into_runs(folder, [(whole, "whole.json")], name="whole").notices == []
    (notice,) = ingest_into_runs(folder, [(cut, "cut.json")], name="cut").notices
    assert notice.startswith("cut.json: The trace ends before its closing bracket")


def test_a_compile_log_with_a_bundle_is_attached_to_its_run(tmp_path: Path) -> None:
    # The capture helper and `sawtooth run` write the bundle, and TORCH_TRACE writes the log beside it.
    trace, log = matmul_loop().write(tmp_path / "trace.json"), GRAPH_BREAKS / "breaks_1.log.gz"
    bundle = packed(
        tmp_path / "run.sawtooth", {"manifest.json": manifest_bytes(), "sources/0001.gz": gzip.compress(trace.read_bytes())}
    )
    folder = DataFolder(tmp_path / "data").create()
    files = [(bundle, bundle.name), (log, log.name)]
    for given in (files, files[::-1], files[:1]):  # In any order, and a second time without the log.
        (run,) = ingest_into_runs(folder, given).runs
        assert [ref.kind for ref in run.recordings] == ["trace", "compile"]
    assert len(folder.manifests()) == 1


def test_a_known_trace_is_reported_with_its_name(tmp_path: Path) -> None:
    trace = matmul_loop().write(tmp_path / "baseline.json")
    folder = DataFolder(tmp_path / "data").create()
    assert ingest_into_runs(folder, [(trace, "baseline.json")]).notices == []
    assert ingest_into_runs(folder, [(trace, "baseline.json")]).notices == [], "the same file again is no news"
    other = ingest_into_runs(folder, [(trace, "other.json")])
    assert other.runs[0].name == "baseline"
    assert other.notices == ["other.json exists already as baseline.json of the run baseline, so it was not read again."]
    (named,) = ingest_into_runs(folder, [(trace, "other.json")], name="with reads").notices
    assert named == "baseline exists already and is now called with reads."


@pytest.mark.parametrize(
    ("later_s", "changed", "said"),
    [
        (0, {}, None),
        (20, {}, None),
        (3600, {}, "its samples begin more than a minute after the trace"),
        (-3600, {}, "its samples end more than a minute before the trace"),
        (0, {"host": "b"}, "it was sampled on b, and the trace was recorded on a"),
        (0, {"gpus": frozenset({"NVIDIA A100"})}, "it is of NVIDIA A100, and the trace of NVIDIA H200"),
    ],
)
def test_telemetry_of_another_time_host_or_gpu_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later_s: int, changed: dict[str, str], said: str | None
) -> None:
    trace, telemetry = sampled_loop.write(tmp_path, later_s=later_s)
    stored_origin = telemetry_match._origin

    def planted_origin(folder: DataFolder, ref: RecordingRef) -> telemetry_match._Origin | None:
        stored = stored_origin(folder, ref)
        assert stored is not None
        origin = replace(stored, host="a", gpus=frozenset({"NVIDIA H200"}))
        return replace(origin, **changed) if ref.kind == "telemetry" else origin

    monkeypatch.setattr(telemetry_match, "_origin", planted_origin)
    ingested = ingest_into_runs(DataFolder(tmp_path / "data").create(), [(trace, trace.name), (telemetry, telemetry.name)])
    assert len(ingested.runs) == 1
    assert ingested.notices == ([f"{telemetry.name}: {said}. {telemetry_match.ANOTHER_JOB}"] if said else [])


def test_a_file_with_a_generic_name_is_named_after_its_folder(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data").create()
    for number, name in enumerate(("baseline", "larger-batch")):
        (tmp_path / "runs" / name).mkdir(parents=True)
        trace = matmul_loop(steps=4 + number).write(tmp_path / "runs" / name / "trace.json")
        (run,) = ingest_into_runs(folder, files_of(trace)[0]).runs
        assert (run.name, run.recordings[0].source_name) == (name, f"{name}/trace.json")
