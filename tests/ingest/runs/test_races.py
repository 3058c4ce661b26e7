"""Tests of concurrent ingest, edit and deletion of one run.

Afterwards, every run is complete and no edit is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sawtooth.analysis.cluster.storage import list_sources
from sawtooth.app.jobs import whole_job
from sawtooth.app.jobs.rank_summary import summarise
from sawtooth.app.jobs.whole_job import ingest_job
from sawtooth.ingest.errors import NotFoundError
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.runs import manifests, proposals
from sawtooth.ingest.runs.manifests import attach, delete_run, edit_run, register_job, register_run
from sawtooth.ingest.runs.proposals import Proposal, accept, propose
from sawtooth.ingest.schema import DataFolder
from tests.support.bulk_synchronous import Planted, job
from tests.support.prepared import folder_with_sound_run

WAIT_S = 0.3  # Operations that nothing delays end within this time.


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return folder_with_sound_run(tmp_path)


def during(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, other: Callable[[], object]) -> list[threading.Thread]:
    """Run ``other`` in a separate thread when ``owner.name`` is called.

    The result is a list that gets the thread.
    """
    original, threads = getattr(owner, name), []

    def called(*args: Any, **kwargs: Any) -> Any:
        if not threads:
            threads.append(threading.Thread(target=other))
            threads[0].start()
            threads[0].join(WAIT_S)
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, called)
    return threads


def has_all_recordings(folder: DataFolder) -> bool:
    return all(folder.recording_file(ref.id).exists() for manifest in folder.manifests() for ref in manifest.recordings)


@pytest.mark.parametrize(
    "again", [lambda f, run: register_run(f, run.recordings), lambda f, run: attach(f, run.id, run.recordings)]
)
def test_a_run_deleted_during_registration_is_complete_or_absent(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch, again: Callable[[DataFolder, Manifest], Manifest]
) -> None:
    (run,) = folder.manifests()
    threads = during(monkeypatch, manifests, "join_refs", lambda: delete_run(folder, run.id))
    again(folder, run)
    threads[0].join()
    assert has_all_recordings(folder)


def test_recordings_deleted_after_ingest_make_no_run(folder: DataFolder) -> None:
    (run,) = folder.manifests()
    delete_run(folder, run.id)
    for late in (lambda: register_run(folder, run.recordings, "late"), lambda: edit_run(folder, run.id, lambda now: now)):
        with pytest.raises(NotFoundError):
            late()
    assert folder.manifests() == []


def test_a_proposal_is_applied_completely_while_its_run_is_deleted(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = folder.manifests()
    propose(folder, Proposal(run.id, "a bundle", run.recordings, name="another"))
    threads = during(monkeypatch, proposals, "accepted", lambda: delete_run(folder, run.id))
    accept(folder, run.id)
    threads[0].join()
    assert has_all_recordings(folder)


def test_two_edits_at_once_are_both_kept(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = folder.manifests()
    threads = during(
        monkeypatch,
        msgspec.structs,
        "asdict",
        lambda: edit_run(folder, run.id, lambda now: msgspec.structs.replace(now, notes=f"{now.notes}b")),
    )

    def first(now: Manifest) -> Manifest:
        msgspec.structs.asdict(now)  # The other edit begins at this call.
        return msgspec.structs.replace(now, notes=f"{now.notes}a")

    edit_run(folder, run.id, first)
    threads[0].join()
    assert folder.read_manifest(run.id).notes == "ab"


def test_edits_of_a_job_during_ingest_are_kept(folder: DataFolder) -> None:
    (run,) = folder.manifests()
    traces = [ref.id for ref in run.recordings]
    made = register_job(folder, run.recordings, "0" * 16, traces, None, None)
    assert (made.id, made.name, made.summaries) == (
        run.id,
        run.name,
        "0" * 16,
    )  # The run of these traces becomes the job's run.
    edit_run(folder, made.id, lambda now: msgspec.structs.replace(now, name="said", notes="meanwhile"))
    renewed = register_job(folder, run.recordings, "1" * 16, traces, made.id, None)
    assert (renewed.name, renewed.notes, renewed.summaries) == ("said", "meanwhile", "1" * 16)


def test_a_job_that_is_deleted_while_its_traces_are_read_does_not_come_back(folder: DataFolder) -> None:
    (run,) = folder.manifests()
    folder.write_manifest(msgspec.structs.replace(run, id="2" * 16))  # Another run keeps the recording.
    delete_run(folder, run.id)
    with pytest.raises(NotFoundError, match="was deleted"):
        register_job(folder, run.recordings, "0" * 16, ["3" * 16], run.id, None)
    assert [left.id for left in folder.manifests()] == ["2" * 16]


@pytest.mark.slow
def test_a_job_ingested_again_keeps_notes_made_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "traces").mkdir()
    for rank, trace in enumerate(job(2, 2, Planted())):
        trace.write(tmp_path / "traces" / f"{rank}.json")
    for source in list_sources([str(tmp_path / "traces")]):
        summarise(source, str(tmp_path / "summaries"))
    folder = DataFolder(tmp_path / "data").create()
    run = ingest_job(folder, str(tmp_path / "summaries"), "named", sources=[str(tmp_path)]).manifest

    def note() -> None:
        edit_run(folder, run.id, lambda now: msgspec.structs.replace(now, name="renamed", notes="meanwhile"))

    during(monkeypatch, whole_job, "_open", note)
    again = ingest_job(folder, str(tmp_path / "summaries"), sources=[str(tmp_path)]).manifest
    assert (again.id, again.name, again.notes) == (run.id, "renamed", "meanwhile")
