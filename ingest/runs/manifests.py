"""Register, extend, edit and delete runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import msgspec

from sawtooth.ingest.errors import NotFoundError, UsageError
from sawtooth.ingest.manifest import BatchTrial, Manifest, RecordingRef, UserFacts, new_manifest, run_id_of
from sawtooth.ingest.runs.grouping import group
from sawtooth.ingest.runs.naming import name_of, with_rank, with_time
from sawtooth.ingest.runs.proposals import forget, needed, remove_unused
from sawtooth.ingest.runs.recordings import changing, check_not_deleted, joined
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
    """Make one run of ``refs`` and return its manifest.

    An existing run keeps its name, notes and facts unless new ones are passed. The telemetry and the settings are added to it.
    """
    if not refs:
        raise UsageError("A run needs at least one recording.")
    refs = list({ref.id: ref for ref in refs}.values())
    with changing(folder):
        check_not_deleted(folder, refs)
        try:
            old = folder.read_manifest(run_id_of(refs))
        except NotFoundError:
            manifest = new_manifest(refs, name or _new_name(folder, refs))
        else:
            manifest = msgspec.structs.replace(old, name=name or old.name, recordings=joined(old.recordings, refs))
        manifest = msgspec.structs.replace(
            manifest,
            notes=notes or manifest.notes,
            tags=list(dict.fromkeys([*manifest.tags, *(tags or [])])),
            settings={**manifest.settings, **(settings or {})},
            facts=manifest.facts if facts is None else facts,  # a Struct is true even if it is empty
            batches=batches or manifest.batches,
            command=command or manifest.command,
            bundled=False,  # importing it makes it a run of its own
        )
        folder.write_manifest(manifest)
    return manifest


def _new_name(folder: DataFolder, refs: list[RecordingRef]) -> str:
    """Return a name for a run without one, with its time if another run has the same name."""
    name = with_rank(folder, refs, name_of(folder, refs))
    return with_time(folder, refs, name) if any(run.name == name for run in folder.manifests()) else name


def register_runs(
    folder: DataFolder,
    refs: list[RecordingRef],
    name: str | None = None,
    *,
    separate: bool = False,
) -> list[Manifest]:
    """Group recordings that arrived together into runs, register them, and return the manifests.

    Ranks of one job become one run, and telemetry joins the run nearest in time. ``separate`` makes a run of every trace.
    """
    groups = group(folder, refs, separate=separate)
    return [register_run(folder, members, name if len(groups) == 1 else None) for members in groups]


def attach(folder: DataFolder, run_id: str, refs: list[RecordingRef]) -> Manifest:
    """Add recordings to a run and return its manifest.

    Telemetry does not change the id. A further rank gives another run id; the old manifest stays, so that links to it keep
    working.
    """
    with changing(folder):
        check_not_deleted(folder, refs)
        old = folder.read_manifest(run_id)
        recordings = joined(old.recordings, refs)
        # a job of many ranks has the same id, whichever ranks have files of their own
        new_id = run_id_of(recordings) if old.summaries is None else old.id
        name = old.name if with_rank(folder, recordings, "") else old.name.removesuffix(with_rank(folder, old.recordings, ""))
        manifest = msgspec.structs.replace(old, id=new_id, recordings=recordings, name=name)
        folder.write_manifest(manifest)
    return manifest


def edit_run(folder: DataFolder, run_id: str, edit: Callable[[Manifest], Manifest]) -> Manifest:
    """Write the result of ``edit`` on a run's current manifest.

    So no concurrent change is lost, and a deleted run stays deleted. Raises NotFoundError.
    """
    with changing(folder):
        manifest = edit(folder.read_manifest(run_id))
        folder.write_manifest(manifest)
    return manifest


def add_tags(folder: DataFolder, run_id: str, tags: Sequence[str]) -> Manifest:
    """Add ``tags`` to those of a run, and return its manifest. Raises NotFoundError."""
    return edit_run(folder, run_id, lambda run: msgspec.structs.replace(run, tags=list(dict.fromkeys([*run.tags, *tags]))))


def register_job(
    folder: DataFolder, refs: list[RecordingRef], summaries_id: str, trace_ids: list[str], known: str | None, name: str | None
) -> Manifest:
    """Make or renew the run of a job of many ranks, and return its manifest.

    ``refs`` are the ranks with recordings. ``summaries_id`` names the file of all ranks' summaries, ``trace_ids`` their traces.
    If the job already has a run, ``known``, it keeps its id, and its name if ``name`` is None. Raises NotFoundError if it was
    deleted meanwhile.
    """
    run_id = known or run_id_of([RecordingRef(trace_id, "trace", "") for trace_id in trace_ids])
    with changing(folder):
        check_not_deleted(folder, refs)
        try:
            old = folder.read_manifest(run_id)
        except NotFoundError:
            if known is not None:
                raise NotFoundError("This job's run was deleted while its traces were read in. Read it in again.") from None
            old = msgspec.structs.replace(new_manifest(refs, name or name_of(folder, refs)), id=run_id)
        manifest = msgspec.structs.replace(
            old, name=name or old.name, recordings=joined(old.recordings, refs), summaries=summaries_id
        )
        folder.write_manifest(manifest)
        if old.summaries is not None:
            remove_unused(folder, {old.summaries})
    return manifest


def delete_run(folder: DataFolder, run_id: str) -> None:
    """Remove a run with its recordings, derived files and sources, unless another run uses them.

    Raises NotFoundError.
    """
    with changing(folder):
        path = folder.manifest_file(run_id)
        if not path.exists():
            folder.read_manifest(run_id)
        recordings: set[str] = set()
        with contextlib.suppress(NotFoundError):  # a damaged manifest can be deleted too
            recordings = needed(folder, folder.read_manifest(run_id))
        path.unlink(missing_ok=True)
        forget(folder, run_id)
        remove_unused(folder, recordings)
