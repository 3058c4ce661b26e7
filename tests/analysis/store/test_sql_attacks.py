"""Tests of attacks by a viewer's SQL: it reads one recording and reaches nothing else.

All ways to other data that the engine offers are tried.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from sawtooth.analysis.store import sql as query
from sawtooth.analysis.store.sql import run_query
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import ROOT


def contents(folder: DataFolder) -> dict[str, str]:
    return {
        str(path.relative_to(folder.root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.root.rglob("*"))
        if path.is_file()
    }


READ = (
    "SELECT * FROM read_csv('{secret}')",
    "FROM '{secret}'",
    "SELECT * FROM read_text('/etc/hostname')",
    "SELECT * FROM read_blob('/etc/hostname')",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM glob('recordings/*')",
    "SELECT * FROM read_json('{secret}')",
    "SELECT * FROM read_parquet('{secret}')",
    "SELECT * FROM sniff_csv('{secret}')",
    "SELECT * FROM query_table('{secret}')",
    "SELECT * FROM read_duckdb('{other}', table_name = 'recording')",
    "SELECT * FROM 'https://example.com/a.csv'",
    "SELECT getenv('HOME')",
    "SELECT * FROM order_",
    "SELECT * FROM query('COPY (SELECT 1) TO ''{out}''')",
    "SELECT * FROM enable_logging(storage = 'file', storage_path = '{out}')",
    "SELECT * FROM enable_profiling(save_location = '{out}')",
    "WITH gone AS (DELETE FROM names RETURNING *) SELECT * FROM gone",
    "WITH more AS (INSERT INTO names VALUES (1, 'a') RETURNING *) SELECT * FROM more",
)
WRITE = (
    "COPY (SELECT 1) TO '{recording}'",
    "COPY (SELECT 1) TO '{recording}' (USE_TMP_FILE false)",
    "COPY (SELECT 1) TO '{recording}.wal'",
    "COPY (SELECT 1) TO '{recording}.wal' (USE_TMP_FILE false)",
    "COPY (SELECT 1) TO '{derived}' (FORMAT csv, USE_TMP_FILE false)",
    "COPY (SELECT 1) TO '{out}'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{recording}' (USE_TMP_FILE false)",
    "PREPARE p AS COPY (SELECT 1) TO '{recording}' (USE_TMP_FILE false)",
    "EXPORT DATABASE '{out}'",
    "ATTACH '{recording}' AS again",
    "ATTACH '{other}' AS other",
    "ATTACH '{out}' AS new",
    "DETACH recording_file",
    "DELETE FROM gpu_ops",
    "DROP TABLE gpu_ops",
    "UPDATE names SET name = 'x'",
    "CREATE TABLE t AS SELECT 1",
    "INSTALL httpfs",
    "LOAD '{secret}'",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "SET memory_limit = '64GB'",
    "SET allowed_directories = ['/']",
    "PRAGMA threads = 64",
    "PRAGMA database_list",
    "CREATE PERSISTENT SECRET s (TYPE http)",
    "IMPORT DATABASE '{out}'",
    "CALL enable_logging()",
    "CHECKPOINT recording_file",
    "SELECT 1; DROP TABLE gpu_ops",
    "BEGIN; SELECT 1",
    "-- nothing",
)


def filled(attack: str, folder: DataFolder, trace: str, tmp_path: Path) -> str:
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\n1,SECRET\n")
    other = next(path for path in folder.recordings.glob("*.duckdb") if not path.name.startswith(trace))
    return attack.format(
        secret=secret,
        other=other,
        out=tmp_path / "out",
        recording=folder.recording_file(trace),
        derived=folder.derived_file(trace, query.ANALYSIS_VERSION),
    )


@pytest.mark.sweep(17)
@pytest.mark.parametrize("attack", [*READ, *WRITE])
def test_an_attack_is_refused_with_a_sentence_and_changes_nothing(
    attack: str, folder: DataFolder, trace: str, tmp_path: Path
) -> None:
    sql = filled(attack, folder, trace, tmp_path)
    before = contents(folder)
    with pytest.raises(UsageError) as refused:
        run_query(folder, trace, sql)
    assert "SECRET" not in str(refused.value)
    assert str(folder.root) not in str(refused.value)
    assert contents(folder) == before
    assert not (tmp_path / "out").exists()


WITHOUT_THE_FIRST_CHECK = """
import os, sys
from pathlib import Path
from sawtooth.analysis.store import sql_process as q
root, recording, derived, sql = sys.argv[1:]
os.chdir(root)
con = q._engine(q.QueryRequest("", recording, derived, None, None, 1, 1, 1))
q._limit_this_process(20)
try:
    con.execute(sql).fetchall()
except Exception as error:
    os.write(1, str(error).encode())
else:
    os.write(1, b"it ran")
"""


@pytest.mark.skipif(
    sys.platform == "win32", reason="Windows has no limits for a process, so only the first check protects there"
)
@pytest.mark.parametrize("attack", [sql for sql in WRITE if sql.startswith(("COPY", "EXPLAIN", "EXPORT"))])
def test_the_process_cannot_write_even_if_statements_pass(attack: str, folder: DataFolder, trace: str, tmp_path: Path) -> None:
    # The engine itself allows some: a COPY may overwrite the file that is attached READ_ONLY.
    before = contents(folder)
    files = [folder.recording_file(trace), folder.derived_file(trace, query.ANALYSIS_VERSION)]
    command = [sys.executable, "-c", WITHOUT_THE_FIRST_CHECK, folder.root, *files, filled(attack, folder, trace, tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout, done.stderr
    assert done.stdout != "it ran"
    assert contents(folder) == before
    assert not (tmp_path / "out").exists()


def test_no_result_contains_a_path_of_this_server(folder: DataFolder, trace: str) -> None:
    for sql in ("FROM duckdb_databases()", "FROM duckdb_settings()", "SELECT path FROM pragma_database_list()"):
        try:
            shown = run_query(folder, trace, sql).rows.to_csv()
        except UsageError as error:
            shown = str(error)
        assert str(folder.root) not in shown
        assert str(Path.home() / ".duckdb") not in shown


def test_the_child_inherits_no_secret(folder: DataFolder, trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAWTOOTH_TOKEN", "a-token-of-this-server")
    seen = []
    start = subprocess.Popen
    monkeypatch.setattr(query.subprocess, "Popen", lambda *a, **k: seen.append(k["env"]) or start(*a, **k))
    run_query(folder, trace, "SELECT 1")
    assert not any("TOKEN" in name or name == "HOME" for name in seen[0])
