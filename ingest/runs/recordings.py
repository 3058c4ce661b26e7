"""The recordings of a run: locks and checks while it changes, and joining new ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import duckdb
import msgspec

from sawtooth.ingest.database import first_row
from sawtooth.ingest.errors import NotFoundError, disk_error
from sawtooth.ingest.locks import held
from sawtooth.ingest.manifest import Manifest, RecordingRef
from sawtooth.ingest.schema import DataFolder

CHANGING = "runs.lock"


@contextmanager
def changing(folder: DataFolder) -> Iterator[None]:
    """Lock the data folder's runs.

    What is read inside stays valid until the end. Code that removes recordings waits for code that writes them. Must not be
    nested. Raises SourceError if the folder cannot be written.
    """
    try:
        lock = (folder.root / CHANGING).open("wb")
    except OSError as error:
        raise disk_error(error) from error
    with lock, held(lock):
        yield


def still_here(folder: DataFolder, refs: list[RecordingRef]) -> None:
    """Raise NotFoundError if one of ``refs`` was deleted meanwhile with the last run that had it."""
    for ref in refs:
        if not folder.recording_file(ref.id).exists() and not folder.source_file(ref.id).exists():
            raise NotFoundError(f"{ref.source_name} was deleted while it was read in. Read it in again.")


def recorded_ns(folder: DataFolder, run: Manifest) -> int | None:
    """Return when the first of a run's traces began, Unix ns; None where no trace shows it."""
    began = [ns for ref in run.traces if (ns := _began_ns(folder.recording_file(ref.id))) is not None]
    return min(began, default=None)


@lru_cache(maxsize=1024)
def _began_ns(file: Path) -> int | None:
    """Return when a recording began.

    The result is cached: the file never changes, and a page asks for a dozen each time.
    """
    try:
        row = first_row(file, "SELECT first_ns FROM recording WHERE clock = 'unix'")
    except duckdb.Error:
        return None
    return int(row[0]) if row is not None and row[0] is not None else None


def joined(old: list[RecordingRef], new: list[RecordingRef]) -> list[RecordingRef]:
    """Return ``old`` with the recordings and clock corrections that ``new`` adds."""
    corrected = {ref.id: ref for ref in new if ref.offset_ns is not None or ref.interval_ns is not None}
    known = {ref.id for ref in old}
    kept = [
        msgspec.structs.replace(ref, offset_ns=corrected[ref.id].offset_ns, interval_ns=corrected[ref.id].interval_ns)
        if ref.id in corrected
        else ref
        for ref in old
    ]
    return [*kept, *(ref for ref in new if ref.id not in known)]
