"""Tests of a recording's writer. The file contains all stored rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.writer import Writer


def writer_with_rows(path: Path) -> Writer:
    """Return a writer that has stored 3,000 names and one diagnostic."""
    writer = Writer(path)
    names = {"name_id": np.arange(3000, dtype=np.int32), "name": [f"kernel {i}" for i in range(3000)]}
    for start in range(0, 3000, 1000):
        writer.insert("names", {column: values[start : start + 1000] for column, values in names.items()})
    writer.insert_later(
        "diagnostics", {"key": "unknown", "severity": "info", "sentence": "Unknown.", "count": 2, "example": "x"}
    )
    return writer


def test_a_file_with_all_stored_rows_is_closed(tmp_path: Path) -> None:
    writer = writer_with_rows(tmp_path / "whole.duckdb")
    writer.finish()
    writer.close()
    with duckdb.connect(str(tmp_path / "whole.duckdb"), read_only=True) as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT name), max(name_id) FROM names").fetchone() == (
            3000,
            3000,
            2999,
        )
        assert connection.execute('SELECT key, "count" FROM diagnostics').fetchall() == [("unknown", 2)]


def test_rows_lost_by_the_database_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # DuckDB 2.0 lost rows if two inserts ended just before a checkpoint.
    writer = writer_with_rows(tmp_path / "lossy.duckdb")
    store = writer._store

    def store_half(table: str, columns: dict[str, Any]) -> None:
        store(table, columns)
        writer._connection.execute("DELETE FROM recording_file.names WHERE name_id % 2 = 0")

    monkeypatch.setattr(writer, "_store", store_half)
    with pytest.raises(SourceError, match=r"3,000 rows of names were written, but the file has 1,500. Nothing was stored"):
        writer.finish()
    writer.close()
