"""Creation, cleanup and check of the store's files.

A file begins as a locked draft, which is then renamed. A killed process leaves drafts without a lock.
``remove_abandoned_drafts`` removes them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from sawtooth.ingest.errors import SourceError, disk_error
from sawtooth.ingest.locks import exclusive_lock
from sawtooth.ingest.schema import DRAFT_PREFIX, DataFolder

LOCK_NAME = "lock"
STALE_S = 60.0  # Younger drafts are not removed, because a process may not have locked its draft yet.


@contextmanager
def draft_folder(folder: Path) -> Iterator[Path]:
    """Provide a temporary folder inside ``folder``, which is removed at the end.

    Raises SourceError if the disk is full or cannot be written.
    """
    try:
        draft_path = Path(tempfile.mkdtemp(prefix=DRAFT_PREFIX, dir=folder))
        lock = (draft_path / LOCK_NAME).open("w")
    except OSError as error:
        raise disk_error(error) from error
    try:
        with exclusive_lock(lock):
            yield draft_path
    except OSError as error:
        if error.errno is None:  # A timeout is an OSError too, but not an error of the disk.
            raise
        raise disk_error(error) from error
    except (duckdb.IOException, duckdb.FatalException) as error:
        raise SourceError(
            "E-DISK", "The data folder's disk is full or cannot be written. Free some space and try again."
        ) from error
    finally:
        lock.close()
        shutil.rmtree(draft_path, ignore_errors=True)


@contextmanager
def draft_file(folder: Path) -> Iterator[Path]:
    """Provide a path for a temporary file inside ``folder``.

    The file is removed at the end, unless ``commit`` renamed it. Raises the errors of ``draft_folder``.
    """
    with draft_folder(folder) as draft_path:
        yield draft_path / "draft"


def remove_abandoned_drafts(folder: Path, older_than_s: float = STALE_S) -> None:
    """Remove drafts of killed processes in ``folder``, whose locks are free."""
    for draft_path in folder.glob(f"{DRAFT_PREFIX}*"):
        try:
            if time.time() - draft_path.stat().st_mtime < older_than_s:
                continue
            lock = draft_path / LOCK_NAME if draft_path.is_dir() else draft_path
            if lock.exists():
                with lock.open("rb+") as file, exclusive_lock(file, wait=False):
                    pass
        except OSError:  # A process works on this draft, or has just removed it.
            continue
        if draft_path.is_dir():
            shutil.rmtree(draft_path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                draft_path.unlink()


def remove_all_abandoned_drafts(data: DataFolder, older_than_s: float = STALE_S) -> None:
    """Remove drafts of killed processes anywhere in a data folder."""
    for folder in (
        data.root,
        data.recordings,
        data.derived,
        data.sources,
        data.runs,
        data.proposals,
        data.uploads,
        data.access,
        data.live,
        *data.live.glob("*"),
    ):
        remove_abandoned_drafts(folder, older_than_s)


def is_sound(database: Path) -> bool:
    """Return whether every block of a database file can be read and matches its checksum.

    This takes about a second for 5 million events.
    """
    try:
        with duckdb.connect(str(database), read_only=True) as connection:
            tables = connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
            for (table,) in tables:
                connection.execute(f'SELECT bit_xor(hash(t)) FROM "{table}" t').fetchall()
    except duckdb.Error:
        return False
    return bool(tables)


def commit(temporary: Path, target: Path) -> None:
    """Sync ``temporary`` to the disk and rename it to ``target``."""
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    temporary.replace(target)
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
