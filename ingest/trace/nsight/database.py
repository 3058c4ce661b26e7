"""Open a foreign SQLite file safely: read-only, only plain tables and named columns, only SELECT.

Every size and time is limited.
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

EXPORT = "Export it again: nsys export --type sqlite FILE.nsys-rep"
BATCH_ROWS = 1 << 16  # some 10 MB of Python numbers
BATCH_S = 120.0  # an intact file returns a batch in a second; a slow disk under load in ten
OPCODES = 10_000  # instructions of SQLite's machine between two checks of the clock: some 0.1 ms
MOST_ROWS = 1 << 28  # rows of one table: a day of launches every 300 microseconds
LONGEST_VALUE = 64 << 20  # bytes of a row: payloads of NVTX ranges have kilobytes
HEADER_BYTES = 100
ALLOWED: Final = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_PRAGMA)


class Database:
    """The tables of one export.

    Reading raises SourceError with a sentence for a file that is truncated, damaged or too large.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._since = time.monotonic()
        connection.text_factory = lambda value: value.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.set_authorizer(_authorize)
        connection.set_progress_handler(lambda: time.monotonic() - self._since > BATCH_S, OPCODES)
        listed = self._all("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'")
        self.tables = {str(name) for (name,) in listed}

    def columns(self, table: str) -> set[str]:
        """Return the names of the columns of ``table``, one of ours; empty if it does not exist."""
        return {str(row[1]) for row in self._all(f'PRAGMA table_info("{table}")')} if table in self.tables else set()

    def count(self, table: str) -> int:
        """Return the number of rows of ``table``, 0 if it does not exist."""
        return int(self._all(f'SELECT count(*) FROM "{table}"')[0][0]) if table in self.tables else 0

    def rows(self, table: str, columns: Sequence[str], needed: Sequence[str] = ()) -> Iterator[list[tuple[Any, ...]]]:
        """Yield batches of rows, nothing if there is no such table.

        NULL means not recorded, or not in this version.
        """
        if table not in self.tables:
            return
        here = self.columns(table)
        if lacking := [name for name in needed if name not in here]:
            raise SourceError("E-JSON", f"Table {table} of this Nsight Systems export has no column {lacking[0]}. {EXPORT}")
        taken = ", ".join(f'coalesce("{name}", {NULL})' if name in here else str(NULL) for name in columns)
        cursor = self._connection.cursor()
        with _errors_in_words():
            self._since = time.monotonic()
            cursor.execute(f'SELECT {taken} FROM "{table}" LIMIT {MOST_ROWS + 1}')
        total = 0
        while batch := self._batch(cursor):
            total += len(batch)
            if total > MOST_ROWS:
                raise SourceError("E-LIMIT", f"Table {table} has more than {MOST_ROWS:,} rows. Profile a shorter time.")
            yield batch

    def _batch(self, cursor: sqlite3.Cursor) -> list[tuple[Any, ...]]:
        self._since = time.monotonic()
        with _errors_in_words():
            return cursor.fetchmany(BATCH_ROWS)

    def text(self, number: int, longest: int) -> str | None:
        """Return the first ``longest`` + 1 characters of a text of table StringIds; None if it is missing."""
        if "StringIds" not in self.tables:
            return None
        values = self._all(f"SELECT substr(value, 1, {longest + 1}) FROM StringIds WHERE id = {number} LIMIT 1")
        value = values[0][0] if values else None
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else None if value is None else str(value)

    def _all(self, statement: str) -> list[tuple[Any, ...]]:
        with _errors_in_words():
            return self._connection.execute(statement).fetchall()


@contextmanager
def opened_database(path: Path) -> Iterator[Database]:
    """Open ``path``.

    Raises SourceError if it is truncated, damaged, or no export of Nsight Systems.
    """
    check_header(path)
    with _errors_in_words():
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)
    with closing(connection):
        with _errors_in_words():
            database = Database(connection)
        if not database.tables & {"StringIds", "META_DATA_EXPORT", "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"}:
            raise SourceError(
                "E-TYPE",
                "This is a SQLite database without the tables of Nsight Systems. Give what nsys export --type sqlite wrote.",
            )
        yield database


def check_header(path: Path) -> None:
    """Raise SourceError if the file is shorter than its first page says.

    SQLite itself notices that late, or never.
    """
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
    page = int.from_bytes(header[16:18], "big")
    page = 1 << 16 if page == 1 else page
    if len(header) < HEADER_BYTES or page < 512 or page & (page - 1):
        raise SourceError("E-TYPE", f"This is a SQLite database whose first page is damaged. {EXPORT}")
    expected, size = page * int.from_bytes(header[28:32], "big"), path.stat().st_size
    if size < expected:
        raise SourceError(
            "E-TRUNC",
            f"The Nsight Systems export is cut off: {size:,} of its {expected:,} bytes are here. Copy it again, or: {EXPORT}",
        )


def _authorize(action: int, first: str | None, second: str | None, *_: Any) -> int:
    if action == sqlite3.SQLITE_PRAGMA and first != "table_info":
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and second not in ("coalesce", "count", "substr", "like"):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in ALLOWED else sqlite3.SQLITE_DENY


@contextmanager
def _errors_in_words() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if "interrupted" in str(error):
            sentence = f"The Nsight Systems export takes longer than {BATCH_S:.0f} s to give some of its rows: it looks damaged. {EXPORT}"
            raise SourceError("E-LIMIT", sentence) from error
        if "too big" in str(error):
            sentence = (
                f"The Nsight Systems export has a row of more than {LONGEST_VALUE >> 20} MB, which no event has. {EXPORT}"
            )
            raise SourceError("E-LIMIT", sentence) from error
        raise SourceError(
            "E-JSON", f"The Nsight Systems export is a damaged SQLite database ({str(error)[:80]}). {EXPORT}"
        ) from error
