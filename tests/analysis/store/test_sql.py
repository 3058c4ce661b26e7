"""Tests of a viewer's SQL: it reads one recording and reaches nothing else.

Every way out that the engine offers is tried.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sawtooth.analysis.store import sql as query
from sawtooth.analysis.store.sql import run_query
from sawtooth.analysis.store.sql_examples import EXAMPLES
from sawtooth.app.jobs.ingest_files import bring_in
from sawtooth.ingest.errors import NotFoundError, SawtoothError, UsageError
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import ROOT

BUNDLED = ROOT / "sample_traces" / "gpt"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[DataFolder, Manifest]:
    folder = DataFolder(tmp_path_factory.mktemp("query") / "data").create()
    files = [BUNDLED / "trace.json.gz", BUNDLED / "nvml.jsonl"]
    return folder, bring_in(folder, [(file, file.name) for file in files]).runs[0]


@pytest.fixture(scope="module")
def folder(store: tuple[DataFolder, Manifest]) -> DataFolder:
    return store[0]


@pytest.fixture(scope="module")
def trace(store: tuple[DataFolder, Manifest]) -> str:
    return store[1].traces[0].id


def contents(folder: DataFolder) -> dict[str, str]:
    return {
        str(path.relative_to(folder.root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.root.rglob("*"))
        if path.is_file()
    }


@pytest.mark.sweep(4)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.title)
def test_every_example_query_returns_rows_for_a_real_recording(example, store: tuple[DataFolder, Manifest]) -> None:
    folder, manifest = store
    recording = (manifest.traces if example.kind == "trace" else manifest.telemetry)[0]
    assert len(run_query(folder, recording.id, example.sql).rows)


def test_values_keep_their_types_and_names_are_made_unique(folder: DataFolder, trace: str) -> None:
    rows = run_query(
        folder,
        trace,
        "SELECT 9007199254740993 AS a, NULL::INTEGER AS b, 1.5 AS a, 'x' AS c, true AS d, 170141183460469231731687303715884105727 AS e, "
        "[1, 2] AS f, 'nan'::DOUBLE AS g, INTERVAL 1 DAY AS h, repeat('y', 5000) AS i, sum(1) AS j",
    ).rows
    assert list(rows.columns) == ["a", "b", "a (2)", "c", "d", "e", "f", "g", "h", "i", "j"]
    row = rows.iloc[0]
    assert row["a"] == 9007199254740993  # 2^53 + 1: a float would lose it
    assert rows["b"].isna().all()
    assert (row["a (2)"], row["c"], row["d"], row["j"]) == (1.5, "x", True, 1)
    assert row["e"] == "170141183460469231731687303715884105727"
    assert (row["f"], str(row["g"]), row["h"]) == ("[1, 2]", "nan", "1 day")
    assert row["i"] == "y" * 1999 + "…"


def test_only_the_first_rows_are_returned_in_order(folder: DataFolder, trace: str) -> None:
    result = run_query(folder, trace, "SELECT * FROM range(10_001) ORDER BY range DESC")
    assert (len(result.rows), result.more) == (10_000, True)
    assert result.rows["range"].iloc[0] == 10_000
    assert not run_query(folder, trace, "SELECT * FROM range(10_000)").more


def test_a_result_with_thousands_of_columns_is_refused_early(folder: DataFolder, trace: str) -> None:
    assert run_query(folder, trace, "SELECT " + ",".join(["1"] * 500)).rows.shape == (1, 500)
    with pytest.raises(UsageError, match=r"4,900 columns\. The limit is 500"):
        run_query(folder, trace, "SELECT " + ",".join(["1"] * 4900))


def test_wide_results_are_cut_before_they_fill_the_memory(folder: DataFolder, trace: str) -> None:
    result = run_query(folder, trace, "SELECT repeat('x', 2000) FROM range(10_000)")
    assert result.more
    assert len(result.rows) * 2000 <= query.ANSWER_BYTES_MOST


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


WITHOUT_THE_FIRST_WALL = """
import os, sys
from pathlib import Path
from sawtooth.analysis.store import sql_process as q
root, recording, derived, sql = sys.argv[1:]
os.chdir(root)
con = q._engine(q.Order("", recording, derived, None, None, 1, 1, 1))
q._limit_this_process(20)
try:
    con.execute(sql).fetchall()
except Exception as error:
    os.write(1, str(error).encode())
else:
    os.write(1, b"it ran")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limits for a process; the first wall stands alone there")
@pytest.mark.parametrize("attack", [sql for sql in WRITE if sql.startswith(("COPY", "EXPLAIN", "EXPORT"))])
def test_the_process_cannot_write_even_if_statements_pass(attack: str, folder: DataFolder, trace: str, tmp_path: Path) -> None:
    """If writing statements were accepted, the process still could not write.

    The engine itself allows some: a COPY may overwrite the file that is attached READ_ONLY.
    """
    before = contents(folder)
    files = [folder.recording_file(trace), folder.derived_file(trace, query.ANALYSIS_VERSION)]
    command = [sys.executable, "-c", WITHOUT_THE_FIRST_WALL, folder.root, *files, filled(attack, folder, trace, tmp_path)]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert told.stdout, told.stderr
    assert told.stdout != "it ran"
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


def test_a_query_without_end_is_stopped(folder: DataFolder, trace: str) -> None:
    start = time.monotonic()
    with pytest.raises(SawtoothError, match="took longer than 1 s and was stopped"):
        run_query(
            folder,
            trace,
            "SELECT count(*) FROM range(1_000_000) a, range(1_000_000) b WHERE hash(a.range, b.range) = 1",
            seconds=1,
        )
    assert time.monotonic() - start < 8  # ended by us, not by its own limits


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT list(range) FROM range(1_000_000_000)",
        "SELECT length(repeat('x', 4_000_000_000))",
        "SELECT * FROM range(100_000_000) ORDER BY hash(range)",
    ],
)
def test_a_query_that_needs_too_much_memory_is_stopped(sql: str, folder: DataFolder, trace: str) -> None:
    with pytest.raises(SawtoothError, match=r"(?i)memory|took longer|too large|exceed"):
        run_query(folder, trace, sql)


@pytest.mark.parametrize(
    "sql", ["SELECT " + "(" * 4_000 + "1" + ")" * 4_000, "SELECT 1" + " + 1" * 2_400, "x" * 10_001, "\0", "SELECT '\ud800'", ""]
)
def test_an_invalid_query_is_answered_with_a_sentence(sql: str, folder: DataFolder, trace: str) -> None:
    try:
        run_query(folder, trace, sql)
    except SawtoothError as error:
        assert str(error)


def test_times_with_a_zone_are_shown_in_order_and_under_their_names(folder: DataFolder, trace: str) -> None:
    sql = 'SELECT n, TIMESTAMPTZ \'2026-01-02 03:04:05+00\' + n * INTERVAL 1 DAY AS "a ""day""", [now()] AS l FROM range(3) t(n) ORDER BY n DESC -- last;'
    rows = run_query(folder, trace, sql).rows
    assert list(rows.columns) == ["n", 'a "day"', "l"]
    assert rows["n"].tolist() == [2, 1, 0]
    assert rows['a "day"'].tolist()[0].startswith("2026-01-04 03:04:05")


def test_an_unknown_recording_is_reported(folder: DataFolder) -> None:
    with pytest.raises(NotFoundError, match="is not in this data folder"):
        run_query(folder, "00112233445566aa", "SELECT 1")


def test_the_child_inherits_no_secret(folder: DataFolder, trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAWTOOTH_TOKEN", "a-token-of-this-server")
    seen = []
    start = subprocess.Popen
    monkeypatch.setattr(query.subprocess, "Popen", lambda *a, **k: seen.append(k["env"]) or start(*a, **k))
    run_query(folder, trace, "SELECT 1")
    assert not any("TOKEN" in name or name == "HOME" for name in seen[0])


@pytest.mark.parametrize(
    "value",
    [
        "TIMESTAMPTZ '2020-01-01'::VARIANT",
        "'2020-01-01'::TIMESTAMPTZ_NS",
        "MAP {now(): 1}",
        "union_value(a := now())",
        "'1 day'::INTERVAL",
        "'\\x00'::BLOB",
        "'POINT (1 2)'::GEOMETRY",
    ],
)
def test_a_value_of_any_type_is_shown(folder: DataFolder, trace: str, value: str) -> None:
    """Some types' Python values need a module that is not installed.

    The engine then answered with a traceback and its paths.
    """
    shown = run_query(folder, trace, f"SELECT {value} AS v").rows["v"][0]
    assert shown and "Traceback" not in str(shown)


def test_every_type_of_the_engine_is_shown(folder: DataFolder, trace: str) -> None:
    assert len(run_query(folder, trace, "FROM test_all_types()").rows) == 3
