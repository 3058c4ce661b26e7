"""The store's DuckDB files: laid out by copying, and opened by instances that are used again.

Starting an instance takes 14 ms of a core, and the hundreds of statements that lay out a file and explain its columns 30: as much as all the rows of
a small trace.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import Any

import duckdb

from sawtooth.ingest.schema import BLOCK_BYTES, STORAGE_VERSION

CLOSED: dict[str, Any] = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}  # nothing is fetched
CORES = os.cpu_count() or 2
ROW_MEMORY = "96MB"  # for a look at single rows
LEAST_MEMORY = "16MB"  # what an instance that does nothing needs, and more

_idle: list[duckdb.DuckDBPyConnection] = []  # one at most: a process rarely works on two files at a time
_one_at_a_time = threading.Lock()
_layouts: dict[str, bytes] = {}  # of a layout's statements the file that they make


def borrow(memory_limit: str, scratch: Path | None = None) -> duckdb.DuckDBPyConnection:
    """Return an instance with nothing attached, which spills into ``scratch``, nowhere where None. Close it after an error, else ``give_back``.

    It has one thread: its rows are computed beside it, where a second costs a tenth more, and sums of fractions come out the same each time. Who
    sums millions of rows may set more (``derive.build`` does), and such sums then differ in their last digits; whoever borrows it next has one again.
    """
    with _one_at_a_time:
        connection = _idle.pop() if _idle else None
    if connection is not None:
        try:
            return _limited(connection, memory_limit, scratch)
        except duckdb.Error:  # one that has spilled keeps to its folder
            connection.close()
    return _limited(duckdb.connect(":memory:", config=CLOSED), memory_limit, scratch)


def give_back(connection: duckdb.DuckDBPyConnection) -> None:
    """Leave an instance that has nothing attached any more to the next who borrows one."""
    with _one_at_a_time:
        if not _idle:
            _idle.append(connection)
            return
    connection.close()


def _limited(connection: duckdb.DuckDBPyConnection, memory_limit: str, scratch: Path | None) -> duckdb.DuckDBPyConnection:
    connection.execute(f"SET memory_limit = '{memory_limit}'")
    connection.execute(f"SET temp_directory = '{quoted(scratch) if scratch else ''}'")
    connection.execute("SET threads = 1")
    return connection


def give_up_memory(connection: duckdb.DuckDBPyConnection, memory_limit: str) -> None:
    """Let an instance of that limit return what it keeps for later use: as much again as the rows that it gave, where no limit makes it."""
    with contextlib.suppress(duckdb.OutOfMemoryException):
        connection.execute(f"SET memory_limit = '{LEAST_MEMORY}'")
    connection.execute(f"SET memory_limit = '{memory_limit}'")


def rows_of(path: Path, select: str) -> list[tuple[Any, ...]]:
    """Return the rows that ``select`` gives of a file of the store. Raises duckdb.Error for a missing or damaged file."""
    connection = borrow(ROW_MEMORY)
    try:
        connection.execute(f"ATTACH '{quoted(path)}' AS looked_into (READ_ONLY); USE looked_into")
        rows = connection.execute(select).fetchall()
        connection.execute("USE memory; DETACH looked_into")
    except BaseException:
        connection.close()
        raise
    give_back(connection)
    return rows


def first_row(path: Path, select: str) -> tuple[Any, ...] | None:
    """Return the first of ``rows_of``, None where there is none."""
    return next(iter(rows_of(path, select)), None)


def append(connection: duckdb.DuckDBPyConnection, table: str, frame: Any) -> None:
    """Append a data frame's rows to ``table``, column by name: as Arrow, since the engine looks a frame's columns through value by value."""
    import pyarrow as pa  # only where something is written

    connection.register("incoming", pa.Table.from_pandas(frame, preserve_index=False, nthreads=1))
    connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming")
    connection.unregister("incoming")


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
