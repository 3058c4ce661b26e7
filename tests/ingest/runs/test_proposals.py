"""Tests that a bundle never changes an existing run. The differences become a proposal."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.report import report_json
from sawtooth.analysis.store.library import Library
from sawtooth.app.cli import cli
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.manifest import Manifest, UserFacts
from sawtooth.ingest.runs.manifests import attach, delete_run, register_run
from sawtooth.ingest.runs.proposals import accept, dismiss, list_changes, proposal_for, propose
from sawtooth.ingest.schema import DataFolder
from tests.support.bundles import manifest_bytes, packed
from tests.support.pages import opened_at
from tests.support.paths import RECORDINGS
from tests.support.prepared import prepared

SMALL = RECORDINGS / "mlp_4093"


@pytest.fixture
def known(tmp_path: Path) -> tuple[DataFolder, Manifest]:
    """Return a data folder and its run, which has telemetry and facts."""
    folder = DataFolder(tmp_path / "d").create()
    run = prepared(folder, SMALL / "trace.json.gz", SMALL / "nvml.jsonl")
    owned = msgspec.structs.replace(run, facts=UserFacts(step_time_ms=100.0, samples_per_step=16.0), notes="mine", tags=["a"])
    folder.write_manifest(owned)
    return folder, owned


def bundle(tmp_path: Path, *, telemetry: dict[str, Any] | None = None, other: bytes | None = None, **answer: Any) -> Path:
    """Return a bundle of the known trace with proposals.

    ``telemetry`` has the values for the telemetry's clock, and ``other`` is a source that the data folder does not have.
    """
    members = {"sources/0001.gz": (SMALL / "trace.json.gz").read_bytes()}
    recordings = [{"member": "sources/0001.gz", "source_name": "evil.json", "kind": "trace"}]
    if telemetry is not None:
        members["sources/0002.gz"] = gzip.compress((SMALL / "nvml.jsonl").read_bytes())
        recordings.append({"member": "sources/0002.gz", "source_name": "n", "kind": "telemetry", **telemetry})
    if other is not None:
        members["sources/0003.gz"] = gzip.compress(other)
        recordings.append({"member": "sources/0003.gz", "source_name": "new.jsonl", "kind": "telemetry"})
    runs = [{"name": "theirs", "recordings": recordings, **answer}]
    return packed(tmp_path / "x.sawtooth", {"manifest.json": manifest_bytes(runs=runs), **members})


def report_of(folder: DataFolder, run: str) -> bytes:
    library = Library(folder)
    try:
        return json.dumps(report_json(result_of(folder.read_manifest(run), library)), sort_keys=True).encode()
    finally:
        library.close()


def another_gpu() -> bytes:
    return (SMALL / "nvml.jsonl").read_bytes().replace(b'"util": ', b'"util":  ', 1) + b"\n"


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    "content",
    [
        {},
        {"facts": {"step_time_ms": 1.0}},
        {"telemetry": {"offset_ns": 3_600_000_000_000}},
        {"other": another_gpu()},
        {"notes": "theirs", "tags": ["b"], "settings": {"lr": "1"}, "facts": {"peak_tflops": 1.0}},
    ],
)
def test_the_report_of_a_known_run_is_the_same_after_any_import(
    known: tuple[DataFolder, Manifest], tmp_path: Path, content: dict[str, Any]
) -> None:
    folder, run = known
    manifest, report = folder.manifest_file(run.id).read_bytes(), report_of(folder, run.id)
    ingested = ingest_into_runs(folder, [(bundle(tmp_path, **content), "x.sawtooth")])
    assert [m.id for m in ingested.runs] == ingested.proposals == [run.id]
    assert folder.manifest_file(run.id).read_bytes() == manifest
    assert report_of(folder, run.id) == report


def test_every_fact_of_a_bundle_can_be_proposed(known: tuple[DataFolder, Manifest], tmp_path: Path) -> None:
    folder, run = known
    code = {"loader_sample_code": "images.py:12 decode", "loader_collate_code": "words.py:40 pad"}
    facts = dict.fromkeys(UserFacts.__struct_fields__, 0.5) | {"loader_later_from_ns": 5} | code
    facts |= {name: 7 for name, kind in UserFacts.__annotations__.items() if kind == "Amount | None"}
    ingest_into_runs(folder, [(bundle(tmp_path, facts=facts), "x.sawtooth")])
    proposal = proposal_for(folder, run.id)
    assert proposal is not None
    proposed = {change.what: change.after for change in list_changes(run, proposal)}
    assert {name: proposed[name] for name in facts} == {name: str(value) for name, value in facts.items()}


def test_a_fact_missing_in_a_bundle_stays_when_the_proposal_is_accepted(
    known: tuple[DataFolder, Manifest], tmp_path: Path
) -> None:
    folder, run = known
    ingest_into_runs(
        folder, [(bundle(tmp_path, telemetry={"offset_ns": 5_000_000_000}, facts={"step_time_ms": 50.0}), "x.sawtooth")]
    )
    proposal = proposal_for(folder, run.id)
    assert proposal is not None
    assert {(d.what, d.before, d.after) for d in list_changes(run, proposal)} == {
        ("name", run.name, "theirs"),
        ("step_time_ms", "100", "50"),
        ("nvml.jsonl, time added (s)", "", "5"),
    }
    taken = accept(folder, run.id)
    assert taken.facts == UserFacts(step_time_ms=50.0, samples_per_step=16.0)
    assert (taken.notes, taken.tags, taken.telemetry[0].offset_ns) == ("mine", ["a"], 5_000_000_000)
    assert proposal_for(folder, run.id) is None and folder.read_manifest(run.id) == taken


@pytest.mark.parametrize("end", [dismiss, delete_run])
def test_a_new_recording_is_removed_with_its_proposal(known: tuple[DataFolder, Manifest], tmp_path: Path, end: Any) -> None:
    folder, run = known
    ingest_into_runs(folder, [(bundle(tmp_path, other=another_gpu()), "x.sawtooth")])
    proposal = proposal_for(folder, run.id)
    assert proposal is not None
    new = next(ref for ref in proposal.recordings if ref.id not in {r.id for r in run.recordings})
    assert folder.recording_file(new.id).exists()
    end(folder, run.id)
    assert not folder.recording_file(new.id).exists() and not folder.proposal_file(run.id).exists()
    assert folder.recording_file(run.recordings[0].id).exists() == (end is dismiss)


def test_a_repeated_bundle_keeps_its_proposed_recordings(known: tuple[DataFolder, Manifest], tmp_path: Path) -> None:
    folder, run = known
    for _ in range(2):
        ingest_into_runs(folder, [(bundle(tmp_path, other=another_gpu()), "x.sawtooth")])
    taken = accept(folder, run.id)
    assert len(taken.recordings) == len(run.recordings) + 1
    assert all(folder.recording_file(ref.id).exists() for ref in taken.recordings)


def test_a_recording_proposed_for_another_run_stays(known: tuple[DataFolder, Manifest], tmp_path: Path) -> None:
    folder, run = known
    ingest_into_runs(folder, [(bundle(tmp_path, other=another_gpu()), "x.sawtooth")])
    proposal = proposal_for(folder, run.id)
    assert proposal is not None
    other = register_run(folder, run.telemetry, "the telemetry alone")
    propose(folder, msgspec.structs.replace(proposal, run_id=other.id))
    dismiss(folder, run.id)
    assert all(folder.recording_file(ref.id).exists() for ref in accept(folder, other.id).recordings)


def test_a_proposal_without_changes_is_not_listed(known: tuple[DataFolder, Manifest], tmp_path: Path) -> None:
    folder, run = known
    ingest_into_runs(folder, [(bundle(tmp_path, other=another_gpu(), facts={"step_time_ms": 50.0}), "x.sawtooth")])
    proposal = proposal_for(folder, run.id)
    assert proposal is not None
    attach(folder, run.id, proposal.recordings)
    facts = UserFacts(step_time_ms=50.0, samples_per_step=16.0)
    folder.write_manifest(msgspec.structs.replace(folder.read_manifest(run.id), name="theirs", facts=facts))
    assert proposal_for(folder, run.id) is None


def test_the_command_line_shows_a_proposal_and_applies_it(known: tuple[DataFolder, Manifest], tmp_path: Path) -> None:
    folder, run = known
    command = ["import", str(bundle(tmp_path, facts={"step_time_ms": 50.0})), "--data", str(folder.root)]
    shown = CliRunner().invoke(cli, command)
    assert shown.exit_code == 0 and "step_time_ms: 100 → 50" in shown.stderr and shown.stdout == f"{run.id}\n"
    assert folder.read_manifest(run.id) == run
    assert CliRunner().invoke(cli, [*command, "--apply"]).exit_code == 0
    assert folder.read_manifest(run.id).facts.step_time_ms == 50.0


def test_the_runs_page_shows_a_proposal_and_applies_it(
    known: tuple[DataFolder, Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, run = known
    ingest_into_runs(folder, [(bundle(tmp_path, facts={"step_time_ms": 50.0}), "x.sawtooth")])
    monkeypatch.setenv("SAWTOOTH_DATA", str(folder.root))
    from sawtooth.app.settings import settings

    settings.cache_clear()
    try:
        page = opened_at("runs")
        assert any("<td>100</td>" in e.proto.body and "<td>50</td>" in e.proto.body for e in page.get("html"))
        page.button(key=f"accept-{run.id}").click().run()
        assert folder.read_manifest(run.id).facts.step_time_ms == 50.0
    finally:
        settings.cache_clear()


def test_a_full_disk_while_deriving_leaves_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: DataFolder, recording: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sawtooth.app.jobs.ingest_files.ensure_derived", full)
    folder = DataFolder(tmp_path / "d").create()
    with pytest.raises(OSError, match="No space"):
        ingest_into_runs(folder, [(bundle(tmp_path), "x.sawtooth")])
    assert folder.manifests() == []
