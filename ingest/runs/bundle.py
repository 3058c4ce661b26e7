"""A ``.sawtooth`` file: runs with their sources in one zip, to drop on another dashboard. Read member by member, never extracted by name.

Members, and no others: ``manifest.json`` (``BundleManifest`` below) and ``sources/0001.gz``, ``sources/0002.gz`` …, each one source's
uncompressed bytes, gzipped. Sources are ingested anew by whoever opens the bundle: nothing computed travels.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sawtooth.ingest.capture.packing import COPY_BYTES, FORMAT, MANIFEST, SOURCE, is_bundle, pack
from sawtooth.ingest.errors import NotFoundError, SourceError
from sawtooth.ingest.files import scratch
from sawtooth.ingest.recording import Progress, clean_name, clean_title, ingest_file
from sawtooth.ingest.runs.manifests import delete_run, register_run
from sawtooth.ingest.runs.proposals import Proposal, propose
from sawtooth.ingest.runs.redact import Redactor
from sawtooth.ingest.schema import BatchTrial, DataFolder, Interval, Manifest, RecordingRef, Shift, UserFacts, run_id_of
from sawtooth.ingest.source import Limits
from sawtooth.ingest.writer import tool_version

__all__ = [
    "BundleManifest",
    "BundleRecording",
    "BundleRun",
    "export_runs",
    "import_bundle",
    "is_bundle",
    "open_bundle",
    "write_bundle",
]
MAX_SOURCES = 4096  # ranks of the largest jobs people profile whole
MAX_MANIFEST_BYTES = 4 << 20  # some hundred bytes a recording, and notes
MAX_RUNS = 1000  # of the largest sweeps people share whole
MAX_TEXT = 100_000  # characters of notes
MAX_LABELS, MAX_LABEL = 100, 200  # tags or settings of a run, and characters of each
MAX_TRIALS = 200  # batch sizes: a search tries some twenty
PACKED_TWICE = 4  # sources are packed already: a zip that packs one far smaller holds a bomb
KINDS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
BROKEN = "The .sawtooth file is damaged or cut off. Copy or export it again."
LIES = "The .sawtooth file's list of members does not fit what it holds: it is damaged, or made to mislead. Ask its sender for it again."


def _unreadable(error: Exception) -> SourceError:
    """Return what is said of a zip that cannot be read; zipfile's own words tell a list that lies from a file that is cut off."""
    lies = any(word in str(error) for word in ("differ", "Overlapped", "overlap"))
    return SourceError("E-TRUNC", LIES if lies else BROKEN)


class BundleRecording(msgspec.Struct, frozen=True, omit_defaults=True):
    """One source: its member, the file name it had, its kind (trace, telemetry or marks), rank, host, and what was said of its clock."""

    member: str
    source_name: str
    kind: str
    rank: int | None = None
    host: str | None = None
    offset_ns: Shift | None = None
    interval_ns: Interval | None = None


class BundleRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run, as its manifest has it."""

    name: str
    recordings: list[BundleRecording]
    notes: str = ""
    tags: list[str] = []
    settings: dict[str, str] = {}
    facts: UserFacts = UserFacts()
    batches: list[BatchTrial] = []


class BundleManifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the bundle holds. ``compare`` names two runs by their positions where the bundle is a comparison."""

    runs: list[BundleRun]
    format: int = FORMAT
    tool_version: str = ""
    compare: tuple[int, int] | None = None


def write_bundle(target: Path, manifest: BundleManifest, sources: dict[str, Path]) -> None:
    """Write a bundle whole or not at all. ``sources`` maps members to files, gzipped or not, of which the bytes are taken.

    Raises ValueError where manifest and sources do not agree.
    """
    named = [recording.member for run in manifest.runs for recording in run.recordings]
    if set(named) != sources.keys() or not all(SOURCE.fullmatch(member) for member in named):
        raise ValueError("manifest and sources name different members")
    pack(target, msgspec.json.format(msgspec.json.encode(manifest), indent=1), sources)


def export_runs(
    folder: DataFolder, run_ids: list[str], target: Path, *, compare: bool = False, redact: bool = False
) -> BundleManifest:
    """Write runs of a data folder into a bundle. Raises NotFoundError for an unknown run or a source that was not kept.

    ``redact`` takes host names, home folders and paths out; see ``sawtooth.ingest.runs.redact``. The runs then have other ids.
    """
    members: dict[str, str] = {}
    runs = []
    for run_id in run_ids:
        manifest = folder.read_manifest(run_id)
        recordings = []
        for ref in manifest.recordings:
            if not folder.source_file(ref.id).exists():
                raise NotFoundError(
                    f"The source of {ref.source_name} was not kept (--no-keep-source), so the run cannot be exported."
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
        runs.append(
            BundleRun(
                name=manifest.name,
                recordings=recordings,
                notes=manifest.notes,
                tags=manifest.tags,
                settings=manifest.settings,
                facts=manifest.facts,
                batches=manifest.batches,
            )
        )
    pair = (0, 1) if compare and len(runs) == 2 else None
    whole = BundleManifest(runs, tool_version=tool_version(), compare=pair)
    sources = {member: folder.source_file(recording_id) for recording_id, member in members.items()}
    if not redact:
        write_bundle(target, whole, sources)
        return whole
    redactor = Redactor([r.host for run in runs for r in run.recordings if r.host])
    with scratch(folder.uploads) as place:
        cleaned = {member: place / Path(member).name for member in sources}
        for member, source in sources.items():
            redactor.source(source, cleaned[member])
        whole = msgspec.structs.replace(whole, runs=[_redacted(run, redactor) for run in runs])
        write_bundle(target, whole, cleaned)
    return whole


def _redacted(run: BundleRun, redactor: Redactor) -> BundleRun:
    recordings = [
        msgspec.structs.replace(r, source_name=redactor.text(r.source_name), host=redactor.host(r.host)) for r in run.recordings
    ]
    return msgspec.structs.replace(
        run,
        name=redactor.text(run.name),
        recordings=recordings,
        notes=redactor.text(run.notes),
        tags=[redactor.text(tag) for tag in run.tags],
        settings={key: redactor.text(value) for key, value in run.settings.items()},
    )


@dataclass(frozen=True)
class Bundle:
    """An open bundle, checked: its manifest, and its sources one by one."""

    manifest: BundleManifest
    archive: zipfile.ZipFile
    limits: Limits

    def copy_source(self, member: str, target: Path) -> None:
        """Copy one source (gzipped) to ``target``. Raises SourceError where the member is damaged or larger than a source may be."""
        left = self.limits.uncompressed_bytes
        try:
            with self.archive.open(member) as source, target.open("wb") as out:
                while piece := source.read(COPY_BYTES):
                    left -= len(piece)
                    if left < 0:
                        raise SourceError("E-SIZE", "A source in the .sawtooth file is larger than any source may be.")
                    out.write(piece)
        except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
            raise _unreadable(error) from error


@contextmanager
def open_bundle(path: Path, limits: Limits = Limits()) -> Iterator[Bundle]:  # noqa: B008  (frozen)
    """Open and check a bundle. Raises SourceError with one sentence for anything that is not exactly what ``write_bundle`` writes."""
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, EOFError, ValueError) as error:
        raise SourceError("E-TRUNC", BROKEN) from error
    with archive:
        infos = archive.infolist()
        names = [info.filename for info in infos]
        strange = next((n for n in names if n != MANIFEST and not SOURCE.fullmatch(n)), None)
        if MANIFEST not in names or strange is not None or len(set(names)) != len(names) or len(names) > MAX_SOURCES + 1:
            raise SourceError(
                "E-TYPE", "This zip is not a .sawtooth file: it contains members other than a manifest and sources."
            )
        if any(info.compress_type not in KINDS or info.flag_bits & 1 for info in infos):
            raise SourceError("E-TYPE", "The .sawtooth file is encrypted or packed in a way that Sawtooth does not write.")
        if any(info.file_size > PACKED_TWICE * max(info.compress_size, MAX_MANIFEST_BYTES) for info in infos):
            raise SourceError(
                "E-BOMB", "The .sawtooth file unpacks to far more than its size. It looks like a zip bomb and was refused."
            )
        yield Bundle(_manifest(archive, set(names) - {MANIFEST}), archive, limits)


def import_bundle(
    path: Path,
    folder: DataFolder,
    *,
    keep_source: bool = True,
    progress: Callable[[str, Progress], None] | None = None,
    limits: Limits = Limits(),  # noqa: B008  (frozen)
    prepare: Callable[[RecordingRef], object] | None = None,
    name: str | None = None,
) -> list[Manifest]:
    """Ingest every source of a bundle and register its runs; return their manifests. Raises SourceError, then nothing is registered.

    A run that is here already stays as it is: what the bundle says otherwise of it is kept as a proposal, see ``sawtooth.ingest.runs.proposals``.
    ``prepare`` is called with each recording before any run is registered; what it raises leaves no run. ``name``: the bundle's, for people.
    """
    folder.create()
    with open_bundle(path, limits) as bundle:
        refs: dict[str, RecordingRef] = {}
        for run in bundle.manifest.runs:
            for recording in run.recordings:
                if recording.member not in refs:
                    refs[recording.member] = _bring_in(
                        bundle=bundle,
                        recording=recording,
                        folder=folder,
                        keep_source=keep_source,
                        progress=progress,
                        limits=limits,
                    )
        if prepare is not None:
            for ref in refs.values():
                prepare(ref)
        known = {manifest.id for manifest in folder.manifests()}
        registered: list[Manifest] = []
        try:
            for run in bundle.manifest.runs:
                registered.append(_register(folder, run, refs, known, clean_name(name or path.name)))
        except BaseException:  # a disk that filled up: all of its runs, or none
            for manifest in registered:
                if manifest.id not in known:
                    delete_run(folder, manifest.id)
            raise
        return registered


def _register(folder: DataFolder, run: BundleRun, refs: dict[str, RecordingRef], known: set[str], bundle_name: str) -> Manifest:
    """Make a run that is new; what the bundle says of one in ``known`` becomes a proposal, and the run stays as it is."""
    recordings = [
        msgspec.structs.replace(refs[r.member], offset_ns=r.offset_ns, interval_ns=r.interval_ns) for r in run.recordings
    ]
    title, notes = clean_title(run.name), run.notes[:MAX_TEXT]
    settings = {key[:MAX_LABEL]: value[:MAX_LABEL] for key, value in list(run.settings.items())[:MAX_LABELS]}
    tags = [tag[:MAX_LABEL] for tag in run.tags[:MAX_LABELS]]
    batches = run.batches[:MAX_TRIALS]
    run_id = run_id_of(recordings)
    if run_id not in known:
        return register_run(folder, recordings, title, settings, notes=notes, tags=tags, facts=run.facts, batches=batches)
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
        ),
    )
    return folder.read_manifest(run_id)


def _bring_in(
    bundle: Bundle,
    recording: BundleRecording,
    folder: DataFolder,
    keep_source: bool,
    progress: Callable[[str, Progress], None] | None,
    limits: Limits,
) -> RecordingRef:
    shown = clean_name(recording.source_name)
    report = (lambda p: progress(shown, p)) if progress else None
    with scratch(folder.uploads) as place:
        source = place / "source.gz"
        bundle.copy_source(recording.member, source)
        return ingest_file(source, folder, source_name=shown, keep_source=keep_source, progress=report, limits=limits)


def _manifest(archive: zipfile.ZipFile, members: set[str]) -> BundleManifest:
    try:
        with archive.open(MANIFEST) as file:
            content = file.read(MAX_MANIFEST_BYTES + 1)
        if len(content) > MAX_MANIFEST_BYTES:
            raise SourceError("E-SIZE", "The manifest of the .sawtooth file is too large to be one.")
        manifest = msgspec.json.decode(content, type=BundleManifest)
    except (zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError) as error:
        raise _unreadable(error) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SourceError("E-JSON", f"The manifest of the .sawtooth file cannot be read ({error}).") from error
    if len(manifest.runs) > MAX_RUNS:
        raise SourceError("E-LIMIT", f"The .sawtooth file contains more than {MAX_RUNS} runs. Export fewer at a time.")
    if manifest.format > FORMAT:
        raise SourceError("E-VER", "The .sawtooth file was written by a newer Sawtooth. Update this one to open it.")
    named = {recording.member for run in manifest.runs for recording in run.recordings}
    if not manifest.runs or not named <= members or any(not run.recordings for run in manifest.runs):
        raise SourceError("E-TRUNC", "The .sawtooth file lists sources that it does not contain. Export it again.")
    return manifest
