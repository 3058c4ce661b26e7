"""Write the tables of one recording into a file.

``sawtooth.ingest.files`` publishes the file completely or not at all.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sawtooth.ingest.database import attach_new, return_connection, take_connection
from sawtooth.ingest.decode import NULL
from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.schema import schema_sql

MEMORY_LIMIT = "96MB"  # Memory limit of DuckDB. Appends need far less.
LARGEST_TABLE = "cpu_ops"  # This table has half of a trace's rows, and is stored in parallel to the other tables.


@cache
def tool_version() -> str:
    """Return the version of the installed distribution."""
    try:
        return version("sawtooth")
    except PackageNotFoundError:
        return "0"


class Writer:
    """Tables of one recording under a temporary name.

    Each insert is committed separately, because a transaction of all inserts would need too much memory. There is no log, because an
    unfinished draft is deleted. Two threads store rows while the caller prepares the next rows.
    """

    def __init__(self, path: Path) -> None:
        self._pending_rows: dict[tuple[str, tuple[str, ...]], list[tuple[Any, ...]]] = {}
        self._threads = ThreadPoolExecutor(2)
        self._last_inserts: dict[
            bool, Future[None]
        ] = {}  # The last insert into LARGEST_TABLE (True), and into another table (False).
        self._row_counts: Counter[str] = Counter()  # Number of stored rows by table.
        self._finished = False
        self._connection = take_connection(
            MEMORY_LIMIT, path.parent
        )  # Spills into the draft's folder, which is removed at the end.
        attach_new(self._connection, path, "recording_file", schema_sql())

    def insert(self, table: str, columns: dict[str, Any]) -> None:
        """Append rows.

        Values that were not recorded are NULL in int64 arrays, -1 in int32 arrays, and NaN in float arrays. The rows are stored in another
        thread. If storing fails, a later call raises the error, at the latest ``finish``.
        """
        if columns and len(next(iter(columns.values()))):
            largest = table == LARGEST_TABLE
            self._wait(largest)
            self._last_inserts[largest] = self._threads.submit(self._store, table, columns)

    def _store(self, table: str, columns: dict[str, Any]) -> None:
        rows = pa.table({name: _arrow(values) for name, values in columns.items()})
        with self._connection.cursor() as connection:
            connection.register("incoming", rows)
            connection.execute(f"INSERT INTO recording_file.{table} ({', '.join(columns)}) SELECT * FROM incoming")
            connection.unregister("incoming")
        self._row_counts[table] += rows.num_rows

    def _wait(self, *tables: bool) -> None:
        for largest in tables or (True, False):
            if (last := self._last_inserts.pop(largest, None)) is not None:
                last.result()

    def insert_later(self, table: str, row: dict[str, Any]) -> None:
        """Append one of many rows of a small table. ``finish`` writes these rows together."""
        self._pending_rows.setdefault((table, tuple(row)), []).append(tuple(row.values()))

    def insert_row(self, table: str, row: dict[str, Any]) -> None:
        """Append one row."""
        self._wait()
        placeholders = ", ".join("?" for _ in row)
        self._connection.execute(
            f"INSERT INTO {table} ({', '.join(row)}) VALUES ({placeholders})", list(map(_without_surrogates, row.values()))
        )
        self._row_counts[table] += 1

    def finish(self) -> None:
        """Write everything and close.

        Raises SourceError if the file does not have all rows that were stored.
        """
        # The last inserts run one at a time, because DuckDB 2.0 once lost one of two parallel inserts just before the checkpoint.
        self._wait()
        for (table, names), rows in self._pending_rows.items():
            self._store(table, dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
        self._connection.execute("CHECKPOINT recording_file")
        self._check()
        self._connection.execute("USE memory")
        self._connection.execute("DETACH recording_file")
        self._finished = True

    def _check(self) -> None:
        counts = " UNION ALL ".join(f"SELECT '{table}', count(*) FROM recording_file.{table}" for table in self._row_counts)
        for table, count in self._connection.execute(counts).fetchall() if counts else ():
            if count != self._row_counts[table]:
                raise SourceError(
                    "E-LOST",
                    f"{self._row_counts[table]:,} rows of {table} were written, but the file has {count:,}. Nothing was stored. Ingest the file again.",
                )

    def close(self) -> None:
        """Stop the threads and release the database, also after an error."""
        self._threads.shutdown()
        if self._finished:
            return_connection(self._connection)
        else:
            self._connection.close()


def _without_surrogates(value: Any) -> Any:
    """Return a text without lone surrogates, which JSON can contain but a database cannot store.

    Other values are returned unchanged.
    """
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


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
