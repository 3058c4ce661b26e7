"""Open an untrusted SQLite file safely.

The file is opened read-only. Only plain tables, named columns and SELECT are allowed. Every size and time is limited.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from sawtooth.ingest.decode import NULL
from sawtooth.ingest.errors import SourceError

HOW_TO_EXPORT = "Export it again: nsys export --type sqlite FILE.nsys-rep"
BATCH_ROWS = 1 << 16  # Rows of a batch, which take about 10 MB as Python numbers.
MAX_BATCH_S = 120.0  # An intact file needs one second for a batch, or ten seconds on a slow disk under load.
OPCODES_PER_CLOCK_CHECK = 10_000  # SQLite executes this many instructions of its virtual machine in about 0.1 ms.
MAX_ROWS = 1 << 28  # Rows of one table. With one launch every 300 µs, a table has this many rows after 22 hours.
MAX_VALUE_BYTES = 64 << 20  # Bytes of one row. The largest usual values, payloads of NVTX ranges, have kilobytes.
HEADER_BYTES = 100  # The header of an SQLite file has this length.
ALLOWED: Final = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_PRAGMA)


class Database:
    """The tables of one export.

    Reading raises SourceError for a file that is truncated, damaged or too large.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._batch_start_s = time.monotonic()
        connection.text_factory = lambda value: value.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.set_authorizer(_authorize)
        connection.set_progress_handler(lambda: time.monotonic() - self._batch_start_s > MAX_BATCH_S, OPCODES_PER_CLOCK_CHECK)
        rows = self._all("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'")
        self.tables = {str(name) for (name,) in rows}

    def columns(self, table: str) -> set[str]:
        """Return the column names of ``table``; empty if the table does not exist.

        ``table`` is inserted into a query, so it must not come from the file.
        """
        return {str(row[1]) for row in self._all(f'PRAGMA table_info("{table}")')} if table in self.tables else set()

    def count(self, table: str) -> int:
        """Return the number of rows of ``table``, 0 if it does not exist."""
        return int(self._all(f'SELECT count(*) FROM "{table}"')[0][0]) if table in self.tables else 0

    def rows(self, table: str, columns: Sequence[str], needed: Sequence[str] = ()) -> Iterator[list[tuple[Any, ...]]]:
        """Yield batches of rows; nothing if the table does not exist.

        A value is NULL if it was not recorded or the table has no such column. Raises SourceError if one of the ``needed``
        columns is missing.
        """
        if table not in self.tables:
            return
        available = self.columns(table)
        if missing := [name for name in needed if name not in available]:
            raise SourceError(
                "E-JSON", f"Table {table} of this Nsight Systems export has no column {missing[0]}. {HOW_TO_EXPORT}"
            )
        selected = ", ".join(f'coalesce("{name}", {NULL})' if name in available else str(NULL) for name in columns)
        cursor = self._connection.cursor()
        with _source_errors():
            self._batch_start_s = time.monotonic()
            cursor.execute(f'SELECT {selected} FROM "{table}" LIMIT {MAX_ROWS + 1}')
        total = 0
        while batch := self._batch(cursor):
            total += len(batch)
            if total > MAX_ROWS:
                raise SourceError("E-LIMIT", f"Table {table} has more than {MAX_ROWS:,} rows. Profile a shorter time.")
            yield batch

    def _batch(self, cursor: sqlite3.Cursor) -> list[tuple[Any, ...]]:
        self._batch_start_s = time.monotonic()
        with _source_errors():
            return cursor.fetchmany(BATCH_ROWS)

    def text(self, number: int, max_length: int) -> str | None:
        """Return the first ``max_length`` + 1 characters of a text of table StringIds; None if it is missing."""
        if "StringIds" not in self.tables:
            return None
        values = self._all(f"SELECT substr(value, 1, {max_length + 1}) FROM StringIds WHERE id = {number} LIMIT 1")
        value = values[0][0] if values else None
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        return None if value is None else str(value)

    def _all(self, statement: str) -> list[tuple[Any, ...]]:
        with _source_errors():
            return self._connection.execute(statement).fetchall()


@contextmanager
def opened_database(path: Path) -> Iterator[Database]:
    """Open ``path``.

    Raises SourceError if the file is truncated, damaged, or not an export of Nsight Systems.
    """
    check_header(path)
    with _source_errors():
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)
    with closing(connection):
        with _source_errors():
            database = Database(connection)
        if not database.tables & {"StringIds", "META_DATA_EXPORT", "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"}:
            raise SourceError(
                "E-TYPE",
                "This is a SQLite database without the tables of Nsight Systems. Import the output of nsys export --type sqlite.",
            )
        yield database


def check_header(path: Path) -> None:
    """Raise SourceError if the header is damaged, or if the file is shorter than its header says.

    SQLite may not notice a short file.
    """
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
    page = int.from_bytes(header[16:18], "big")
    page = 1 << 16 if page == 1 else page
    if len(header) < HEADER_BYTES or page < 512 or page & (page - 1):
        raise SourceError("E-TYPE", f"This is a SQLite database whose first page is damaged. {HOW_TO_EXPORT}")
    expected, size = page * int.from_bytes(header[28:32], "big"), path.stat().st_size
    if size < expected:
        raise SourceError(
            "E-TRUNC",
            f"The Nsight Systems export is cut off, because the file has only {size:,} of {expected:,} bytes. Copy it again. {HOW_TO_EXPORT}",
        )


def _authorize(action: int, first: str | None, second: str | None, *_: Any) -> int:
    if action == sqlite3.SQLITE_PRAGMA and first != "table_info":
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and second not in ("coalesce", "count", "substr", "like"):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in ALLOWED else sqlite3.SQLITE_DENY


@contextmanager
def _source_errors() -> Iterator[None]:
    """Raise SourceError instead of sqlite3's errors."""
    try:
        yield
    except sqlite3.Error as error:
        if "interrupted" in str(error):
            raise SourceError(
                "E-LIMIT",
                f"Reading some rows of the Nsight Systems export takes longer than {MAX_BATCH_S:.0f} s, so it is probably damaged. {HOW_TO_EXPORT}",
            ) from error
        if "too big" in str(error):
            raise SourceError(
                "E-LIMIT",
                f"The Nsight Systems export has a row of more than {MAX_VALUE_BYTES >> 20} MB, which no event has. "
                f"{HOW_TO_EXPORT}",
            ) from error
        raise SourceError(
            "E-JSON", f"The Nsight Systems export is a damaged SQLite database ({str(error)[:80]}). {HOW_TO_EXPORT}"
        ) from error
