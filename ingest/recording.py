"""Ingest one source: detect its format, read it, write its recording and store its bytes.

Either all of this succeeds, or nothing is left.
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
from sawtooth.ingest.files import commit, draft, is_sound, sweep
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
Storing = Callable[[Source, Writer, dict[str, Any]], dict[str, Any]]  # Writes the tables of a file, returns its recording row.


@dataclass(frozen=True)
class IngestProgress:
    """The progress of an ingest.

    The bytes are the content of the original file. ``stage`` is reading, linking, keeping (storing the source) or done.
    """

    stage: str
    bytes_done: int
    bytes_total: int
    events: int


def clean_name(name: str) -> str:
    """Return a file name without folders, control and direction characters.

    It has at most MAX_NAME characters.
    """
    return clean_title(name.replace("\\", "/").rsplit("/", 1)[-1])


def clean_title(name: str) -> str:
    """Return a name that a user chose, such as "lr 1/3", without control and direction characters.

    It has at most MAX_NAME characters.
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

    The format is detected from the content. If the file was ingested before, its recording is returned unchanged. Raises SourceError if the file
    cannot be used, or if its id is not ``expected_id``; then nothing is left behind.
    """
    _swept(folder)
    name = clean_name(source_name if source_name is not None else source.name)
    report = progress or (lambda _: None)
    if (earlier := _stored_recording(source, folder)) is not None:
        _check_id(earlier.id, expected_id, name)
        return earlier
    try:
        opened = Source(source, limits)
        head = opened.head()
    except OSError as error:
        raise SourceError("E-TYPE", f"{name} cannot be read ({error.strerror}). Give a file.") from error
    store_tables = _store_function(head, name, folder, report)
    with _collector_off(), draft(folder.recordings) as temporary, opened.hashing_beside():
        writer = Writer(temporary)
        try:
            description = {"source_name": name, "tool_version": tool_version(), "schema_version": SCHEMA_VERSION}
            row = store_tables(opened, writer, description)
            _check_id(opened.id, expected_id, name)
            row |= description | {"id": opened.id, "source_bytes": opened.uncompressed_bytes}
            writer.insert_row("recording", row)
            writer.finish()
        finally:
            writer.close()
        target = folder.recording_file(opened.id)
        if keep_source:
            report(IngestProgress("keeping", opened.total_bytes, opened.total_bytes, row["event_count"]))
            _store_source(opened, folder.source_file(opened.id))
        if not target.exists() or not is_sound(target):
            commit(temporary, target)
    report(IngestProgress("done", opened.total_bytes, opened.total_bytes, row["event_count"]))
    return read_ref(target)


def _check_id(actual: str, expected: str | None, name: str) -> None:
    if expected is not None and actual != expected:
        raise SourceError("E-CHANGED", f"{name} has other content (id {actual}) than when it was summarised (id {expected}).")


def read_ref(path: Path) -> RecordingRef:
    """Return the reference of the recording in ``path``.

    Raises NotFoundError if the file is damaged.
    """
    try:
        row = first_row(path, "SELECT id, kind, source_name, rank, host, EXISTS (FROM samples) FROM recording")
    except duckdb.Error as error:
        raise NotFoundError(f"Recording {path.name[:16]} is damaged. Delete it and ingest its file again.") from error
    if row is None:
        raise NotFoundError(f"Recording {path.name[:16]} is damaged. Delete it and ingest its file again.")
    identifier, kind, source_name, rank, host, sampled = row
    return RecordingRef(identifier, kind, source_name, rank, host, samples=sampled and kind == "trace")


def _swept(folder: DataFolder) -> None:
    """Create the data folder if it is missing, and remove the remains of killed processes."""
    try:
        for place in (folder.create().recordings, folder.sources):
            sweep(place)
    except OSError as error:
        raise disk_error(error) from error


def _store_function(head: bytes, name: str, folder: DataFolder, report: Callable[[IngestProgress], None]) -> Storing:
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
    return lambda opened, writer, description: _read_trace(source or traces.DEFAULT, opened, writer, folder, report)


def _read_trace(
    source: TraceSource, opened: Source, writer: Writer, folder: DataFolder, report: Callable[[IngestProgress], None]
) -> dict[str, Any]:
    def progress(events: int) -> None:
        report(IngestProgress("reading", opened.read_bytes, opened.total_bytes, events))

    with source.read(opened, folder.recordings, progress) as (tables, facts):
        report(
            IngestProgress(
                "linking", opened.total_bytes, opened.total_bytes, sum(table.rows for table in tables.tables.values())
            )
        )
        return store(tables, facts, writer)


def _stored_recording(source: Path, folder: DataFolder) -> RecordingRef | None:
    """Return the recording of ``source`` if the same bytes are already stored and the recording is intact.

    A damaged recording is not returned, so that ingesting the file again repairs it.
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


def _store_source(opened: Source, target: Path) -> None:
    """Store the source compressed. If it is a single intact gzip member already, copy it."""
    if target.exists():
        return
    with draft(target.parent) as temporary:
        if opened.single_member:
            shutil.copyfile(opened.path, temporary)
        else:
            squeeze = isal_zlib.compressobj(level=isal_zlib.ISAL_BEST_COMPRESSION, wbits=31)
            again = Source(opened.path, opened.limits).pieces(hashed=False)
            with temporary.open("wb") as file, closing(again) as pieces:
                for piece in pieces:
                    file.write(squeeze.compress(piece))
                file.write(squeeze.flush())
        commit(temporary, target)


@contextmanager
def _collector_off() -> Iterator[None]:
    """Turn off the garbage collector, which would double the time of an ingest.

    It would examine millions of events again and again, and no event is in a reference cycle.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
