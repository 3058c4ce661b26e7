"""Register, extend, edit and delete runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import msgspec

from sawtooth.ingest.errors import NotFoundError, UsageError
from sawtooth.ingest.manifest import BatchTrial, Manifest, RecordingRef, UserFacts, new_manifest, run_id_of
from sawtooth.ingest.runs.grouping import group
from sawtooth.ingest.runs.naming import run_name, with_rank, with_time
from sawtooth.ingest.runs.proposals import delete_proposal, needed_ids, remove_unused
from sawtooth.ingest.runs.recordings import check_not_deleted, join_refs, runs_locked
from sawtooth.ingest.schema import DataFolder


def register_run(
    folder: DataFolder,
    refs: list[RecordingRef],
    name: str | None = None,
    settings: dict[str, str] | None = None,
    *,
    notes: str = "",
    tags: list[str] | None = None,
    facts: UserFacts | None = None,
    batches: list[BatchTrial] | None = None,
    command: list[str] | None = None,
) -> Manifest:
    """Register a run of ``refs``, or extend the existing run, and return the manifest.

    An existing run keeps its name, notes, facts, batches and command unless new values are passed. New telemetry, tags and settings are
    added.
    """
    if not refs:
        raise UsageError("A run needs at least one recording.")
    refs = list({ref.id: ref for ref in refs}.values())
    with runs_locked(folder):
        check_not_deleted(folder, refs)
        try:
            old = folder.read_manifest(run_id_of(refs))
        except NotFoundError:
            manifest = new_manifest(refs, name or _new_name(folder, refs))
        else:
            manifest = msgspec.structs.replace(old, name=name or old.name, recordings=join_refs(old.recordings, refs))
        manifest = msgspec.structs.replace(
            manifest,
            notes=notes or manifest.notes,
            tags=list(dict.fromkeys([*manifest.tags, *(tags or [])])),
            settings={**manifest.settings, **(settings or {})},
            facts=manifest.facts if facts is None else facts,  # A Struct is true even if it is empty.
            batches=batches or manifest.batches,
            command=command or manifest.command,
            bundled=False,  # An example that the user ingests becomes the user's run.
        )
        folder.write_manifest(manifest)
    return manifest


def _new_name(folder: DataFolder, refs: list[RecordingRef]) -> str:
    """Return a name for a new run, with the time if another run has this name already."""
    name = with_rank(folder, refs, run_name(folder, refs))
    return with_time(folder, refs, name) if any(run.name == name for run in folder.manifests()) else name


def register_runs(
    folder: DataFolder,
    refs: list[RecordingRef],
    name: str | None = None,
    *,
    separate: bool = False,
) -> list[Manifest]:
    """Group recordings that arrived together into runs, register them, and return the manifests.

    Ranks of one job become one run, and telemetry joins the run nearest in time. With ``separate``, every trace becomes a run.
    """
    groups = group(folder, refs, separate=separate)
    return [register_run(folder, members, name if len(groups) == 1 else None) for members in groups]


def attach(folder: DataFolder, run_id: str, refs: list[RecordingRef]) -> Manifest:
    """Add recordings to a run and return its manifest.

    Telemetry does not change the run's id. A further rank changes the id. The old manifest stays, so that links to the old id still work.
    """
    with runs_locked(folder):
        check_not_deleted(folder, refs)
        old = folder.read_manifest(run_id)
        recordings = join_refs(old.recordings, refs)
        # The id of a job of many ranks does not depend on the ranks that have recordings.
        new_id = run_id_of(recordings) if old.summaries is None else old.id
        name = old.name if with_rank(folder, recordings, "") else old.name.removesuffix(with_rank(folder, old.recordings, ""))
        manifest = msgspec.structs.replace(old, id=new_id, recordings=recordings, name=name)
        folder.write_manifest(manifest)
    return manifest


def edit_run(folder: DataFolder, run_id: str, edit: Callable[[Manifest], Manifest]) -> Manifest:
    """Apply ``edit`` to a run's current manifest, and store and return the result. Raises NotFoundError.

    The runs are locked during the edit, so that no concurrent change is lost and a deleted run stays deleted.
    """
    with runs_locked(folder):
        manifest = edit(folder.read_manifest(run_id))
        folder.write_manifest(manifest)
    return manifest


def add_tags(folder: DataFolder, run_id: str, tags: Sequence[str]) -> Manifest:
    """Add ``tags`` to a run, and return its manifest. Raises NotFoundError."""
    return edit_run(folder, run_id, lambda run: msgspec.structs.replace(run, tags=list(dict.fromkeys([*run.tags, *tags]))))


def register_job(
    folder: DataFolder,
    refs: list[RecordingRef],
    summaries_id: str,
    trace_ids: list[str],
    earlier_run: str | None,
    name: str | None,
) -> Manifest:
    """Register or update the run of a job of many ranks, and return its manifest.

    ``refs`` are the recordings of some ranks. ``summaries_id`` names the file of all ranks' summaries, ``trace_ids`` the traces of all ranks.
    ``earlier_run`` is the id of the job's existing run, which keeps the id, and its name if ``name`` is None. Raises NotFoundError if this run
    was deleted in the meantime.
    """
    run_id = earlier_run or run_id_of([RecordingRef(trace_id, "trace", "") for trace_id in trace_ids])
    with runs_locked(folder):
        check_not_deleted(folder, refs)
        try:
            old = folder.read_manifest(run_id)
        except NotFoundError:
            if earlier_run is not None:
                raise NotFoundError("This job's run was deleted while its traces were ingested. Ingest it again.") from None
            old = msgspec.structs.replace(new_manifest(refs, name or run_name(folder, refs)), id=run_id)
        manifest = msgspec.structs.replace(
            old, name=name or old.name, recordings=join_refs(old.recordings, refs), summaries=summaries_id
        )
        folder.write_manifest(manifest)
        if old.summaries is not None:
            remove_unused(folder, {old.summaries})
    return manifest


def delete_run(folder: DataFolder, run_id: str) -> None:
    """Remove a run with its recordings, derived files and sources, unless another run uses them.

    Raises NotFoundError.
    """
    with runs_locked(folder):
        path = folder.manifest_file(run_id)
        if not path.exists():
            folder.read_manifest(run_id)
        recordings: set[str] = set()
        with contextlib.suppress(NotFoundError):  # A damaged manifest can be deleted too.
            recordings = needed_ids(folder, folder.read_manifest(run_id))
        path.unlink(missing_ok=True)
        delete_proposal(folder, run_id)
        remove_unused(folder, recordings)
