"""Creating and opening the store's DuckDB files, with stored layouts and reused instances of DuckDB.

Starting an instance takes 14 ms of CPU time. Creating a layout takes 30 ms, as long as storing all rows of a small trace.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import Any

import duckdb

from sawtooth.ingest.schema import BLOCK_BYTES, STORAGE_VERSION

# With these options, DuckDB does not download extensions.
NO_EXTENSIONS: dict[str, Any] = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
CORES = os.cpu_count() or 2
ROW_MEMORY = "96MB"  # Enough to read single rows.
MIN_MEMORY = "16MB"  # An idle DuckDB instance needs slightly less than this.

_idle_connections: list[duckdb.DuckDBPyConnection] = []  # At most one, because a process rarely works on two files at a time.
_idle_lock = threading.Lock()
_layouts: dict[str, bytes] = {}  # Content of a new file, by the statements that create it.


def take_connection(memory_limit: str, spill_folder: Path | None = None) -> duckdb.DuckDBPyConnection:
    """Return an instance with nothing attached, which spills into ``spill_folder``, or nowhere if None.

    After an error, close the instance; otherwise pass it to ``return_connection``. The instance has one thread. A second thread would slow
    down the threads that compute rows by a tenth. It would also change the last digits of sums of fractions. ``derive.build`` sums
    millions of rows and sets more threads. The next call sets one thread again.
    """
    with _idle_lock:
        connection = _idle_connections.pop() if _idle_connections else None
    if connection is not None:
        try:
            return _set_limits(connection, memory_limit, spill_folder)
        except duckdb.Error:  # An instance that has spilled cannot change its folder.
            connection.close()
    return _set_limits(duckdb.connect(":memory:", config=NO_EXTENSIONS), memory_limit, spill_folder)


def return_connection(connection: duckdb.DuckDBPyConnection) -> None:
    """Return an instance with nothing attached, so that the next call of ``take_connection`` can use it."""
    with _idle_lock:
        if not _idle_connections:
            _idle_connections.append(connection)
            return
    connection.close()


def _set_limits(
    connection: duckdb.DuckDBPyConnection, memory_limit: str, spill_folder: Path | None
) -> duckdb.DuckDBPyConnection:
    connection.execute(f"SET memory_limit = '{memory_limit}'")
    connection.execute(f"SET temp_directory = '{quote(spill_folder) if spill_folder else ''}'")
    connection.execute("SET threads = 1")
    return connection


def release_memory(connection: duckdb.DuckDBPyConnection, memory_limit: str) -> None:
    """Make an instance with the limit ``memory_limit`` release the memory that it keeps for later use.

    Otherwise, an instance keeps as much memory as the rows that it returned.
    """
    with contextlib.suppress(duckdb.OutOfMemoryException):
        connection.execute(f"SET memory_limit = '{MIN_MEMORY}'")
    connection.execute(f"SET memory_limit = '{memory_limit}'")


def read_rows(path: Path, select: str) -> list[tuple[Any, ...]]:
    """Return the rows of ``select`` on a file of the store.

    Raises duckdb.Error for a missing or damaged file.
    """
    connection = take_connection(ROW_MEMORY)
    try:
        connection.execute(f"ATTACH '{quote(path)}' AS attached_file (READ_ONLY); USE attached_file")
        rows = connection.execute(select).fetchall()
        connection.execute("USE memory; DETACH attached_file")
    except BaseException:
        connection.close()
        raise
    return_connection(connection)
    return rows


def first_row(path: Path, select: str) -> tuple[Any, ...] | None:
    """Return the first of ``read_rows``, or None without rows."""
    return next(iter(read_rows(path, select)), None)


def append(connection: duckdb.DuckDBPyConnection, table: str, frame: Any) -> None:
    """Append a data frame's rows to ``table``, matching columns by name.

    The rows go through Arrow, because DuckDB inspects a data frame's columns value by value.
    """
    import pyarrow as pa  # Imported only where something is written.

    connection.register("incoming", pa.Table.from_pandas(frame, preserve_index=False, nthreads=1))
    connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming")
    connection.unregister("incoming")


def attach_new(
    connection: duckdb.DuckDBPyConnection, path: Path, name: str, layout: str, search_path: str | None = None
) -> None:
    """Attach a new file as ``name`` with the tables and views of ``layout``.

    Tables, also those of the views, are then searched in ``search_path`` (default: only this file). The file has no write-ahead log, because
    each commit to a log waits for the disk, and an unfinished draft is deleted anyway. Raises duckdb.Error.
    """
    if layout in _layouts:
        path.write_bytes(_layouts[layout])
    options = f"STORAGE_VERSION '{STORAGE_VERSION}', RECOVERY_MODE 'NO_WAL_WRITES', BLOCK_SIZE {BLOCK_BYTES}"
    connection.execute(f"ATTACH '{quote(path)}' AS {name} ({options})")
    connection.execute(f"SET search_path = '{search_path or f'{name}.main'}'")
    if layout not in _layouts:
        connection.execute(f"BEGIN; {layout} COMMIT; CHECKPOINT {name}")
        _layouts[layout] = path.read_bytes()


def quote(path: Path) -> str:
    """Return ``path`` escaped for use between quotes in a statement."""
    return str(path).replace("'", "''")
