"""The process that runs a user's SQL: it reads one request and writes one answer.

Start it with ``python -m sawtooth.analysis.store.sql_process``. There are three protections, each sufficient by itself:

* Only a single reading statement is run.
* The engine has the recording attached READ_ONLY, no access to other files and a locked configuration.
* The process can no longer open or write files, and has little memory and processor time.

So neither a bug in the engine nor a malicious recording can reach another file.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
from typing import Any

import duckdb
import msgspec

from sawtooth.analysis.store.rank_causes import RankCauses, lay_over
from sawtooth.ingest.typed import from_json

ENGINE_MEMORY = "512MB"  # This is enough to sort five million rows of three columns.
PROCESS_BYTES = 3 << 30  # Limit of the address space. The engine reserves far more than it uses.
MAX_COLUMNS = 500  # Our widest table has 29 columns. Thousands of columns would take the server many seconds.
# Types that Python can represent without another module, which could no longer be loaded. All other types become texts.
PLAIN = re.compile(r"BOOLEAN|U?(TINY|SMALL|BIG|HUGE)?INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\(\d+,\d+\)|VARCHAR")
CELL_CHARACTERS = 2_000  # Limit of one text. A table cannot show more.

# schema names in the engine; a user's SQL may use them
RECORDING, DERIVED, SUMS, RANKS = ("recording_file", "derived_file", "sums_file", "memory.ranks")

Cell = str | int | float | bool | None


class QueryRequest(msgspec.Struct, frozen=True):
    """The statement to run, and the limits of the answer.

    ``recording``, ``derived`` and ``sums`` (None without sums) are paths relative to the working directory. ``causes`` has the
    results of the run's ranks for this recording.
    """

    sql: str
    recording: str
    derived: str
    sums: str | None
    causes: RankCauses | None
    rows: int
    answer_bytes: int
    processor_seconds: int


class QueryAnswer(msgspec.Struct, frozen=True):
    """The first rows of the result with the names and SQL types of the columns, or a ``problem`` as text."""

    columns: list[str] = []
    types: list[str] = []
    rows: list[list[Cell]] = []
    more: bool = False
    problem: str | None = None


def main() -> None:
    """Answer the request on standard input."""
    request = from_json(sys.stdin.buffer.read(), QueryRequest)
    try:
        answer = run(request)
    except MemoryError:
        answer = QueryAnswer(problem="The query ran out of memory. Query fewer rows or columns.")
    sys.stdout.buffer.write(msgspec.json.encode(answer))


def run(request: QueryRequest) -> QueryAnswer:
    """Run the request's statement and return its answer; this limits the process permanently."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(5)  # Pages have priority.
    con = _engine(request)
    _limit_this_process(request.processor_seconds)
    try:
        if problem := refusal(con, request.sql):
            return QueryAnswer(problem=problem)
        return _first_rows(con, request, _execute(con, request.sql))
    except duckdb.Error as error:
        return QueryAnswer(problem=str(error).partition("\nTraceback")[0])
    except Exception as error:  # The answer may contain a type without a Python equivalent.
        return QueryAnswer(
            problem=f"The answer contains a value that cannot be shown ({type(error).__name__}). Cast it to VARCHAR."
        )


def _execute(con: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    """Run a statement and return the names of its columns.

    Values that are neither numbers nor texts are converted to texts by the engine.
    """
    con.execute(sql)
    names, kinds = [str(column[0]) for column in con.description], [str(column[1]) for column in con.description]
    if not all(map(PLAIN.fullmatch, kinds)):
        inner = ", ".join(f"c{at}" for at in range(len(kinds)))
        selected = ", ".join(f"c{at}" if PLAIN.fullmatch(kind) else f"c{at}::VARCHAR" for at, kind in enumerate(kinds))
        statement = con.extract_statements(sql)[0].query.strip().rstrip(";")
        con.execute(f"SELECT {selected} FROM (\n{statement}\n) AS asked({inner})")
    return names


def refusal(con: duckdb.DuckDBPyConnection, sql: str) -> str | None:
    """Return why ``sql`` is not run; None for one reading statement.

    Raises duckdb.Error for text that cannot be parsed.
    """
    statements = con.extract_statements(sql)
    if len(statements) != 1:
        return f"Only one statement can be run at a time. This text has {len(statements)}."
    kind = statements[0].type
    if kind != duckdb.StatementType.SELECT:
        return f"Only statements that read can be run, such as SELECT, DESCRIBE and SUMMARIZE. This one is {kind.name}."
    return None


def _engine(request: QueryRequest) -> duckdb.DuckDBPyConnection:
    """Attach the files and lock the engine, so that it can reach nothing else."""
    con = duckdb.connect(
        ":memory:",
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "python_enable_replacements": "false",  # Otherwise a table's name could refer to a variable of this program.
            "threads": "1",
            "memory_limit": ENGINE_MEMORY,
            "temp_directory": "",
        },
    )
    files = {RECORDING: request.recording, **({SUMS: request.sums} if request.sums else {}), DERIVED: request.derived}
    for alias, path in files.items():
        con.execute(f"ATTACH '{path.replace(chr(39), chr(39) * 2)}' AS {alias} (READ_ONLY)")
    places = [f"{alias}.main" for alias in files]
    if request.causes is not None:
        lay_over(con, RECORDING, DERIVED, request.causes, RANKS, SUMS if request.sums else None)
        places.insert(0, RANKS)
    con.execute(f"SET search_path = '{','.join(places)}'")
    con.execute("SELECT 1.5").fetchall()  # Load Python's module for decimals now, because later no file can be opened.
    con.execute("SET allowed_directories = []")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")
    return con


def _limit_this_process(processor_seconds: int) -> None:
    """Remove rights and limit resources that a query does not need.

    Windows has no such limits, so only the other two protections apply there.
    """
    try:
        import resource
    except ImportError:
        return
    limits = {
        resource.RLIMIT_NOFILE: 0,  # From here on, no file, socket or pipe can be opened; open ones stay open.
        resource.RLIMIT_FSIZE: 0,  # Nothing can be written except the answer, which goes into a pipe.
        resource.RLIMIT_AS: PROCESS_BYTES,
        resource.RLIMIT_CPU: processor_seconds,
        resource.RLIMIT_CORE: 0,
    }
    for which, limit in limits.items():
        hard = resource.getrlimit(which)[1]
        value = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS refuses RLIMIT_AS.
            resource.setrlimit(which, (value, value))


def _first_rows(con: duckdb.DuckDBPyConnection, request: QueryRequest, columns: list[str]) -> QueryAnswer:
    types = [str(c[1]) for c in con.description]
    if len(columns) > MAX_COLUMNS:
        return QueryAnswer(problem=f"The answer has {len(columns):,} columns. The limit is {MAX_COLUMNS}.")
    rows: list[list[Cell]] = []
    remaining_bytes = request.answer_bytes
    while chunk := con.fetchmany(256):
        for row in chunk:
            cells = [_cell(value) for value in row]
            remaining_bytes -= sum(len(cell) if isinstance(cell, str) else 12 for cell in cells)
            if len(rows) == request.rows or remaining_bytes < 0:
                return QueryAnswer(columns, types, rows, more=True)
            rows.append(cells)
    return QueryAnswer(columns, types, rows)


def _cell(value: Any) -> Cell:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    text = str(value)
    return text if len(text) <= CELL_CHARACTERS else text[: CELL_CHARACTERS - 1] + "…"


if __name__ == "__main__":
    main()
