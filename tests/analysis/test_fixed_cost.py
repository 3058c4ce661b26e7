"""Tests of the fixed cost of a small trace: counts of database instances and queries.

These counts do not vary between runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library, Recording
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest import database
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import matmul_loop

# Statements to read a trace, write its recording and derived file and register the run, for any trace. 93 were counted.
MAX_STATEMENTS = 96
MAX_QUERIES = 50  # Queries of all rules and of the report for a trace in which few rules find the names that they search.


def ingested(folder: DataFolder, place: Path, number: int) -> Manifest:
    loop = matmul_loop()
    loop.top["number"] = number  # A trace with other bytes is another recording.
    trace = loop.write(place / f"{number}.json")
    return ingest_into_runs(folder, [(trace, trace.name)]).runs[0]


def test_files_of_one_process_share_an_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    connect = duckdb.connect

    def counted(*arguments: Any, **options: Any) -> duckdb.DuckDBPyConnection:
        started.append(arguments)
        return connect(*arguments, **options)

    monkeypatch.setattr(duckdb, "connect", counted)
    monkeypatch.setattr(database, "_idle_connections", [])
    folder = DataFolder(tmp_path / "data").create()
    for number in range(3):
        ingested(folder, tmp_path, number)
    assert len(started) == 1


class Counting:
    def __init__(self, connection: Any, noted: list[str]) -> None:
        self._connection, self._noted = connection, noted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *parameters: Any) -> Any:
        self._noted.append(sql)
        return self._connection.execute(sql, *parameters)


def test_a_file_is_written_with_few_statements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[str] = []
    connect = duckdb.connect
    monkeypatch.setattr(duckdb, "connect", lambda *given, **options: Counting(connect(*given, **options), noted))
    monkeypatch.setattr(database, "_idle_connections", [])
    folder = DataFolder(tmp_path / "data").create()
    ingested(folder, tmp_path, 1)  # Lays out the first files.
    noted.clear()
    ingested(folder, tmp_path, 2)
    assert 40 < len(noted) <= MAX_STATEMENTS, len(noted)


def test_names_missing_in_a_trace_are_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = DataFolder(tmp_path / "data").create()
    run = ingested(folder, tmp_path, 1)
    asked: list[str] = []
    for kind in ("rows", "frame"):
        ask = getattr(Recording, kind)

        def counted(recording: Recording, sql: str, parameters: Any = (), ask: Any = ask) -> Any:
            asked.append(sql)
            return ask(recording, sql, parameters)

        monkeypatch.setattr(Recording, kind, counted)
    library = Library(folder)
    analyse(run, library)
    library.close()
    assert 10 < len(asked) <= MAX_QUERIES, len(asked)
    again = [sql for sql in set(asked) if asked.count(sql) > 2]
    assert again == []
