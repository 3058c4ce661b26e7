"""Fixtures of the tests of Nsight Systems exports."""

from __future__ import annotations

import duckdb
import pytest

from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from tests.support import nsight_export as export


@pytest.fixture
def folder(tmp_path):
    return DataFolder(tmp_path / "data").create()


@pytest.fixture
def ask(tmp_path, folder):
    """Write an export, ingest it, and answer SQL over its recording."""

    def answer(made, *queries, statements=()):
        ref = ingest_file(export.write(tmp_path / "export.sqlite", made, statements), folder)
        with duckdb.connect(str(folder.recording_file(ref.id)), read_only=True) as con:
            return [con.execute(query).fetchall() for query in queries]

    return answer
