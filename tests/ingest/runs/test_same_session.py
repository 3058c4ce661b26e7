"""Tests of telemetry and a profile of one host and time, which become one run in either order."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.runs.manifests import edit_run
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import BASE_NS, matmul_loop


def trace(folder: Path, host: str | None, note: str = "") -> tuple[Path, str]:
    loop = matmul_loop()
    loop.top |= {"made_for": note, **({"host_name": host} if host else {})}
    return loop.write(folder / f"trace{note}.json"), f"trace{note}.json"


def samples(folder: Path, host: str | None, name: str = "nvml.jsonl", later_s: int = 0, gpu: str = "NVIDIA H200") -> tuple[Path, str]:  # fmt: skip
    lines = [{"meta": True, "name": gpu, "hz": 10, "host": host}]
    lines += [
        {"t_ns": BASE_NS + later_s * 10**9 + i * 10**8 - 3 * 10**9, "gpu_util": 90, "power_w": 500.0 + len(name)}
        for i in range(80)
    ]
    path = folder / name
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path, name


@pytest.mark.parametrize("first", ["telemetry", "trace"])
def test_telemetry_of_the_same_host_and_time_is_attached(tmp_path: Path, first: str) -> None:
    data = DataFolder(tmp_path / "data").create()
    files = [samples(tmp_path, "node-7"), trace(tmp_path, "node-7.cluster.example")]
    for file in files if first == "telemetry" else files[::-1]:
        ingested = ingest_into_runs(data, [file])
    (run,) = [run for run in data.manifests() if run.traces]
    assert [ref.source_name for ref in run.telemetry] == ["nvml.jsonl"]
    (notice,) = ingested.notices
    assert notice.startswith("nvml.jsonl: it was sampled on the host of ")
    if first == "telemetry":
        assert ingested.runs == [run]


@pytest.mark.parametrize(
    ("trace_host", "samples_host", "differences"),
    [
        ("node-7", "node-8", {}),
        ("10.0.0.1", "10.0.0.2", {}),
        ("localhost", "localhost", {}),
        (None, "node-7", {}),
        ("node-7", None, {}),
        ("node-7", "node-7", {"later_s": 60}),
        ("node-7", "node-7", {"gpu": "NVIDIA A100-SXM4-80GB"}),
    ],
)
def test_uncertain_telemetry_is_not_attached(
    tmp_path: Path, trace_host: str | None, samples_host: str | None, differences: dict
) -> None:
    data = DataFolder(tmp_path / "data").create()
    path, name = trace(tmp_path, trace_host)
    if trace_host == "node-7":  # The trace names its GPU, so that telemetry of another model is known to be of another GPU.
        content = json.loads(path.read_text())
        content["deviceProperties"] = [{"id": 0, "name": "NVIDIA H200"}]
        path.write_text(json.dumps(content))
    ingest_into_runs(data, [samples(tmp_path, samples_host, **differences)])
    assert ingest_into_runs(data, [(path, name)]).runs[0].telemetry == []


def test_recordings_that_a_user_separated_stay_separate(tmp_path: Path) -> None:
    data = DataFolder(tmp_path / "data").create()
    ingest_into_runs(data, [samples(tmp_path, "node-7")])
    (run,) = ingest_into_runs(data, [trace(tmp_path, "node-7")]).runs
    assert run.telemetry
    edit_run(data, run.id, lambda run: msgspec.structs.replace(run, recordings=run.traces))
    assert ingest_into_runs(data, [trace(tmp_path, "node-8", "another")]).notices == []
    assert data.read_manifest(run.id).telemetry == []


def test_neither_of_two_recordings_of_the_host_is_attached(tmp_path: Path) -> None:
    data = DataFolder(tmp_path / "data").create()
    ingest_into_runs(data, [samples(tmp_path, "node-7", "one.jsonl")])
    ingest_into_runs(data, [samples(tmp_path, "node-7", "another.jsonl")])
    assert ingest_into_runs(data, [trace(tmp_path, "node-7")]).runs[0].telemetry == []
