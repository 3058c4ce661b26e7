"""Keep the manifests of runs: register, attach, edit, delete."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import msgspec

from sawtooth.ingest.errors import NotFoundError, UsageError
from sawtooth.ingest.manifest import BatchTrial, Manifest, RecordingRef, UserFacts, new_manifest, run_id_of
from sawtooth.ingest.runs.grouping import group
from sawtooth.ingest.runs.naming import dated, name_of, of_rank
from sawtooth.ingest.runs.proposals import forget, needed, remove_unused
from sawtooth.ingest.runs.recordings import changing, joined, still_here
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

    A run that exists already keeps its name, notes and facts unless new ones are given, and gains the telemetry and the settings.
    """
    if not refs:
        raise UsageError("A run needs at least one recording.")
    refs = list({ref.id: ref for ref in refs}.values())
    with changing(folder):
        still_here(folder, refs)
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
            facts=manifest.facts if facts is None else facts,  # a Struct is true even where it holds nothing
            batches=batches or manifest.batches,
            command=command or manifest.command,
            bundled=False,  # whoever brings it in has made it a run of their own
        )
        folder.write_manifest(manifest)
    return manifest


def _new_name(folder: DataFolder, refs: list[RecordingRef]) -> str:
    """Return a name for a run that nobody named, with its time where another run has the name already."""
    name = of_rank(folder, refs, name_of(folder, refs))
    return dated(folder, refs, name) if any(run.name == name for run in folder.manifests()) else name


def register_runs(
    folder: DataFolder,
    refs: list[RecordingRef],
    name: str | None = None,
    *,
    separate: bool = False,
) -> list[Manifest]:
    """Group recordings that came together into runs, register them, and return the manifests.

    Ranks of one job become one run, telemetry joins the run that is nearest in time; ``separate`` makes a run of every trace.
    """
    groups = group(folder, refs, separate=separate)
    return [register_run(folder, members, name if len(groups) == 1 else None) for members in groups]


def attach(folder: DataFolder, run_id: str, refs: list[RecordingRef]) -> Manifest:
    """Add recordings to a run and return its manifest.

    Telemetry leaves the id as it is. A further rank makes another run id; the old manifest stays, so that links to it keep their meaning.
    """
    with changing(folder):
        still_here(folder, refs)
        old = folder.read_manifest(run_id)
        recordings = joined(old.recordings, refs)
        # a job of many ranks is the same job whichever of them have files of their own
        new_id = run_id_of(recordings) if old.summaries is None else old.id
        name = old.name if of_rank(folder, recordings, "") else old.name.removesuffix(of_rank(folder, old.recordings, ""))
        manifest = msgspec.structs.replace(old, id=new_id, recordings=recordings, name=name)
        folder.write_manifest(manifest)
    return manifest


def edit_run(folder: DataFolder, run_id: str, edit: Callable[[Manifest], Manifest]) -> Manifest:
    """Write what ``edit`` makes of a run as it is now, so that nobody's words are lost and no deleted run comes back. Raises NotFoundError."""
    with changing(folder):
        manifest = edit(folder.read_manifest(run_id))
        folder.write_manifest(manifest)
    return manifest


def register_job(
    folder: DataFolder, refs: list[RecordingRef], summaries_id: str, trace_ids: list[str], known: str | None, name: str | None
) -> Manifest:
    """Make or renew the run of a job of many ranks, of which ``refs`` have recordings, and return its manifest.

    ``summaries_id`` names the file of all ranks' summaries, ``trace_ids`` their traces. The run that the job has already, ``known``, keeps its
    id, and its name where ``name`` is None. Raises NotFoundError where somebody deleted it meanwhile.
    """
    run_id = known or run_id_of([RecordingRef(trace_id, "trace", "") for trace_id in trace_ids])
    with changing(folder):
        still_here(folder, refs)
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
    """Remove a run, and its recordings, derived files and sources where no other run uses them. Raises NotFoundError."""
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
