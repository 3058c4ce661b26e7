"""Fixtures of the tests of Nsight Systems exports."""

from __future__ import annotations

import duckdb
import pytest

from sawtooth.ingest.recording import ingest_file
from tests.support import nsight_export as export


@pytest.fixture
def ask(tmp_path, folder):
    """Return a function that ingests an export and returns the rows of SQL queries on its recording."""

    def answer(tables, *queries, statements=()):
        ref = ingest_file(export.write(tmp_path / "export.sqlite", tables, statements), folder)
        with duckdb.connect(str(folder.recording_file(ref.id)), read_only=True) as con:
            return [con.execute(query).fetchall() for query in queries]

    return answer
