"""Export and import of ``.sawtooth`` files: runs with their sources in one zip.

``sawtooth.ingest.runs.bundle_file`` describes the content. A bundle has no computed data, so an import ingests the sources again.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec

from sawtooth.ingest.capture.packing import SOURCE_MEMBER, write_archive
from sawtooth.ingest.errors import NotFoundError, SourceError, UsageError
from sawtooth.ingest.files import draft_folder
from sawtooth.ingest.loop.command import visible
from sawtooth.ingest.manifest import Manifest, RecordingRef, run_id_of
from sawtooth.ingest.recording import IngestProgress, clean_name, clean_title, ingest_file
from sawtooth.ingest.runs.bundle_file import Bundle, BundleManifest, BundleRecording, BundleRun, open_bundle
from sawtooth.ingest.runs.manifests import delete_run, register_run
from sawtooth.ingest.runs.proposals import Proposal, propose
from sawtooth.ingest.runs.redact import Redactor
from sawtooth.ingest.schema import DataFolder
from sawtooth.ingest.source import Source
from sawtooth.ingest.writer import tool_version

MAX_TEXT = 100_000  # Notes are stored up to this many characters.
MAX_LABELS, MAX_LABEL = 100, 200  # Stored tags or settings of a run, and stored characters of each.
MAX_WORDS = 1000  # Stored words of a command. They are enough for a launcher's options and a long list of files.
MAX_TRIALS = 200  # Stored batch sizes. A search tries about twenty.
MAX_RANKS = 1 << 24  # Larger ranks are damage. The largest jobs have some hundred thousand.


def write_bundle(target: Path, manifest: BundleManifest, sources: dict[str, Path]) -> None:
    """Write a bundle completely or not at all.

    ``sources`` maps members to files, gzipped or not. Raises ValueError if manifest and sources have different members.
    """
    members = [recording.member for run in manifest.runs for recording in run.recordings]
    if set(members) != sources.keys() or not all(SOURCE_MEMBER.fullmatch(member) for member in members):
        raise ValueError("manifest and sources name different members")
    write_archive(target, msgspec.json.format(msgspec.json.encode(manifest), indent=1), sources)


def _to_bundle_run(manifest: Manifest, folder: DataFolder, members: dict[str, str]) -> BundleRun:
    """Return a run in the form of a bundle, and add its sources to ``members`` (recording id → member)."""
    recordings = []
    for ref in manifest.recordings:
        if not folder.source_file(ref.id).exists():
            raise NotFoundError(
                f"The source of {ref.source_name} was not stored (--no-keep-source), so the run cannot be exported. Ingest its file again."
            )
        member = members.setdefault(ref.id, f"sources/{len(members) + 1:04d}.gz")
        recordings.append(
            BundleRecording(
                member=member,
                source_name=ref.source_name,
                kind=ref.kind,
                rank=ref.rank,
                host=ref.host,
                offset_ns=ref.offset_ns,
                interval_ns=ref.interval_ns,
            )
        )
    return BundleRun(
        name=manifest.name,
        recordings=recordings,
        notes=manifest.notes,
        tags=manifest.tags,
        settings=manifest.settings,
        facts=manifest.facts,
        batches=manifest.batches,
        command=manifest.command,
    )


def export_runs(folder: DataFolder, run_ids: list[str], target: Path, *, redact: bool = False) -> BundleManifest:
    """Write runs of a data folder into a bundle.

    ``redact`` removes host names, home folders, paths and secrets (``sawtooth.ingest.runs.redact``). Redacted runs have other ids and no
    memory snapshots. Raises NotFoundError for an unknown run or a source that was not stored.
    """
    members: dict[str, str] = {}
    manifests = [folder.read_manifest(run_id) for run_id in run_ids]
    if redact:  # A pickle cannot be redacted.
        manifests = [_without_snapshots(manifest) for manifest in manifests]
    runs = [_to_bundle_run(manifest, folder, members) for manifest in manifests]
    bundle_manifest = BundleManifest(runs, tool_version=tool_version())
    sources = {member: folder.source_file(recording_id) for recording_id, member in members.items()}
    if not redact:
        write_bundle(target, bundle_manifest, sources)
        return bundle_manifest
    redactor = Redactor([recording.host for run in runs for recording in run.recordings if recording.host])
    with draft_folder(folder.uploads) as place:
        redacted = {member: place / Path(member).name for member in sources}
        for recording_id, member in members.items():
            redactor.source(sources[member], redacted[member])
            if _source_id(redacted[member]) == recording_id:  # Nothing was removed. A blank line changes the id.
                with gzip.open(redacted[member], "ab") as file:
                    file.write(b"\n")
        bundle_manifest = msgspec.structs.replace(bundle_manifest, runs=[_redact(run, redactor) for run in runs])
        write_bundle(target, bundle_manifest, redacted)
    return bundle_manifest


def _without_snapshots(run: Manifest) -> Manifest:
    recordings = [ref for ref in run.recordings if ref.kind != "memory"]
    if not recordings:
        raise UsageError(f"{run.name} is a memory snapshot, whose paths cannot be removed. Export it without --redact.")
    return msgspec.structs.replace(run, recordings=recordings)


def _source_id(path: Path) -> str:
    source = Source(path)
    with closing(source.pieces()) as pieces:
        for _ in pieces:
            pass
    return source.id


def _redact(run: BundleRun, redactor: Redactor) -> BundleRun:
    recordings = [
        msgspec.structs.replace(recording, source_name=redactor.text(recording.source_name), host=redactor.host(recording.host))
        for recording in run.recordings
    ]
    return msgspec.structs.replace(
        run,
        name=redactor.text(run.name),
        recordings=recordings,
        notes=redactor.text(run.notes),
        tags=[redactor.text(tag) for tag in run.tags],
        settings=redactor.settings(run.settings),
        command=redactor.words(run.command),
    )


def import_bundle(
    path: Path,
    folder: DataFolder,
    *,
    keep_source: bool = True,
    progress: Callable[[str, IngestProgress], None] | None = None,
    prepare: Callable[[RecordingRef], object] | None = None,
    name: str | None = None,
) -> list[Manifest]:
    """Ingest every source of a bundle, register its runs, and return their manifests.

    A run that exists here stays unchanged. Differences in the bundle are stored as a proposal, see
    ``sawtooth.ingest.runs.proposals``. ``prepare`` is called with each recording before any run is registered. ``name`` is the bundle's name
    for users. Raises SourceError. After any error, no run is registered.
    """
    folder.create()
    with open_bundle(path) as bundle:
        refs: dict[str, RecordingRef] = {}
        for run in bundle.manifest.runs:
            for recording in run.recordings:
                if recording.member in refs:
                    continue
                try:
                    refs[recording.member] = _ingest_source(
                        bundle=bundle,
                        recording=recording,
                        folder=folder,
                        keep_source=keep_source,
                        progress=progress,
                    )
                except SourceError as error:
                    # A loop may end before the sampler's first sample. The rest of the run is still useful.
                    if error.code != "E-NOEV" or recording.kind != "telemetry" or len(run.recordings) < 2:
                        raise
        if prepare is not None:
            for ref in refs.values():
                prepare(ref)
        run_ids = {manifest.id for manifest in folder.manifests()}
        registered: list[Manifest] = []
        try:
            for run in bundle.manifest.runs:
                registered.append(_register(folder, run, refs, run_ids, clean_name(name or path.name)))
        except BaseException:  # After an error, such as a full disk, no run of the bundle stays registered.
            for manifest in registered:
                if manifest.id not in run_ids:
                    delete_run(folder, manifest.id)
            raise
        return registered


def _register(
    folder: DataFolder, run: BundleRun, refs: dict[str, RecordingRef], run_ids: set[str], bundle_name: str
) -> Manifest:
    """Register a new run; for a run in ``run_ids``, store the bundle's differences as a proposal."""
    recordings = [
        msgspec.structs.replace(
            ref, rank=_rank(ref, recording), offset_ns=recording.offset_ns, interval_ns=recording.interval_ns
        )
        for recording in run.recordings
        if (ref := refs.get(recording.member)) is not None
    ]
    title, notes = clean_title(run.name), run.notes[:MAX_TEXT]
    settings = {key[:MAX_LABEL]: value[:MAX_LABEL] for key, value in list(run.settings.items())[:MAX_LABELS]}
    tags = [tag[:MAX_LABEL] for tag in run.tags[:MAX_LABELS]]
    batches, command = run.batches[:MAX_TRIALS], [visible(word)[:MAX_LABEL] for word in run.command[:MAX_WORDS]]
    run_id = run_id_of(recordings)
    if run_id not in run_ids:
        return register_run(
            folder, recordings, title, settings, notes=notes, tags=tags, facts=run.facts, batches=batches, command=command
        )
    propose(
        folder,
        Proposal(
            run_id=run_id,
            bundle_name=bundle_name,
            recordings=recordings,
            name=title,
            notes=notes,
            tags=tags,
            settings=settings,
            facts=run.facts,
            batches=batches,
            command=command,
        ),
    )
    return folder.read_manifest(run_id)


def _rank(ref: RecordingRef, bundled: BundleRecording) -> int | None:
    """Return the rank in a source, or else a possible rank in the bundle.

    A trace without a process group contains no rank.
    """
    if ref.rank is not None or bundled.rank is None or not 0 <= bundled.rank < MAX_RANKS:
        return ref.rank
    return bundled.rank


def _ingest_source(
    bundle: Bundle,
    recording: BundleRecording,
    folder: DataFolder,
    keep_source: bool,
    progress: Callable[[str, IngestProgress], None] | None,
) -> RecordingRef:
    shown_name = clean_name(recording.source_name)
    report = (lambda p: progress(shown_name, p)) if progress else None
    with draft_folder(folder.uploads) as place:
        source = place / "source.gz"
        bundle.copy_source(recording.member, source)
        return ingest_file(source, folder, source_name=shown_name, keep_source=keep_source, progress=report)
