"""Tests of the store's files, whose layouts are created once and then copied."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from sawtooth.ingest import database
from sawtooth.ingest.database import attach_new, first_row
from sawtooth.ingest.schema import schema_sql

LAYOUT = "CREATE TABLE a (x INTEGER NOT NULL); COMMENT ON COLUMN a.x IS 'How many'; CREATE VIEW b AS SELECT x + 1 AS y FROM a;"


def file_with_layout(path: Path, layout: str = LAYOUT) -> Path:
    with duckdb.connect(":memory:") as connection:
        attach_new(connection, path, "made", layout)
        connection.execute("INSERT INTO a VALUES (41)" if layout is LAYOUT else "SELECT 1")
        connection.execute("CHECKPOINT made")
    return path


def describe_layout(path: Path) -> list[tuple[object, ...]]:
    with duckdb.connect(str(path), read_only=True) as connection:
        columns = connection.execute(
            "SELECT table_name, column_name, data_type, is_nullable, comment FROM duckdb_columns() WHERE NOT internal ORDER BY ALL"
        ).fetchall()
        tables = connection.execute("SELECT table_name, comment FROM duckdb_tables() ORDER BY ALL").fetchall()
    return [*columns, *tables]


@pytest.mark.parametrize("layout", [LAYOUT, schema_sql()], ids=["small", "recording"])
def test_a_copied_layout_equals_the_created_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    monkeypatch.setattr(database, "_layouts", {})
    by_statements, by_copy = (describe_layout(file_with_layout(tmp_path / name, layout)) for name in ("first", "second"))
    assert list(database._layouts) == [layout]
    assert by_statements == by_copy and len(by_copy) > 2


def test_a_second_file_does_not_contain_rows_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_layouts", {})
    for name in ("first", "second"):
        assert first_row(file_with_layout(tmp_path / name), "SELECT count(*), max(y) FROM a, b") == (1, 42)


def test_a_damaged_or_missing_file_is_an_error_and_the_next_is_read(tmp_path: Path) -> None:
    sound = file_with_layout(tmp_path / "sound")
    (tmp_path / "damaged").write_bytes(sound.read_bytes()[:8192])
    for name in ("damaged", "missing"):
        with pytest.raises(duckdb.Error):
            first_row(tmp_path / name, "SELECT x FROM a")
        assert first_row(sound, "SELECT x FROM a") == (41,)
    with pytest.raises(duckdb.Error):
        first_row(sound, "SELECT nothing FROM a")
    assert first_row(sound, "SELECT x FROM a WHERE x = 0") is None
