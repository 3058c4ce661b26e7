"""Read the data folder with one in-memory DuckDB that attaches recordings and derived files READ_ONLY.

Attaching and detaching from several threads is not safe in DuckDB, so both happen under one lock. Each query runs on its own
cursor. The engine is locked down: it can only read the data folder's recordings and derived files.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import duckdb
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.derive.build import damage_error, ensure_derived
from sawtooth.analysis.derive.screen_sums import ensure_sums, sums_file
from sawtooth.analysis.store.rank_causes import RankCauses, lay_over
from sawtooth.analysis.version import ANALYSIS_VERSION
from sawtooth.ingest.database import quote
from sawtooth.ingest.errors import NotFoundError, SawtoothError
from sawtooth.ingest.files import is_sound
from sawtooth.ingest.manifest import is_id
from sawtooth.ingest.schema import DataFolder

# A page's query sorts at most a few million rows. A higher limit would leave too little memory for other users.
MEMORY_LIMIT = "512MB"
T = TypeVar("T")
Parameters = Sequence[Any] | Mapping[str, Any]

KEEP_ATTACHED = 24  # Number of recordings that stay attached while idle. Attaching takes less than a millisecond.


@dataclass
class _Attached:
    aliases: tuple[str, ...]
    schema: str | None = None  # Schema with the results from the run's other ranks.
    users: int = 0
    last_use: int = field(default=0)
    abandoned: bool = False  # A file was damaged. The next request attaches the new file.

    @property
    def places(self) -> list[str]:
        """The schemas to search for tables, in this order."""
        files = [f'"{alias}".main' for alias in self.aliases]
        return [self.schema, *files] if self.schema else files


class Recording:
    """An open recording; queries use the plain names of its tables and of its derived file's tables."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, recording_id: str) -> None:
        self._cursor = cursor
        self.id = recording_id
        self._computed: dict[tuple[Any, ...], Any] = {}

    def frame(self, sql: str, parameters: Parameters = ()) -> pd.DataFrame:
        """Run a SELECT and return its rows; ``parameters`` by position or by name."""
        return self._cursor.execute(sql, parameters).df()

    def objects(self, sql: str, parameters: Parameters = ()) -> dict[str, pd.Series]:
        """Run a SELECT and return its columns as in ``frame``, but texts as objects.

        Objects are faster to create and to iterate over than pandas' own text type.
        """
        return {name: _series(values) for name, values in self._cursor.execute(sql, parameters).fetchnumpy().items()}

    def rows(self, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """Run a SELECT and return its rows as tuples."""
        return self._cursor.execute(sql, parameters).fetchall()

    def named(self, pattern: str) -> list[int]:
        """Return the ids of the recording's names that match the regular expression.

        If there are none, no events need to be read.
        """
        return self.once(_codes_of_names, pattern)

    def select_list(self, table: str, columns: Iterable[str]) -> str:
        """Return the SELECT list for numeric ``columns`` of ``table``; NULL for missing columns."""
        existing = self.columns(table)
        return ", ".join(column if column in existing else f"NULL::DOUBLE AS {column}" for column in columns)

    def columns(self, table: str) -> set[str]:
        """Return the names of the columns that this recording's ``table`` has."""
        return self.once(_columns, table)

    def once(self, make: Callable[..., T], *arguments: Any) -> T:
        """Return ``make(self, *arguments)``, computed only once while the recording is open.

        Callers must not change the result.
        """
        if (make, *arguments) not in self._computed:
            self._computed[make, *arguments] = make(self, *arguments)
        value: T = self._computed[make, *arguments]
        return value

    @property
    def cursor(self) -> duckdb.DuckDBPyConnection:
        """The cursor, for code that needs DuckDB's own interface. Read each result completely."""
        return self._cursor


def _series(values: NDArray[Any]) -> pd.Series:
    if not isinstance(values, np.ma.MaskedArray):
        return pd.Series(values, dtype=values.dtype)
    if values.dtype.kind == "i":
        return pd.Series(pd.arrays.IntegerArray(values.data, np.ma.getmaskarray(values)))
    return pd.Series(values.filled(np.nan), dtype=values.dtype)


def _codes_of_names(recording: Recording, pattern: str) -> list[int]:
    matches = re.compile(pattern, re.ASCII).search
    return [name_id for name_id, name in recording.once(_names) if matches(name)]


def _columns(recording: Recording, table: str) -> set[str]:
    return {name for (name,) in recording.rows(f"SELECT column_name FROM (DESCRIBE {table})")}


def _names(recording: Recording) -> list[tuple[int, str]]:
    return recording.rows("SELECT name_id, name FROM names ORDER BY name_id")


class Library:
    """All recordings of one data folder, until it is closed (``with Library(folder) as library``).

    Threads can share it.
    """

    def __init__(self, folder: DataFolder, *, threads: int | None = None) -> None:
        self.folder = folder.create()
        self._lock = threading.Lock()
        self._summing = threading.Lock()  # A page requests a dozen tiles at once, but the sums are computed only once.
        self._without_sums: set[str] = set()  # Recordings that are small, or whose sums cannot be written.
        self._attached: dict[str, _Attached] = {}
        self._clock = 0
        self._con = _locked_down(folder, threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the engine; no recording may be in use."""
        self._con.close()

    @contextmanager
    def open(
        self, recording_id: str, *, derived: bool = True, sums: bool = False, causes: RankCauses | None = None
    ) -> Iterator[Recording]:
        """Open a recording; make its derived file if it is missing.

        With ``sums``, the sums that only pages read are stored in a file, else each query computes them. ``causes`` has the
        results of all ranks of the run for this recording; ``sawtooth.analysis.run.view`` provides it.

        Raises NotFoundError if there is no such recording. A query that reads a damaged file raises SawtoothError. A damaged
        derived file is then removed, and the next request makes it again.
        """
        if derived and is_id(recording_id):
            ensure_derived(self.folder, recording_id)
            sums = sums and self._has_sums(recording_id)
        attached = self._attach(recording_id, derived, sums, causes)
        cursor = self._con.cursor()
        try:
            cursor.execute(f"SET search_path = '{','.join(attached.places)}'")
            yield Recording(cursor, recording_id)
        except duckdb.Error as error:  # DuckDB has no error class for a wrong checksum.
            if isinstance(error, duckdb.OutOfMemoryException):
                raise SawtoothError(
                    f"This needs more memory than a query may use ({MEMORY_LIMIT}). Profile fewer steps."
                ) from error
            if isinstance(error, duckdb.InterruptException) or (wrong := self._judge(recording_id, attached, derived)) is None:
                raise
            raise wrong from error
        finally:
            cursor.close()
            with self._lock:
                attached.users -= 1
                if attached.abandoned and not attached.users:
                    self._detach(attached)

    def _has_sums(self, recording_id: str) -> bool:
        with self._summing:
            if recording_id not in self._without_sums and ensure_sums(self.folder, recording_id) is None:
                self._without_sums.add(recording_id)
            return recording_id not in self._without_sums

    def _attach(self, recording_id: str, derived: bool, sums: bool, causes: RankCauses | None) -> _Attached:
        if not is_id(recording_id):
            raise NotFoundError(f"{recording_id!r} is not a recording's id.")
        key = f"{recording_id}{f'-{causes.key}' if causes else '' if derived else '-facts'}{'-sums' if sums else ''}"
        with self._lock:
            self._clock += 1
            attached = self._attached.get(key)
            if attached is None:
                self._evict()
                attached = self._attached[key] = self._attach_files(recording_id, derived, sums, causes)
            attached.users += 1
            attached.last_use = self._clock
            return attached

    def _attach_files(self, recording_id: str, derived: bool, sums: bool, causes: RankCauses | None) -> _Attached:
        files = [("r", self.folder.recording_file(recording_id))]
        of_derived = self.folder.derived_file(recording_id, ANALYSIS_VERSION)
        if sums:  # The sums come before the derived file, whose views have the same names.
            files.append(("s", sums_file(of_derived)))
        if derived:
            files.append(("d", of_derived))
        attached = _Attached(())
        try:
            for prefix, path in files:
                if not path.exists():
                    raise NotFoundError(f"Recording {recording_id} is not in this data folder. Ingest its source again.")
                alias = f"{prefix}{'' if derived else 'f'}_{recording_id}_{self._clock}"
                self._con.execute(f"ATTACH '{quote(path)}' AS \"{alias}\" (READ_ONLY)")
                attached.aliases += (alias,)
            if causes is not None:
                attached.schema = f'memory."ranks_{recording_id}_{self._clock}"'
                in_recording, *in_sums, in_derived = attached.aliases
                lay_over(self._con, in_recording, in_derived, causes, attached.schema, *in_sums)
        except duckdb.Error as error:
            self._detach(attached)
            cannot = SawtoothError(f"Recording {recording_id} cannot be opened at the moment. Try again.")
            raise self._judge(recording_id, None, derived) or cannot from error
        except NotFoundError:
            self._detach(attached)
            raise
        return attached

    def _evict(self) -> None:
        idle = sorted((a.last_use, k) for k, a in self._attached.items() if a.users == 0)
        for _, key in idle[: max(0, len(self._attached) - KEEP_ATTACHED + 1)]:
            self._detach(self._attached.pop(key))

    def _detach(self, attached: _Attached) -> None:
        if attached.schema is not None:
            self._con.execute(f"DROP SCHEMA IF EXISTS {attached.schema} CASCADE")
        for alias in attached.aliases:
            self._con.execute(f'DETACH "{alias}"')

    def _judge(self, recording_id: str, attached: _Attached | None, derived: bool) -> SawtoothError | None:
        """Find the damaged file that made a query fail, and stop using it; None if all files are intact.

        If a file is damaged, the derived files are removed.
        """
        cache = self.folder.derived_file(recording_id, ANALYSIS_VERSION)
        stored = (cache, sums_file(cache))
        wrong = None
        if not is_sound(self.folder.recording_file(recording_id)):
            wrong = damage_error(recording_id)
        elif derived and not all(is_sound(file) for file in stored if file == cache or file.exists()):
            wrong = SawtoothError(
                "A stored result of this run was damaged and has been removed. Load the page again, so that Sawtooth computes it again."
            )
        if wrong is not None:
            for file in stored:
                file.unlink(missing_ok=True)
        if wrong is not None and attached is not None:
            with self._lock:
                attached.abandoned = True
                self._attached = {key: recording for key, recording in self._attached.items() if recording is not attached}
        return wrong

    def forget(self, recording_id: str) -> None:
        """Detach a recording that is about to be deleted or replaced, unless it is in use."""
        self._without_sums.discard(recording_id)
        with self._lock:
            for key in [
                key for key, recording in self._attached.items() if key.startswith(recording_id) and recording.users == 0
            ]:
                self._detach(self._attached.pop(key))


def _locked_down(folder: DataFolder, threads: int | None) -> duckdb.DuckDBPyConnection:
    """Open the in-memory engine, set its limits, lock it, and check that it refuses forbidden statements."""
    con = duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"})
    con.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
    if threads:
        con.execute(f"SET threads = {int(threads)}")
    # The engine must not write to disk, so a query that needs more memory than the limit fails.
    con.execute("SET temp_directory = ''")
    allowed = ", ".join(f"'{quote(p.resolve())}/'" for p in (folder.recordings, folder.derived))
    con.execute(f"SET allowed_directories = [{allowed}]")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")
    for forbidden in ("SELECT * FROM read_text('/etc/hostname')", "INSTALL httpfs", "SET memory_limit = '64GB'"):
        try:
            con.execute(forbidden).fetchall()
        except duckdb.Error:
            continue
        raise SawtoothError(f"The database engine did not refuse {forbidden!r}, so Sawtooth does not start.")
    return con
