"""Run a user's SQL on one recording: read-only, in its own process, with limits."""

from __future__ import annotations

import os
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pandas as pd

from sawtooth.analysis.derive.screen_sums import ensure_sums
from sawtooth.analysis.store.rank_causes import RankCauses
from sawtooth.analysis.store.sql_process import QueryAnswer, QueryRequest
from sawtooth.analysis.version import ANALYSIS_VERSION
from sawtooth.ingest import children
from sawtooth.ingest.errors import NotFoundError, SawtoothError, UsageError
from sawtooth.ingest.schema import DataFolder
from sawtooth.ingest.typed import from_json

MAX_ROWS = 10_000  # Limit of shown rows. A DuckDB client is better for exporting more.
MAX_SECONDS = 10.0  # Limit of a query's time. The queries of Sawtooth's pages take at most 0.1 s.
MAX_ANSWER_BYTES = 8 << 20  # Limit of one answer as text; 10,000 rows of forty numbers.
MAX_SQL_CHARACTERS = 10_000  # Limit of a query's length, which also limits the parser's work.
MAX_SIMULTANEOUS_QUERIES = 2  # Limit of simultaneous queries, because each may use a core for MAX_SECONDS.

_INHERITED = ("PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
_slots = threading.BoundedSemaphore(MAX_SIMULTANEOUS_QUERIES)


@dataclass(frozen=True)
class QueryResult:
    """The first rows of a result; ``more`` means that there are further rows."""

    rows: pd.DataFrame
    more: bool


def run_query(
    folder: DataFolder, recording_id: str, sql: str, *, causes: RankCauses | None = None, seconds: float = MAX_SECONDS
) -> QueryResult:
    """Run one read-only statement on a recording.

    The statement uses the tables of the recording and of its derived file by their plain names. With ``causes``, lost time has the
    causes from all ranks of the run, as on the pages. Raises UsageError with the engine's message if the statement cannot run,
    and NotFoundError for an unknown recording.
    """
    if len(sql) > MAX_SQL_CHARACTERS:
        raise UsageError(f"The query has {len(sql):,} characters. The limit is {MAX_SQL_CHARACTERS:,}. Shorten the query.")
    sums = ensure_sums(folder, recording_id)
    recording, derived = folder.recording_file(recording_id), folder.derived_file(recording_id, ANALYSIS_VERSION)
    if not recording.exists():
        raise NotFoundError(f"Recording {recording_id} is not in this data folder. Ingest its source again.")
    sql = sql.encode(errors="replace").decode()  # A query from a URL may contain a lone surrogate, which UTF-8 cannot encode.
    request = QueryRequest(
        sql=sql,
        recording=recording.relative_to(folder.root).as_posix(),
        derived=derived.relative_to(folder.root).as_posix(),
        sums=sums.relative_to(folder.root).as_posix() if sums else None,
        causes=causes,
        rows=MAX_ROWS,
        answer_bytes=MAX_ANSWER_BYTES,
        processor_seconds=int(seconds) + 2,
    )
    if not _slots.acquire(timeout=seconds):
        raise SawtoothError("Other queries are running on this server. Try again in a few seconds.")
    try:
        answer = _answer(folder.root, request, seconds)
    finally:
        _slots.release()
    if answer.problem is not None:
        raise UsageError(answer.problem)
    return QueryResult(_frame(answer), answer.more)


def _answer(root: Path, request: QueryRequest, seconds: float) -> QueryAnswer:
    """Run the request in a child process and read its answer.

    The length of the answer is limited, because the child is not trusted.
    """
    environment = {
        name: os.environ[name] for name in _INHERITED if name in os.environ
    }  # The child gets no token and no home folder.
    process = subprocess.Popen(
        children.command("sawtooth.analysis.store.sql_process"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=root,  # The engine shows the paths of attached files, so these paths are relative to this folder.
        env=children.environment(environment),
        start_new_session=True,
    )
    timed_out = threading.Event()

    def stop() -> None:
        timed_out.set()
        process.kill()

    timer = threading.Timer(seconds, stop)
    timer.start()
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(msgspec.json.encode(request))
            process.stdin.close()
            text = process.stdout.read(4 * MAX_ANSWER_BYTES)  # A character has up to 4 bytes.
        except BrokenPipeError:
            text = b""
        finally:
            timer.cancel()
            process.kill()
    if timed_out.is_set():
        raise UsageError(
            f"The query took longer than {seconds:g} s and was stopped. Query less data: one step, one name, or a LIMIT before a join."
        )
    try:
        return from_json(_without_paths(text, root), QueryAnswer)
    except msgspec.MsgspecError:
        raise UsageError("The query exceeded the limits of memory or time and was stopped. Query less data.") from None


def _without_paths(text: bytes, folder: Path) -> bytes:
    """Return an answer without this server's paths, which the engine's errors and settings contain."""
    for path in {str(folder), str(folder.resolve())}:
        text = text.replace(msgspec.json.encode(path)[1:-1], "…".encode())
    return text


def _frame(answer: QueryAnswer) -> pd.DataFrame:
    """Return the rows as a table; columns of whole numbers keep their type if values are missing."""
    names: list[str] = []
    for name in answer.columns:  # A join may return two columns with the same name, but a table needs unique names.
        duplicates = sum(earlier_name == name or earlier_name.startswith(f"{name} (") for earlier_name in names)
        names.append(f"{name} ({duplicates + 1})" if duplicates else name)
    frame = pd.DataFrame(answer.rows, columns=names, dtype=object)
    for name, kind in zip(names, answer.types, strict=True):
        frame[name] = _with_type(frame[name], kind)
    return frame


def _with_type(values: pd.Series, kind: str) -> pd.Series:
    try:
        if kind == "BOOLEAN":
            return values.astype("boolean")
        if kind.endswith("INT") or kind == "INTEGER":
            return values.astype("Int64")
        if kind in ("DOUBLE", "FLOAT") or kind.startswith("DECIMAL"):
            return values.astype("Float64")
    except (TypeError, ValueError, OverflowError):  # The number has more than 64 bits or is not finite.
        pass
    return values.map(str, na_action="ignore").astype("string")
