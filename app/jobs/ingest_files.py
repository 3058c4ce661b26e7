"""Ingest files, make their derived files, and join the recordings into runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sawtooth.analysis.derive.build import ensure_derived
from sawtooth.analysis.run.preview import TracePreview, first_look
from sawtooth.app.jobs.rotated_logs import rotations_joined
from sawtooth.ingest.database import first_row
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.manifest import Manifest, RecordingRef
from sawtooth.ingest.recording import IngestProgress, clean_title, ingest_file
from sawtooth.ingest.runs import clocks
from sawtooth.ingest.runs.bundle import import_bundle
from sawtooth.ingest.runs.bundle_file import is_bundle, open_bundle
from sawtooth.ingest.runs.grouping import nearest_run, traced_during
from sawtooth.ingest.runs.manifests import attach, edit_run, register_runs
from sawtooth.ingest.runs.naming import RANK_IN_NAME, identifying_name, shown_path
from sawtooth.ingest.runs.proposals import proposal_for
from sawtooth.ingest.runs.recorders import recorder_version_of, too_new
from sawtooth.ingest.runs.same_session import joined_later
from sawtooth.ingest.runs.telemetry_match import misfits
from sawtooth.ingest.schema import DataFolder
from sawtooth.ingest.telemetry.registry import reader_for

SKIPPED_SUFFIXES = (
    ".md",
    ".py",
    ".png",
    ".html",
    ".log",
    ".duckdb",
)  # Such files in a folder are skipped, except logs of samples.
HEAD_BYTES = 1 << 16  # Bytes at the start of a log that show whether it contains samples.
COMPILE_LOG_PREFIX = "dedicated_log_torch_trace"  # TORCH_TRACE's logs have names with this start and the suffix .log.
TRACE_ADDITIONS = ("compile", "memory")  # Kinds of recordings that belong to a trace.
LEFT_UNCHANGED = "exists already and was not changed, although the file describes it differently."
NO_CORRECTION = clocks.ClockCorrection()


@dataclass(frozen=True)
class IngestedFiles:
    """The result of an ingest: runs, a sentence for each unreadable file, notices, and proposals.

    Notices are about telemetry of unknown time or of another job, about files of a newer recorder, and about runs that exist
    under another name. ``proposals`` are the ids of existing runs that a bundle describes differently. These runs did not change.
    """

    runs: list[Manifest]
    refused: list[str]
    notices: list[str]
    proposals: list[str]


def ingest_into_runs(
    folder: DataFolder,
    files: list[tuple[Path, str]],
    *,
    separate: bool = False,
    keep_source: bool = True,
    name: str | None = None,
    tolerant: bool = False,
    progress: Callable[[str, IngestProgress], None] | None = None,
    on_first_look: Callable[[TracePreview], None] | None = None,
    correction: clocks.ClockCorrection = NO_CORRECTION,
) -> IngestedFiles:
    """Ingest ``files`` (path and display name) and register their runs.

    ``name`` is the name of the run, also for the only run of a ``.sawtooth`` file. ``correction`` is the user's statement about the
    telemetry's clock. An error in it is raised before any file is read. ``on_first_look`` is called with a first look at each trace.

    The first unreadable file raises its SawtoothError. With ``tolerant``, unreadable files are listed in ``refused`` instead. If no
    file can be read, the first error is raised, with the other sentences in its ``other_errors``.
    """
    correction.check()
    refs: list[RecordingRef] = []
    file_names: dict[str, str] = {}  # The file name of each recording id.
    unpacked: list[Manifest] = []
    refused: list[str] = []
    notices: list[str] = []
    first_error: SawtoothError | None = None
    with rotations_joined(files, folder.create().root) as (whole_files, joined_notices):
        notices += joined_notices
        for path, shown_name in whole_files:
            report = (lambda p, shown_name=shown_name: progress(shown_name, p)) if progress else None
            try:
                if is_bundle(path):
                    runs, recorder = _unpack(path, shown_name, folder, keep_source, progress)
                    unpacked += runs
                    notices += _too_new(shown_name, recorder)
                    continue
                ref = ingest_file(path, folder, source_name=shown_name, keep_source=keep_source, progress=report)
                if on_first_look is not None and ref.kind == "trace":
                    look = first_look(folder.recording_file(ref.id))
                    if look is not None:
                        on_first_look(look)
                ensure_derived(folder, ref.id)
                ref, clock_notices = _with_clock(_with_folder_name(ref, shown_name), shown_name, folder, correction)
                notices += clock_notices
            except SawtoothError as error:
                error.file = shown_name
                if not tolerant:
                    raise
                first_error = first_error or error
                refused.append(f"{shown_name}: {error}")
            else:
                refs.append(ref)
                file_names[ref.id] = shown_name
    if not refs and not unpacked and first_error is not None:
        first_error.other_errors = tuple(refused[1:])
        raise first_error
    if name is not None and len(unpacked) == 1:
        title = clean_title(name)
        unpacked = [edit_run(folder, unpacked[0].id, lambda run: msgspec.structs.replace(run, name=title))]
    refs = _attach_logs(folder, refs, unpacked)
    before = {run.id: run for run in folder.manifests()} if refs else {}
    runs = register_runs(folder, refs, name=name, separate=separate) if refs else []
    notices += [sentence for run in runs if run.id in before for sentence in _name_changes(before[run.id], run, file_names)]
    notices += [sentence for run in runs for sentence in misfits(folder, run, {ref.id for ref in refs})]
    later = {run.id: (run, sentence) for run, sentence in joined_later(folder, runs)} if runs else {}
    runs = [later[run.id][0] if run.id in later else run for run in runs]
    notices += [sentence for _, sentence in later.values()]
    proposals = [run.id for run in unpacked if proposal_for(folder, run.id) is not None]
    return IngestedFiles([*unpacked, *runs], refused, notices, list(dict.fromkeys(proposals)))


def _attach_logs(folder: DataFolder, refs: list[RecordingRef], unpacked: list[Manifest]) -> list[RecordingRef]:
    """Attach compile logs and memory snapshots without a trace to a run; return the other recordings.

    The run is the nearest one of ``unpacked``. If there is none, a memory snapshot is attached to the only run of the data folder
    that was profiled at the snapshot's time. ``unpacked`` then has this run too.
    """
    if any(ref.kind == "trace" for ref in refs):
        return refs
    remaining = []
    for ref in refs:
        traced = [run for run in unpacked if run.traces]
        if not traced and ref.kind == "memory":
            fitting = traced_during(folder, folder.manifests(), ref)
            traced = fitting if len(fitting) == 1 else []
            unpacked += traced
        if ref.kind not in TRACE_ADDITIONS or not traced:
            remaining.append(ref)
            continue
        run = nearest_run(folder, traced, ref).id
        changed = attach(folder, run, [ref])
        unpacked[:] = [changed if other.id == run else other for other in unpacked]
    return remaining


def _with_folder_name(ref: RecordingRef, shown_name: str) -> RecordingRef:
    """Return ``ref`` with its folder in the name, if a name like trace.json identifies no recording.

    A memory snapshot gets the rank in its name, because its content has none.
    """
    if ref.kind == "memory" and (numbers := RANK_IN_NAME.findall(ref.source_name)):
        ref = msgspec.structs.replace(ref, rank=int(numbers[-1]))
    if identifying_name(ref.source_name) is not None or (identifying := identifying_name(shown_name)) is None:
        return ref
    path = shown_name.replace("\\", "/")
    return msgspec.structs.replace(ref, source_name=clean_title(path[f"/{path}".rindex(f"/{identifying}/") :]))


def _name_changes(before: Manifest, now: Manifest, file_names: Mapping[str, str]) -> list[str]:
    """Return a notice if an existing run has a new name, or if its trace came under another file name.

    ``file_names`` maps the ids of recordings to the names of their files.
    """
    if now.name != before.name:
        return [f"{before.name} exists already and is now called {now.name}."]
    return [
        f"{file_names[ref.id]} exists already as {ref.source_name} of the run {now.name}, so it was not read again."
        for ref in before.traces
        if ref.id in file_names and Path(file_names[ref.id]).name != Path(ref.source_name).name
    ]


def _cut_off(shown_name: str, folder: DataFolder, ref: RecordingRef) -> list[str]:
    row = first_row(folder.recording_file(ref.id), "SELECT sentence FROM diagnostics WHERE key = 'truncated'")
    return [f"{shown_name}: {row[0]}"] if row else []


def _too_new(shown_name: str, recorder: str) -> list[str]:
    problem = too_new(recorder)
    return [f"{shown_name}: {problem}"] if problem else []


def _with_clock(
    ref: RecordingRef, shown_name: str, folder: DataFolder, correction: clocks.ClockCorrection
) -> tuple[RecordingRef, list[str]]:
    """Return the recording with its corrected clock (of telemetry only), and notices about it."""
    notices = _cut_off(shown_name, folder, ref)
    if ref.kind == "telemetry":
        clock, first_ns = clocks.read_clock(folder, ref)
        ref = clocks.apply(ref, clock, first_ns, correction)
        if (advice := clocks.clock_advice(ref, clock)) is not None:
            notices = [*notices, f"{shown_name}: {advice}"]
    return ref, [*notices, *_too_new(shown_name, recorder_version_of(folder, ref))]


def _unpack(
    path: Path, shown_name: str, folder: DataFolder, keep_source: bool, progress: Callable[[str, IngestProgress], None] | None
) -> tuple[list[Manifest], str]:
    """Import the runs of a ``.sawtooth`` file; return them and the version that wrote the file.

    Derived files are written before the runs, so that a full disk leaves no incomplete run.
    """
    with open_bundle(path) as bundle:
        recorder = bundle.manifest.tool_version
    runs = import_bundle(
        path,
        folder,
        keep_source=keep_source,
        progress=progress,
        prepare=lambda ref: ensure_derived(folder, ref.id),
        name=shown_name,
    )
    return runs, recorder


def _is_skipped(path: Path) -> bool:
    if path.suffix not in SKIPPED_SUFFIXES or path.name.startswith(COMPILE_LOG_PREFIX):
        return False
    return path.suffix != ".log" or not _is_telemetry(path)


def _is_telemetry(path: Path) -> bool:
    """Return whether a log has samples of a GPU; most logs are a training's output."""
    try:
        with path.open("rb") as file:
            return reader_for(file.read(HEAD_BYTES)) is not None
    except OSError:
        return False


def files_of(path: Path) -> tuple[list[tuple[Path, str]], bool]:
    """Return the files of ``path`` (a file, or a folder with all files below), and whether it is a folder."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and not _is_skipped(file))
        visible = [file for file in files if not any(part.startswith(".") for part in file.relative_to(path).parts)]
        return [(file, shown_path(file, path)) for file in visible], True
    return [(path, shown_path(path))], False
