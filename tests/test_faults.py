"""Tests of injected faults: killed processes, full disks, damaged files and clock steps.

After each fault, old runs have the same numbers, no item is published incompletely, and the app continues.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import msgspec
import pytest

from sawtooth.analysis.store.library import Library
from sawtooth.analysis.version import ANALYSIS_VERSION
from sawtooth.app.jobs import leftovers
from sawtooth.app.jobs.job_files import JobRequest
from sawtooth.ingest.errors import NotFoundError, SawtoothError
from sawtooth.ingest.files import draft_folder, remove_abandoned_drafts
from sawtooth.ingest.schema import DataFolder, write_atomically
from tests.support import fault_stage as stage
from tests.support.fault_stage import bytes_in, small_disk

RENAMES = 6  # The renames of one trace are of source, recording, derived file, manifest, result and card.


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    root = tmp_path_factory.mktemp("traces")
    return stage.trace_in(root / "old.json.gz", 10), stage.trace_in(root / "new.json.gz", 60)


@pytest.fixture(scope="module")
def sound(traces, tmp_path_factory):
    """Return intact folders, with the old run and with both runs, and the runs' ids and numbers.

    Each test works on a copy.
    """
    before = DataFolder(tmp_path_factory.mktemp("sound") / "old").create()
    old = stage.ingest(before, traces[0]).id
    both = DataFolder(shutil.copytree(before.root, before.root.with_name("both")))
    new = stage.ingest(both, traces[1]).id
    return before, both, (old, stage.numbers(before, old)), (new, stage.numbers(both, new))


@pytest.fixture(scope="module")
def wanted(sound):
    """Return the id and the numbers of the new run in an ingest without faults."""
    return sound[3]


@pytest.fixture
def held(tmp_path, sound):
    """Return a data folder with the old run, its id and its numbers."""
    return DataFolder(shutil.copytree(sound[0].root, tmp_path / "data")), *sound[2]


@pytest.fixture
def both(tmp_path, sound):
    """Return a data folder with both runs, and the old run's id and numbers."""
    return DataFolder(shutil.copytree(sound[1].root, tmp_path / "data")), *sound[2]


def check(held, traces, wanted):
    """Check the state after a fault, then ingest the same trace in this process without a restart."""
    folder, old, before = held
    stage.check_complete(folder)
    assert stage.numbers(folder, old) == before
    if stage.has_run(folder, wanted[0]):  # A published run must be complete.
        assert stage.numbers(folder, wanted[0]) == wanted[1]
    assert stage.ingest(folder, traces[1]).id == wanted[0]
    assert stage.numbers(folder, wanted[0]) == wanted[1]
    assert stage.numbers(folder, old) == before
    stage.check_complete(folder)


KILLS = [(at, when) for at in range(1, RENAMES + 1) for when in ("before", "after")]
QUICK = ((1, "after"), (3, "after"), (5, "before"))


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("at", "when"), [pytest.param(*kill, marks=() if kill in QUICK else pytest.mark.slow) for kill in KILLS]
)
def test_killed_at_a_rename(held, traces, wanted, at, when):
    with stage.start(traces[1], held[0], at, when) as process:
        process.stdout.read()
    assert process.returncode == -signal.SIGKILL
    assert stage.has_run(held[0], wanted[0]) is (at > 4 or (at, when) == (4, "after"))
    check(held, traces, wanted)


def test_the_number_of_renames_of_an_ingest_is_known(held, traces, wanted):
    with stage.start(traces[1], held[0]) as process:
        assert process.stdout.read().split() == ["derived", wanted[0], str(RENAMES)]
    check(held, traces, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_killed_at_any_moment(held, traces, wanted, seed):
    with stage.start(traces[1], held[0]) as process:
        time.sleep(random.Random(seed).uniform(0.3, 3.0))  # The process must be killed at a random moment.
        process.kill()
    check(held, traces, wanted)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("most_bytes", [8 << 10, pytest.param(200 << 10, marks=pytest.mark.slow), 700 << 10])
def test_a_write_error_is_reported_and_old_runs_stay(held, traces, wanted, most_bytes):
    # A limit on the size of files replaces the full disk, because a write that exceeds it fails in the same way.
    with stage.start(traces[1], held[0], most_bytes=most_bytes) as process:
        assert process.stdout.read().split()[-1] == "E-DISK"
    assert stage.leftovers(held[0]) == []
    check(held, traces, wanted)


MAY_MOUNT = [pytest.param(share, marks=pytest.mark.slow) for share in (0, 0.3, 0.5, 0.9, 0.99)] if os.getuid() == 0 else []


@pytest.mark.parametrize("share", MAY_MOUNT)
def test_a_full_disk_is_reported_and_needs_no_restart(tmp_path, traces, wanted, share):
    # The file system is real. It is full at `share` of the space that the ingest needs. Process and folder stay the
    # same.
    spare = DataFolder(tmp_path / "spare").create()
    needs = 0
    for trace in traces:  # After the loop, ``needs`` is for the second trace, without cached results, which are optional.
        stage.ingest(spare, trace)
        needs = bytes_in(spare.root, but=".msgpack") - needs
    with small_disk(tmp_path / "disk", 64 << 20) as disk:
        folder = DataFolder(disk / "data").create()
        old = stage.ingest(folder, traces[0]).id
        held = folder, old, stage.numbers(folder, old)
        (disk / "ballast").write_bytes(b"x" * (os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize - int(share * needs)))
        library = Library(folder)
        with pytest.raises(SawtoothError, match="Free some space") as refusal:
            stage.ingest(folder, traces[1])
        assert str(disk) not in str(refusal.value)
        assert stage.leftovers(folder) == []
        assert stage.numbers(folder, old, library) == held[2]
        (disk / "ballast").unlink()
        check(held, traces, wanted)
        assert stage.numbers(folder, wanted[0], library) == wanted[1]
        library.close()


def spoil(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "empty":
        content = bytearray()
    elif how == "half":
        content = content[: len(content) // 2]
    elif how == "text":
        content = bytearray(b"damaged" * 1000)
    else:
        chance = random.Random(how)
        for _ in range(8):
            at = chance.randrange(len(content) - 32)
            content[at : at + 32] = chance.randbytes(32)
    path.unlink()  # A process that has the file open sees the old content.
    path.write_bytes(content)


DAMAGES = ["half", "1", *(pytest.param(how, marks=pytest.mark.slow) for how in ("empty", "text", *map(str, range(2, 12))))]


@pytest.mark.sweep(1)
@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_recording_is_reported_and_repaired_by_its_file(both, traces, wanted, how):
    folder, old, before = both
    run = folder.read_manifest(wanted[0])
    library = Library(folder)
    assert stage.numbers(folder, run.id, library) == wanted[1]
    library.forget(run.recordings[0].id)
    spoil(folder.recording_file(run.recordings[0].id), how)
    spoil(folder.derived_file(run.recordings[0].id, ANALYSIS_VERSION), how)
    with pytest.raises(SawtoothError, match=r"damaged\. Drop its trace again"):
        stage.numbers(folder, run.id, library)
    assert stage.numbers(folder, old, library) == before
    stage.ingest(folder, traces[1])
    check(both, traces, wanted)
    assert stage.numbers(folder, run.id, library) == wanted[1]  # This is the same library, without a restart.
    library.close()


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_derived_file_is_made_again(both, wanted, how):
    folder = both[0]
    run = folder.read_manifest(wanted[0])
    library = Library(folder)
    spoil(folder.derived_file(run.recordings[0].id, ANALYSIS_VERSION), how)
    try:
        found = stage.numbers(folder, run.id, library)
    except SawtoothError as problem:
        assert "Load the page again" in str(problem)
        found = stage.numbers(folder, run.id, library)
    assert found == wanted[1]
    library.close()


def test_a_missing_derived_file_is_made_again(both, wanted):
    folder = both[0]
    run = folder.read_manifest(wanted[0])
    library = Library(folder)
    folder.derived_file(run.recordings[0].id, ANALYSIS_VERSION).unlink()
    with library.open(run.recordings[0].id) as recording:
        assert recording.rows("SELECT count(*) FROM steps")[0][0] > 0
    library.close()


MANIFESTS = {
    "empty": b"",
    "cut": b'{"id": "0123',
    "not json": b"\xff\x00",
    "list": b"[]",
    "types": b'{"id": 5, "name": [], "recordings": {}}',
    "deep": b'{"x": ' + b"[" * 100_000,
    "another id": b'{"id": "ffffffffffffffff", "name": "x", "recordings": []}',
    "a path for an id": b'{"id": "../../../../tmp/evil", "name": "x", "recordings": []}',
    "a path for a recording": b'{"id": "%s", "name": "x", "recordings": [{"id": "../../../etc/passwd", "kind": "trace", "source_name": "x"}]}',
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("content", MANIFESTS.values(), ids=MANIFESTS.keys())
def test_a_damaged_manifest_harms_no_other_run_and_is_repaired_by_its_file(both, traces, wanted, content):
    folder, old, before = both
    folder.manifest_file(wanted[0]).write_bytes(content.replace(b"%s", wanted[0].encode()))
    assert [manifest.id for manifest in folder.manifests()] == [old]
    with pytest.raises(NotFoundError, match="damaged") as problem:
        folder.read_manifest(wanted[0])
    assert str(folder.root) not in str(problem.value)
    assert stage.numbers(folder, old) == before
    assert stage.ingest(folder, traces[1]).id == wanted[0]
    assert stage.numbers(folder, wanted[0]) == wanted[1]


def test_a_folder_instead_of_a_manifest_harms_no_other_run(held):
    held[0].manifest_file("f" * 16).mkdir()
    assert [manifest.id for manifest in held[0].manifests()] == [held[1]]


def test_a_manifest_that_cannot_be_written_is_reported(held, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sawtooth.ingest.schema.write_atomically", full)
    with pytest.raises(SawtoothError, match="Free some space") as problem:
        held[0].write_manifest(held[0].read_manifest(held[1]))
    assert str(held[0].root) not in str(problem.value)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("hours", [-24, -1, 1, 24])
def test_a_stepped_clock_removes_no_work_in_progress(tmp_path, held, hours):
    # Cleanups check locks and running processes. Only an upload without an owner is removed by its age.
    folder = held[0]
    job = folder.uploads / "job-alive"
    job.mkdir()
    write_atomically(job / "job.json", json.dumps({"data": "", "files": [], "server_pid": os.getppid()}).encode())
    now = time.time() + hours * 3600
    with draft_folder(folder.uploads) as upload:
        leftovers.remove_leftovers(folder.uploads, now)
        remove_abandoned_drafts(folder.uploads, older_than_s=-abs(hours) * 3600)
        assert job.exists() and upload.exists()
    assert msgspec.json.decode((job / "job.json").read_bytes(), type=JobRequest).server_pid == os.getppid()
    assert stage.numbers(folder, held[1]) == held[2]
