"""Reading the store: one in-memory DuckDB, recordings and their derived files attached READ_ONLY, one registry, one lock.

Attach and detach from several threads race in DuckDB, so both happen under the lock; queries run on cursors of their own.
The instance is locked down: it reads the data folder's recordings and nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from analysis.derive import damaged, ensure_derived
from analysis.version import ANALYSIS_VERSION
from ingest.errors import NotFoundError, SawtoothError
from ingest.files import is_sound
from ingest.schema import DataFolder, is_id

MEMORY_LIMIT = "1GB"  # a query behind a screen sorts at most a few million rows; more than this would starve the other viewers
NO_DAMAGE = (duckdb.OutOfMemoryException, duckdb.InterruptException)
KEEP_ATTACHED = 24  # idle recordings kept attached: two files each, and attaching costs under a millisecond


@dataclass
class _Attached:
    aliases: tuple[str, ...]
    users: int = 0
    last_use: int = field(default=0)
    given_up: bool = False  # its file was damaged: the next who asks attaches what lies there then


class Recording:
    """A recording in use: queries see its tables and those of its derived file by their plain names."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, recording_id: str, derived: str) -> None:
        self._cursor = cursor
        self._derived = derived
        self.id = recording_id

    def frame(self, sql: str, parameters: Sequence[Any] = ()) -> pd.DataFrame:
        """Run a SELECT and return its rows."""
        return self._cursor.execute(sql, list(parameters)).df()

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a SELECT and return its rows as tuples."""
        return self._cursor.execute(sql, list(parameters)).fetchall()

    def replace_rows(self, table: str, which: str, rows: pd.DataFrame) -> None:
        """Let the queries that follow see ``rows`` in place of those rows of a derived table for which the condition ``which`` holds.

        Only here, and only until the recording is closed: what several recordings know together stands in no file.
        """
        self._cursor.register(f"{table}_told", rows)
        self._cursor.execute(
            f'CREATE TEMP VIEW {table} AS SELECT * FROM "{self._derived}".main.{table} WHERE NOT ({which}) UNION ALL BY NAME SELECT * FROM {table}_told'
        )

    @property
    def cursor(self) -> duckdb.DuckDBPyConnection:
        """The cursor itself, for the loaders of analysis; leave no open result on it."""
        return self._cursor


class Library:
    """Every recording of one data folder. Safe to share between threads."""

    def __init__(self, folder: DataFolder, *, threads: int | None = None) -> None:
        self.folder = folder.create()
        self._lock = threading.Lock()
        self._attached: dict[str, _Attached] = {}
        self._clock = 0
        self._con = _locked_down(folder, threads)

    def close(self) -> None:
        """Close the instance; no recording may be in use."""
        self._con.close()

    @contextmanager
    def open(self, recording_id: str, *, derived: bool = True) -> Iterator[Recording]:
        """Use a recording, its derived file made where it is missing. Raises NotFoundError when there is no such recording.

        A query that meets a damaged file raises SawtoothError; a damaged derived file is removed, and the next look makes it again.
        """
        if derived and is_id(recording_id):
            ensure_derived(self.folder, recording_id)
        attached = self._attach(recording_id, derived)
        cursor = self._con.cursor()
        try:
            paths = ",".join(f'"{alias}".main' for alias in attached.aliases)
            cursor.execute(f"SET search_path = '{paths}'")
            yield Recording(cursor, recording_id, attached.aliases[-1])
        except duckdb.Error as error:  # a checksum that does not fit is an error without a class of its own
            if isinstance(error, NO_DAMAGE) or (wrong := self._judge(recording_id, attached, derived)) is None:
                raise
            raise wrong from error
        finally:
            cursor.close()
            with self._lock:
                attached.users -= 1
                if attached.given_up and not attached.users:
                    self._detach(attached.aliases)

    def _attach(self, recording_id: str, derived: bool) -> _Attached:
        if not is_id(recording_id):
            raise NotFoundError(f"{recording_id!r} is not a recording's id.")
        key = recording_id if derived else f"{recording_id}-facts"
        with self._lock:
            self._clock += 1
            attached = self._attached.get(key)
            if attached is None:
                self._evict()
                attached = self._attached[key] = _Attached(self._attach_files(recording_id, derived))
            attached.users += 1
            attached.last_use = self._clock
            return attached

    def _attach_files(self, recording_id: str, derived: bool) -> tuple[str, ...]:
        files = [("r", self.folder.recording_file(recording_id))]
        if derived:
            files.append(("d", self.folder.derived_file(recording_id, ANALYSIS_VERSION)))
        aliases: list[str] = []
        try:
            for prefix, path in files:
                if not path.exists():
                    raise NotFoundError(f"Recording {recording_id} is not in this data folder. Ingest its source again.")
                alias = f"{prefix}{'' if derived else 'f'}_{recording_id}_{self._clock}"
                self._con.execute(f"ATTACH '{_quoted(path)}' AS \"{alias}\" (READ_ONLY)")
                aliases.append(alias)
        except duckdb.Error as error:
            self._detach(tuple(aliases))
            cannot = SawtoothError(f"Recording {recording_id} cannot be opened at the moment. Try again.")
            raise self._judge(recording_id, None, derived) or cannot from error
        except NotFoundError:
            self._detach(tuple(aliases))
            raise
        return tuple(aliases)

    def _evict(self) -> None:
        idle = sorted((a.last_use, k) for k, a in self._attached.items() if a.users == 0)
        for _, key in idle[: max(0, len(self._attached) - KEEP_ATTACHED + 1)]:
            self._detach(self._attached.pop(key).aliases)

    def _detach(self, aliases: tuple[str, ...]) -> None:
        for alias in aliases:
            self._con.execute(f'DETACH "{alias}"')

    def _judge(self, recording_id: str, attached: _Attached | None, derived: bool) -> SawtoothError | None:
        """Find which file made a query fail and give it up; None where all are sound."""
        cache = self.folder.derived_file(recording_id, ANALYSIS_VERSION)
        wrong = None
        if not is_sound(self.folder.recording_file(recording_id)):
            wrong = damaged(recording_id)
        elif derived and not is_sound(cache):
            wrong = SawtoothError(
                "A stored result of this run was damaged and has been removed. Load the page again: it is then made anew."
            )
        if wrong is not None:
            cache.unlink(missing_ok=True)
        if wrong is not None and attached is not None:
            with self._lock:
                attached.given_up = True
                self._attached = {key: kept for key, kept in self._attached.items() if kept is not attached}
        return wrong

    def forget(self, recording_id: str) -> None:
        """Detach a recording that is about to be deleted or replaced, unless somebody is using it."""
        with self._lock:
            for key in (recording_id, f"{recording_id}-facts"):
                if (attached := self._attached.get(key)) and attached.users == 0:
                    self._detach(self._attached.pop(key).aliases)


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _locked_down(folder: DataFolder, threads: int | None) -> duckdb.DuckDBPyConnection:
    """Open the in-memory instance, limit it, lock it, and try what must be refused."""
    con = duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"})
    con.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
    if threads:
        con.execute(f"SET threads = {int(threads)}")
    con.execute("SET temp_directory = ''")  # nothing spills: a query too large for the limit is refused instead
    allowed = ", ".join(f"'{_quoted(p.resolve())}/'" for p in (folder.recordings, folder.derived))
    con.execute(f"SET allowed_directories = [{allowed}]")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")
    for forbidden in ("SELECT * FROM read_text('/etc/hostname')", "INSTALL httpfs", "SET memory_limit = '64GB'"):
        try:
            con.execute(forbidden).fetchall()
        except duckdb.Error:
            continue
        raise SawtoothError(f"The database engine did not refuse {forbidden!r}; Sawtooth does not start like this.")
    return con
