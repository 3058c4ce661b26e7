"""Ingest one source: detect what it is, read it, write its recording, keep its bytes. Whole or nothing."""

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
from sawtooth.ingest.errors import NotFoundError, SourceError, disk_error
from sawtooth.ingest.files import commit, draft, is_sound, sweep
from sawtooth.ingest.logs import compile_log, marks
from sawtooth.ingest.manifest import RecordingRef, is_id
from sawtooth.ingest.schema import SCHEMA_VERSION, DataFolder
from sawtooth.ingest.source import Limits, Source, refuse_foreign
from sawtooth.ingest.telemetry import registry as telemetry
from sawtooth.ingest.trace import registry as traces
from sawtooth.ingest.trace.build import store
from sawtooth.ingest.trace.source import TraceSource
from sawtooth.ingest.writer import Writer, tool_version

__all__ = ["Limits", "Progress", "ingest_file", "read_ref"]
MAX_NAME = 200  # characters of a stored file name
Storing = Callable[[Source, Writer, dict[str, Any]], dict[str, Any]]  # writes the tables of a file, returns its recording row


@dataclass(frozen=True)
class Progress:
    """How far an ingest is. Bytes are those of the file as given; ``stage`` is reading, linking, keeping or done."""

    stage: str
    bytes_done: int
    bytes_total: int
    events: int


def clean_name(name: str) -> str:
    """Return a file name without folders, control and direction characters, at most MAX_NAME characters long."""
    return clean_title(name.replace("\\", "/").rsplit("/", 1)[-1])


def clean_title(name: str) -> str:
    """Return what a person called a run, "lr 1/3" say, without control and direction characters, at most MAX_NAME characters long."""
    name = unicodedata.normalize("NFC", name)
    return "".join(c for c in name if unicodedata.category(c)[0] != "C")[:MAX_NAME] or "unnamed"


def ingest_file(
    source: Path,
    folder: DataFolder,
    *,
    source_name: str | None = None,
    keep_source: bool = True,
    progress: Callable[[Progress], None] | None = None,
    limits: Limits = Limits(),  # noqa: B008  (frozen)
    expected_id: str | None = None,
) -> RecordingRef:
    """Ingest a trace or telemetry file into ``folder`` and return its recording.

    What the file is is told from its content. An already published recording is returned as it is. Raises SourceError
    when the file cannot be used, or where its content has another id than ``expected_id``; nothing is left behind then.
    """
    _swept(folder)
    name = clean_name(source_name if source_name is not None else source.name)
    report = progress or (lambda _: None)
    if (known := _known(source, folder)) is not None:
        _check_id(known.id, expected_id, name)
        return known
    try:
        opened = Source(source, limits)
        head = opened.head()
    except OSError as error:
        raise SourceError("E-TYPE", f"{name} cannot be read ({error.strerror}). Give a file.") from error
    store_tables = _storing_of(head, name, folder, report)
    with _collector_off(), draft(folder.recordings) as temporary, opened.hashing_beside():
        writer = Writer(temporary)
        try:
            about = {"source_name": name, "tool_version": tool_version(), "schema_version": SCHEMA_VERSION}
            row = store_tables(opened, writer, about)
            _check_id(opened.id, expected_id, name)
            row |= about | {"id": opened.id, "source_bytes": opened.uncompressed_bytes}
            writer.insert_row("recording", row)
            writer.finish()
        finally:
            writer.close()
        target = folder.recording_file(opened.id)
        if keep_source:
            report(Progress("keeping", opened.total_bytes, opened.total_bytes, row["event_count"]))
            _keep(opened, folder.source_file(opened.id))
        if not target.exists() or not is_sound(target):
            commit(temporary, target)
    report(Progress("done", opened.total_bytes, opened.total_bytes, row["event_count"]))
    return read_ref(target)


def _check_id(actual: str, expected: str | None, name: str) -> None:
    if expected is not None and actual != expected:
        raise SourceError(
            "E-CHANGED", f"{name} holds other content now (id {actual}) than when it was summarised (id {expected})."
        )


def read_ref(path: Path) -> RecordingRef:
    """Return the reference of the recording in ``path``. Raises NotFoundError when the file is damaged."""
    try:
        row = first_row(path, "SELECT id, kind, source_name, rank, host, EXISTS (FROM samples) FROM recording")
    except duckdb.Error as error:
        raise NotFoundError(f"Recording {path.name[:16]} is damaged. Delete it and ingest its file again.") from error
    if row is None:
        raise NotFoundError(f"Recording {path.name[:16]} is damaged. Delete it and ingest its file again.")
    identifier, kind, source_name, rank, host, sampled = row
    return RecordingRef(identifier, kind, source_name, rank, host, samples=sampled and kind == "trace")


def _swept(folder: DataFolder) -> None:
    """Make the folder where it is missing, and remove what killed processes left in it."""
    try:
        for place in (folder.create().recordings, folder.sources):
            sweep(place)
    except OSError as error:
        raise disk_error(error) from error


def _storing_of(head: bytes, name: str, folder: DataFolder, report: Callable[[Progress], None]) -> Storing:
    """Return what reads a file that begins with ``head``. Raises SourceError for what is known to be something else."""
    if marks.is_marks(head):
        return marks.store
    if compile_log.is_compile_log(head):
        return compile_log.store
    source = traces.source_for(head)
    if source is None:
        refuse_foreign(head, name)
        if (reader := telemetry.reader_for(head)) is not None:
            return partial(telemetry.store, reader)
    return lambda opened, writer, about: _read_trace(source or traces.DEFAULT, opened, writer, folder, report)


def _read_trace(
    source: TraceSource, opened: Source, writer: Writer, folder: DataFolder, report: Callable[[Progress], None]
) -> dict[str, Any]:
    def progress(events: int) -> None:
        report(Progress("reading", opened.read_bytes, opened.total_bytes, events))

    with source.read(opened, folder.recordings, progress) as (tables, facts):
        report(Progress("linking", opened.total_bytes, opened.total_bytes, sum(table.rows for table in tables.tables.values())))
        return store(tables, facts, writer)


def _known(source: Path, folder: DataFolder) -> RecordingRef | None:
    """Return the recording of ``source`` where the very same bytes are kept already and it is sound: who drops a file again may do so to mend it."""
    try:
        size = source.stat().st_size
        for kept in folder.sources.glob("*.json.gz"):
            identifier = kept.name.removesuffix(".json.gz")
            if kept.stat().st_size != size or not is_id(identifier) or not folder.recording_file(identifier).exists():
                continue
            if filecmp.cmp(kept, source, shallow=False) and is_sound(folder.recording_file(identifier)):
                return read_ref(folder.recording_file(identifier))
    except (OSError, NotFoundError):
        return None
    return None


def _keep(opened: Source, target: Path) -> None:
    """Keep the source, compressed: its own bytes where it is one sound gzip member."""
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
    """Switch the cycle collector off: millions of live events make it twice as slow, and none of them forms a cycle."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
