"""Write one recording file: temporary name, checkpoint, sync, rename. Whole or absent."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from ingest.decode import NULL
from ingest.errors import SourceError
from ingest.schema import SCHEMA_SQL, STORAGE_VERSION

try:
    import fcntl
except ImportError:  # not on Windows, where a killed process leaves its draft
    fcntl = None  # type: ignore[assignment]

DRAFT_PREFIX, LOCK = ".draft.", "lock"
STALE_S = 60.0  # younger drafts are let alone: their lock may not be taken yet
MEMORY_LIMIT = "96MB"  # of DuckDB while writing; appends need far less


def tool_version() -> str:
    """Return the version of the installed distribution."""
    try:
        return version("sawtooth")
    except PackageNotFoundError:
        return "0"


class Writer:
    """Tables of one recording under a temporary name.

    Each insert is committed without a log: a transaction over all of them would hold them in memory, and a draft that is not
    finished is thrown away as a whole. Rows are stored by a thread of their own while the next are linked.
    """

    def __init__(self, path: Path) -> None:
        self._waiting: dict[tuple[str, tuple[str, ...]], list[tuple[Any, ...]]] = {}
        self._storing = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None
        self._connection = duckdb.connect(":memory:", config={"memory_limit": MEMORY_LIMIT, "preserve_insertion_order": True})
        quoted = str(path).replace("'", "''")
        self._connection.execute(
            f"ATTACH '{quoted}' AS recording_file (STORAGE_VERSION '{STORAGE_VERSION}', RECOVERY_MODE 'NO_WAL_WRITES')"
        )
        self._connection.execute("USE recording_file")
        self._connection.execute(SCHEMA_SQL.read_text(encoding="utf-8"))

    def insert(self, table: str, columns: dict[str, Any]) -> None:
        """Append rows. Integer arrays hold NULL (int64) or -1 (int32) for what is not recorded, floats hold NaN.

        Trouble of one insert is raised by the call after it.
        """
        if columns and len(next(iter(columns.values()))):
            self._wait()
            self._last = self._storing.submit(self._store, table, columns)

    def _store(self, table: str, columns: dict[str, Any]) -> None:
        rows = pa.table({name: _arrow(values) for name, values in columns.items()})
        self._connection.register("incoming", rows)
        self._connection.execute(f"INSERT INTO {table} ({', '.join(columns)}) SELECT * FROM incoming")
        self._connection.unregister("incoming")

    def _wait(self) -> None:
        if self._last is not None:
            last, self._last = self._last, None
            last.result()

    def insert_later(self, table: str, row: dict[str, Any]) -> None:
        """Append one of many rows of a small table; the rows are written together."""
        self._waiting.setdefault((table, tuple(row)), []).append(tuple(row.values()))

    def insert_row(self, table: str, row: dict[str, Any]) -> None:
        """Append one row."""
        self._wait()
        marks = ", ".join("?" for _ in row)
        self._connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))

    def finish(self) -> None:
        """Write everything and close."""
        for (table, names), rows in self._waiting.items():
            self.insert(table, dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
        self._wait()
        self._connection.execute("CHECKPOINT recording_file")
        self._connection.execute("USE memory")
        self._connection.execute("DETACH recording_file")

    def close(self) -> None:
        """Close whatever is open."""
        self._storing.shutdown()
        self._connection.close()


def _arrow(values: Any) -> pa.Array:
    if not isinstance(values, np.ndarray):
        return values if isinstance(values, pa.Array) else pa.array(values)
    if values.dtype == np.int64:
        return pa.array(values, mask=values == NULL)
    if values.dtype == np.int32:
        return pa.array(values, mask=values == -1)
    if values.dtype == np.float64:
        return pa.array(values, mask=np.isnan(values))
    return pa.array(values)


@contextmanager
def draft(folder: Path) -> Iterator[Path]:
    """Give a temporary path inside ``folder``, gone at the end unless ``commit`` gave it a name. A full disk is told in words.

    It lies in a folder of its own that is locked while it is worked on, so that ``sweep`` can tell what a killed process left.
    """
    try:
        place = Path(tempfile.mkdtemp(prefix=DRAFT_PREFIX, dir=folder))
        lock = (place / LOCK).open("w")
    except OSError as error:
        raise disk_error(error) from error
    try:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield place / "draft"
    except OSError as error:
        raise disk_error(error) from error
    except (duckdb.IOException, duckdb.FatalException) as error:
        raise SourceError(
            "E-DISK", "The data folder's disk is full or cannot be written. Free some space and try again."
        ) from error
    finally:
        lock.close()
        shutil.rmtree(place, ignore_errors=True)


def sweep(folder: Path, older_than_s: float = STALE_S) -> None:
    """Remove what killed processes left in ``folder``: drafts that nobody holds the lock of."""
    for place in folder.glob(f"{DRAFT_PREFIX}*"):
        try:
            if time.time() - place.stat().st_mtime < older_than_s:
                continue
            if fcntl is not None and (place / LOCK).exists():
                with (place / LOCK).open("w") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # somebody works on it, or has just finished
            continue
        shutil.rmtree(place, ignore_errors=True)


def commit(temporary: Path, target: Path) -> None:
    """Sync ``temporary`` and give it its name."""
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    temporary.replace(target)
    _sync_folder(target.parent)


def disk_error(error: OSError) -> SourceError:
    """Return the refusal for a disk that cannot be written."""
    return SourceError(
        "E-DISK", f"The data folder cannot be written ({error.strerror or 'unknown reason'}). Free some space and try again."
    )


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
