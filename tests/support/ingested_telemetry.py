"""Ingested telemetry files, as connections to their recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder

UTC_023847 = 1795228727  # 2026-11-21 02:38:47 UTC


def ingested(path: Path, folder: Path) -> duckdb.DuckDBPyConnection:
    """Ingest a file into a data folder below ``folder``, and connect to its recording."""
    data = DataFolder(folder / "data")
    return duckdb.connect(str(data.recording_file(ingest_file(path, data).id)), read_only=True)


def rows(con: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    return con.execute(sql).fetchall()


def diagnostics(con: duckdb.DuckDBPyConnection) -> dict[str, tuple[str, int]]:
    """Return the sentence and the count of each diagnostic by its key."""
    return {k: (s, n) for k, s, n in rows(con, "SELECT key, sentence, count FROM diagnostics")}


START = 1790496000 * 10**9  # 2026-09-27 08:00:00 UTC


def read(text: str | bytes, tmp_path: Path, what: str = "time_ns, util_pct") -> list[tuple[Any, ...]]:
    """Ingest a log with this text, and return the columns ``what`` of its samples."""
    path = tmp_path / "log.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return ingested(path, tmp_path).execute(f"SELECT {what} FROM samples ORDER BY device, time_ns").fetchall()
