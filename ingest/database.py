"""The store's DuckDB files: laid out by copying, and looked into through one instance of the process.

Starting an instance takes 14 ms of a core, and the hundreds of statements that lay out a file and explain its columns 30: as much as all the rows of
a small trace.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import duckdb

from sawtooth.ingest.schema import BLOCK_BYTES, STORAGE_VERSION

READER: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


class _Reader:
    """The instance that looks into files, one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None

    def rows(self, path: Path, select: str) -> list[tuple[Any, ...]]:
        with self._lock:
            if self._connection is None:
                self._connection = duckdb.connect(":memory:", config=READER)
            try:
                self._connection.execute(f"ATTACH '{quoted(path)}' AS looked_into (READ_ONLY); USE looked_into")
                rows = self._connection.execute(select).fetchall()
                self._connection.execute("USE memory; DETACH looked_into")
            except BaseException:  # a damaged file can leave the instance attached to it, or unusable
                connection, self._connection = self._connection, None
                with contextlib.suppress(duckdb.Error):
                    connection.close()
                raise
        return rows


_reader = _Reader()
_layouts: dict[str, bytes] = {}  # of a layout's statements the file that they make


def rows_of(path: Path, select: str) -> list[tuple[Any, ...]]:
    """Return the rows that ``select`` gives of a file of the store. Raises duckdb.Error for a missing or damaged file."""
    return _reader.rows(path, select)


def first_row(path: Path, select: str) -> tuple[Any, ...] | None:
    """Return the first of ``rows_of``, None where there is none."""
    return next(iter(rows_of(path, select)), None)


def attach_new(
    connection: duckdb.DuckDBPyConnection, path: Path, name: str, layout: str, search_path: str | None = None
) -> None:
    """Attach a new file as ``name``, with the tables and views that the statements ``layout`` make, and look for tables there first.

    It has no log: each commit to a log waits for the disk, and a draft that is not finished is thrown away. ``search_path`` is where else
    views of the layout find their tables. Raises duckdb.Error.
    """
    if layout in _layouts:
        path.write_bytes(_layouts[layout])
    options = f"STORAGE_VERSION '{STORAGE_VERSION}', RECOVERY_MODE 'NO_WAL_WRITES', BLOCK_SIZE {BLOCK_BYTES}"
    connection.execute(f"ATTACH '{quoted(path)}' AS {name} ({options})")
    connection.execute(f"SET search_path = '{search_path or f'{name}.main'}'")
    if layout not in _layouts:
        connection.execute(f"BEGIN; {layout} COMMIT; CHECKPOINT {name}")
        _layouts[layout] = path.read_bytes()


def quoted(path: Path) -> str:
    """Return ``path`` as it stands between the quotes of a statement."""
    return str(path).replace("'", "''")
