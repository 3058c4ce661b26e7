"""The recordings of a run: lock and checks while it changes, and the addition of new recordings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import duckdb
import msgspec

from sawtooth.ingest.database import first_row
from sawtooth.ingest.errors import NotFoundError, disk_error
from sawtooth.ingest.locks import exclusive_lock
from sawtooth.ingest.manifest import Manifest, RecordingRef
from sawtooth.ingest.schema import DataFolder

LOCK_FILE = "runs.lock"


@contextmanager
def runs_locked(folder: DataFolder) -> Iterator[None]:
    """Lock the data folder's runs, so that they change only inside this context.

    Code that removes recordings waits for code that adds them, and the reverse. Contexts must not be nested. Raises SourceError if the
    folder cannot be written.
    """
    try:
        lock = (folder.root / LOCK_FILE).open("wb")
    except OSError as error:
        raise disk_error(error) from error
    with lock, exclusive_lock(lock):
        yield


def check_not_deleted(folder: DataFolder, refs: list[RecordingRef]) -> None:
    """Raise NotFoundError if the files of a recording in ``refs`` were deleted with its last run."""
    for ref in refs:
        if not folder.recording_file(ref.id).exists() and not folder.source_file(ref.id).exists():
            raise NotFoundError(f"{ref.source_name} was deleted while it was ingested. Ingest it again.")


def recorded_ns(folder: DataFolder, run: Manifest) -> int | None:
    """Return the start of a run's first trace, in Unix ns; None if no trace has Unix times."""
    starts_ns = [ns for ref in run.traces if (ns := _start_ns(folder.recording_file(ref.id))) is not None]
    return min(starts_ns, default=None)


@lru_cache(maxsize=1024)
def _start_ns(file: Path) -> int | None:
    """Return the start of a recording, in Unix ns; None if unknown.

    The result is cached, because the file never changes and each page needs about a dozen of these times.
    """
    try:
        row = first_row(file, "SELECT first_ns FROM recording WHERE clock = 'unix'")
    except duckdb.Error:
        return None
    return int(row[0]) if row is not None and row[0] is not None else None


def join_refs(old: list[RecordingRef], new: list[RecordingRef]) -> list[RecordingRef]:
    """Return ``old`` with the recordings and clock corrections that ``new`` adds."""
    corrected = {ref.id: ref for ref in new if ref.offset_ns is not None or ref.interval_ns is not None}
    old_ids = {ref.id for ref in old}
    result = [
        msgspec.structs.replace(ref, offset_ns=corrected[ref.id].offset_ns, interval_ns=corrected[ref.id].interval_ns)
        if ref.id in corrected
        else ref
        for ref in old
    ]
    return [*result, *(ref for ref in new if ref.id not in old_ids)]
