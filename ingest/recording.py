"""Ingest one source: detect its format, read it, write its recording and store its bytes.

If one of these steps fails, nothing is stored.
"""

from __future__ import annotations

import filecmp
import gc
import shutil
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
from isal import isal_zlib

from sawtooth.ingest.database import first_row
from sawtooth.ingest.dumps.memory_snapshot import is_snapshot
from sawtooth.ingest.errors import NotFoundError, SourceError, disk_error
from sawtooth.ingest.files import commit, draft_file, is_sound, remove_abandoned_drafts
from sawtooth.ingest.logs import compile_log, marks, stored_snapshot
from sawtooth.ingest.manifest import RecordingRef, is_id
from sawtooth.ingest.schema import SCHEMA_VERSION, DataFolder
from sawtooth.ingest.source import Limits, Source, refuse_foreign
from sawtooth.ingest.telemetry import registry as telemetry
from sawtooth.ingest.telemetry.encoding import as_utf8, find_encoding
from sawtooth.ingest.telemetry.unknown_table import refuse_printed, refuse_unknown_table
from sawtooth.ingest.trace import registry as traces
from sawtooth.ingest.trace.build import store
from sawtooth.ingest.trace.other_profiles import refuse_other_profile
from sawtooth.ingest.trace.source import TraceSource
from sawtooth.ingest.writer import Writer, tool_version

__all__ = ["IngestProgress", "Limits", "ingest_file", "read_ref"]
MAX_NAME = 200  # Stored characters of a file name or title.
StoreFunction = Callable[[Source, Writer, dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class IngestProgress:
    """The progress of an ingest.

    The numbers of bytes count the original file, before it is unpacked. ``stage`` is reading, linking, keeping (storing the source) or done.
    """

    stage: str
    bytes_done: int
    bytes_total: int
    events: int


def clean_name(name: str) -> str:
    """Return at most MAX_NAME characters of a file name.

    Folders, control and direction characters are removed.
    """
    return clean_title(name.replace("\\", "/").rsplit("/", 1)[-1])


def clean_title(name: str) -> str:
    """Return at most MAX_NAME characters of a name that a user chose, such as "lr 1/3".

    Control and direction characters are removed.
    """
    name = unicodedata.normalize("NFC", name)
    return "".join(c for c in name if unicodedata.category(c)[0] != "C")[:MAX_NAME] or "unnamed"


def ingest_file(
    source: Path,
    folder: DataFolder,
    *,
    source_name: str | None = None,
    keep_source: bool = True,
    progress: Callable[[IngestProgress], None] | None = None,
    limits: Limits = Limits(),  # noqa: B008  (frozen)
    expected_id: str | None = None,
) -> RecordingRef:
    """Ingest a trace or telemetry file into ``folder`` and return its recording.

    The format is detected from the content. If the file was ingested before, its recording is returned unchanged. Raises SourceError, and
    stores nothing, if the file cannot be used or its id is not ``expected_id``.
    """
    _prepare_folder(folder)
    name = clean_name(source_name if source_name is not None else source.name)
    report = progress or (lambda _: None)
    if (earlier := _stored_recording(source, folder)) is not None:
        _check_id(earlier.id, expected_id, name)
        return earlier
    try:
        opened_source = Source(source, limits)
        head = opened_source.head()
    except OSError as error:
        raise SourceError("E-TYPE", f"{name} cannot be read ({error.strerror}). Give a file.") from error
    store_tables = _store_function(head, name, folder, report)
    with _without_garbage_collection(), draft_file(folder.recordings) as temporary, opened_source.hash_in_parallel():
        writer = Writer(temporary)
        try:
            description = {"source_name": name, "tool_version": tool_version(), "schema_version": SCHEMA_VERSION}
            row = store_tables(opened_source, writer, description)
            _check_id(opened_source.id, expected_id, name)
            row |= description | {"id": opened_source.id, "source_bytes": opened_source.uncompressed_bytes}
            writer.insert_row("recording", row)
            writer.finish()
        finally:
            writer.close()
        target = folder.recording_file(opened_source.id)
        if keep_source:
            report(IngestProgress("keeping", opened_source.total_bytes, opened_source.total_bytes, row["event_count"]))
            _store_source(opened_source, folder.source_file(opened_source.id))
        if not target.exists() or not is_sound(target):
            commit(temporary, target)
    report(IngestProgress("done", opened_source.total_bytes, opened_source.total_bytes, row["event_count"]))
    return read_ref(target)


def _check_id(actual: str, expected: str | None, name: str) -> None:
    if expected is not None and actual != expected:
        raise SourceError(
            "E-CHANGED",
            f"{name} has changed since sawtooth map summarised it: its content has the id {actual}, the summary has {expected}. "
            "Run sawtooth map and sawtooth reduce again.",
        )


def read_ref(path: Path) -> RecordingRef:
    """Return the reference of the recording in ``path``.

    Raises NotFoundError if the file is damaged.
    """
    damaged = NotFoundError(f"Recording {path.name[:16]} is damaged. Delete it and ingest its file again.")
    try:
        row = first_row(path, "SELECT id, kind, source_name, rank, host, EXISTS (FROM samples) FROM recording")
    except duckdb.Error as error:
        raise damaged from error
    if row is None:
        raise damaged
    identifier, kind, source_name, rank, host, sampled = row
    return RecordingRef(identifier, kind, source_name, rank, host, samples=sampled and kind == "trace")


def _prepare_folder(folder: DataFolder) -> None:
    """Create the data folder if it is missing, and remove the remains of killed processes."""
    try:
        for place in (folder.create().recordings, folder.sources):
            remove_abandoned_drafts(place)
    except OSError as error:
        raise disk_error(error) from error


def _store_function(head: bytes, name: str, folder: DataFolder, report: Callable[[IngestProgress], None]) -> StoreFunction:
    """Return the function that stores a file beginning with ``head``.

    Raises SourceError for a file of a known type that Sawtooth does not read.
    """
    if marks.is_marks(head):
        return marks.store
    if compile_log.is_compile_log(head):
        return compile_log.store
    if is_snapshot(head):
        return stored_snapshot.store
    source = traces.source_for(head)
    if source is None:
        refuse_other_profile(head, name)
        if find_encoding(head) is None:
            refuse_foreign(head, name)
        if (reader := telemetry.reader_for(head)) is not None:
            return partial(telemetry.store, reader)
        refuse_printed(as_utf8(head))
        refuse_unknown_table(as_utf8(head))
        refuse_foreign(head, name)
    return lambda opened_source, writer, description: _read_trace(
        source or traces.DEFAULT, opened_source, writer, folder, report
    )


def _read_trace(
    source: TraceSource, opened_source: Source, writer: Writer, folder: DataFolder, report: Callable[[IngestProgress], None]
) -> dict[str, Any]:
    def progress(events: int) -> None:
        report(IngestProgress("reading", opened_source.read_bytes, opened_source.total_bytes, events))

    with source.read(opened_source, folder.recordings, progress) as (tables, facts):
        report(
            IngestProgress(
                "linking",
                opened_source.total_bytes,
                opened_source.total_bytes,
                sum(table.rows for table in tables.tables.values()),
            )
        )
        return store(tables, facts, writer)


def _stored_recording(source: Path, folder: DataFolder) -> RecordingRef | None:
    """Return the intact recording of ``source`` if it was stored before, else None.

    For a damaged recording, the result is None, so that ingesting the file again repairs the recording.
    """
    try:
        size = source.stat().st_size
        for stored_source in folder.sources.glob("*.json.gz"):
            identifier = stored_source.name.removesuffix(".json.gz")
            if stored_source.stat().st_size != size or not is_id(identifier) or not folder.recording_file(identifier).exists():
                continue
            if filecmp.cmp(stored_source, source, shallow=False) and is_sound(folder.recording_file(identifier)):
                return read_ref(folder.recording_file(identifier))
    except (OSError, NotFoundError):
        return None
    return None


def _store_source(opened_source: Source, target: Path) -> None:
    """Store the source compressed. A source that is already a single intact gzip member is copied."""
    if target.exists():
        return
    with draft_file(target.parent) as temporary:
        if opened_source.single_member:
            shutil.copyfile(opened_source.path, temporary)
        else:
            compressor = isal_zlib.compressobj(level=isal_zlib.ISAL_BEST_COMPRESSION, wbits=31)
            second_source = Source(opened_source.path, opened_source.limits).pieces(hashed=False)
            with temporary.open("wb") as file, closing(second_source) as pieces:
                for piece in pieces:
                    file.write(compressor.compress(piece))
                file.write(compressor.flush())
        commit(temporary, target)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Turn off the garbage collector, which would double the time of an ingest.

    The collector would examine all events repeatedly, although no event is in a reference cycle.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
