"""Tests of the recorder's version in recorded files, and of the notice about a later release."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.capture.marks import MarkWriter
from sawtooth.ingest.capture.packing import BUNDLE_FORMAT, write_archive
from sawtooth.ingest.runs import recorders
from sawtooth.ingest.runs.recorders import too_new
from sawtooth.ingest.sampler import __main__ as sampler
from sawtooth.ingest.schema import DataFolder
from tests.support.fake_nvml import FakeClock, FakeNvml


@pytest.mark.parametrize(
    ("recorder", "own_version", "reported"),
    [
        ("0.2.0", "0.1.0", True),
        ("0.10", "0.9.9", True),
        ("0.1.0", "0.1.0", False),
        ("0.1.0", "0.2.0", False),
        ("", "0.1.0", False),
        ("a fork", "0.1.0", False),
        ("9.0", "0", False),  # 0 is the version of a checkout that is not installed.
    ],
)
def test_a_later_release_is_reported(recorder: str, own_version: str, reported: bool) -> None:
    assert (too_new(recorder, own_version) is not None) is reported


def marks(folder: Path, recorder: str) -> Path:
    writer = MarkWriter(folder / "marks.jsonl", recorder=recorder)
    writer.mark(0)
    writer.close()
    return folder / "marks.jsonl"


def session(folder: Path) -> Path:
    nvml = FakeNvml(FakeClock())
    nvml.cost_s["nvmlGpmSampleGet"] = 0.1  # The fake clock advances only by the cost of calls.
    assert sampler.main(["--out", str(folder / "live"), "--seconds", "0.3", "--interval", "0.05"], nvml=nvml) == 0
    return next((folder / "live").glob("*/samples-0001.jsonl"))


def test_marks_telemetry_and_bundles_are_checked_at_ingest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "recorder_version", lambda: "7.1")
    monkeypatch.setattr(recorders, "tool_version", lambda: "7.0")
    files = {"marks.jsonl": marks(tmp_path, "8.0"), "telemetry.jsonl": session(tmp_path)}
    run = {"name": "run", "recordings": [{"member": "sources/0001.gz", "source_name": "m.jsonl", "kind": "marks"}]}
    manifest = {"runs": [run], "format": BUNDLE_FORMAT, "tool_version": "9.0"}
    files["run.sawtooth"] = tmp_path / "run.sawtooth"
    write_archive(files["run.sawtooth"], json.dumps(manifest).encode(), {"sources/0001.gz": files["marks.jsonl"]})
    notices = ingest_into_runs(DataFolder(tmp_path / "data").create(), [(path, name) for name, path in files.items()]).notices
    sentences = {name: sentence for name, _, sentence in (notice.partition(": ") for notice in notices)}
    versions = {name: sentence.split("Sawtooth ")[1].split(",")[0] for name, sentence in sentences.items()}
    assert versions == {"marks.jsonl": "8.0", "telemetry.jsonl": "7.1", "run.sawtooth": "9.0"}
