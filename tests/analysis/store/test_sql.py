"""Tests of a viewer's SQL: values, limits and errors."""

from __future__ import annotations

import time

import pytest

from sawtooth.analysis.store import sql as query
from sawtooth.analysis.store.sql import run_query
from sawtooth.analysis.store.sql_examples import EXAMPLES
from sawtooth.ingest.errors import NotFoundError, SawtoothError, UsageError
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.schema import DataFolder


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
    assert row["a"] == 9007199254740993  # 2^53 + 1 is not exact as a float.
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
    assert len(result.rows) * 2000 <= query.MAX_ANSWER_BYTES


def test_a_query_without_end_is_stopped(folder: DataFolder, trace: str) -> None:
    start = time.monotonic()
    with pytest.raises(SawtoothError, match="took longer than 1 s and was stopped"):
        run_query(
            folder,
            trace,
            "SELECT count(*) FROM range(1_000_000) a, range(1_000_000) b WHERE hash(a.range, b.range) = 1",
            seconds=1,
        )
    assert time.monotonic() - start < 8  # Sawtooth stopped it, not the engine's own limits.


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

    The answer must not be the engine's traceback, which contains paths.
    """
    shown = run_query(folder, trace, f"SELECT {value} AS v").rows["v"][0]
    assert shown and "Traceback" not in str(shown)


def test_every_type_of_the_engine_is_shown(folder: DataFolder, trace: str) -> None:
    assert len(run_query(folder, trace, "FROM test_all_types()").rows) == 3
