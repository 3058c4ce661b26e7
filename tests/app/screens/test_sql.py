"""Tests of the SQL screen: examples, links, limits, and sentences instead of errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from sawtooth.analysis.store.sql_examples import EXAMPLES
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import matmul_loop
from tests.support.pages import opened, run_of, words_of
from tests.support.telemetry_files import telemetry_file

COUNT = "SELECT kind, count(*) AS operations FROM gpu_ops GROUP BY kind"


@pytest.fixture
def loop(app_data: DataFolder, tmp_path: Path) -> str:
    return run_of(app_data, matmul_loop().write(tmp_path / "loop.json"), telemetry_file(tmp_path / "told.jsonl"))


def shown_rows(test: AppTest) -> list[list[object]]:
    return test.dataframe[0].value.to_numpy().tolist()


def test_without_a_query_the_first_example_runs(loop: str) -> None:
    test = opened("sql", loop)
    assert "tables of this run" in words_of(test)
    assert test.text_area(key="sql_text").value == EXAMPLES[0].sql
    assert "nvjet" in str(shown_rows(test)[0])
    assert "sql" not in test.query_params  # Otherwise the browser's Back would lead to this page again.


def asked(run: str, sql: str) -> AppTest:
    """Open a link with a query, and run it."""
    test = opened("sql", run, sql=sql)
    return test.button[0].click().run()


def test_a_link_with_a_query_waits_for_a_click(loop: str) -> None:
    test = opened("sql", loop, sql="SELECT count(*) AS steps FROM steps")
    assert "has not been run" in words_of(test)
    assert len(test.dataframe) == 0
    test.button[0].click().run()
    assert "1 row" in words_of(test)
    steps = shown_rows(test)[0][0]
    assert steps == len(asked(loop, "FROM steps").dataframe[0].value)
    assert test.text_area(key="sql_text").value == "SELECT count(*) AS steps FROM steps"


def test_a_typed_query_is_stored_in_the_address(loop: str) -> None:
    test = opened("sql", loop)
    test.text_area(key="sql_text").set_value(COUNT)
    test.button[0].click().run()
    assert "row" in words_of(test)
    assert test.query_params["sql"] == COUNT
    long = COUNT + " -- " + "x" * 2_000
    test.text_area(key="sql_text").set_value(long)
    test.button[0].click().run()
    assert "not part of this page" in words_of(test)
    assert "sql" not in test.query_params
    assert len(test.dataframe) == 1


def test_an_example_is_a_starting_point(loop: str) -> None:
    test = opened("sql", loop)
    example = next(e for e in EXAMPLES if e.kind == "trace")
    test.button_group(key="sql_example").select(example.title).run()
    words_of(test)
    assert test.text_area(key="sql_text").value == example.sql
    assert len(test.dataframe[0].value)


def test_each_recording_of_a_run_can_be_queried_with_its_own_examples(loop: str) -> None:
    test = asked(loop, "SELECT kind FROM recording")
    assert shown_rows(test) == [["trace"]]
    chooser = test.selectbox(key="recording")
    chooser.select_index(1).run()
    assert shown_rows(test) == [["telemetry"]]


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("sql", "reported"),
    [
        ("SELEC 1", "syntax error"),
        ("SELECT nothing FROM steps", "nothing"),
        ("DROP TABLE gpu_ops", "Only statements that read can be run"),
        ("SELECT * FROM read_text('/etc/passwd')", "disabled by configuration"),
    ],
)
def test_an_invalid_query_is_answered_with_a_sentence(loop: str, app_data: DataFolder, sql: str, reported: str) -> None:
    text = words_of(asked(loop, sql))
    assert "This query failed" in text
    assert reported in text
    assert str(app_data.root) not in text


def test_long_names_are_shortened_and_stay_distinct(loop: str) -> None:
    names = [f"void at::native::elementwise_kernel<{n}, at::native::AddFunctor<float> >(int, float, float)" for n in (4, 8)]
    test = asked(loop, f"SELECT unnest({names}) AS name, 1 AS n")
    shown = [row[0] for row in shown_rows(test)]
    # (780 px - 90 px of the other column) / 7.5 px are 92 characters; 60 is the most.
    assert len(set(shown)) == 2 and all(len(name) <= 60 for name in shown)
    on_a_phone = next(e.proto.body for e in test.get("html") if "st-narrow-rows" in e.proto.body)
    assert on_a_phone.count("<li>") == 2 and "n\u00a01</span>" in on_a_phone
    test.toggle(key="sql_complete").set_value(True).run()
    assert [row[0] for row in shown_rows(test)] == names


@pytest.mark.parametrize(("columns", "long", "length"), [(2, 1, 60), (6, 1, 44), (9, 1, 30), (6, 2, 30), (3, 2, 46)])
def test_long_texts_share_the_room_that_other_columns_leave(loop: str, columns: int, long: int, length: int) -> None:
    """(780 - 90 × 5) / 7.5 = 44 characters; (780 - 90) / 2 / 7.5 = 46; at least 30 and at most 60."""
    name = "void at::native::elementwise_kernel<at::native::AddFunctor<float> >(" + "int, float, " * 12 + ")"
    chosen = [*(f"'{name}' AS long_{i}" for i in range(long)), *(f"1 AS n_{i}" for i in range(columns - long))]
    test = asked(loop, f"SELECT {', '.join(chosen)}")
    assert test.dataframe[0].proto.columns
    assert f'"width": {int(length * 7.5)}' in test.dataframe[0].proto.columns.replace('":', '": ').replace("  ", " ")


def test_an_empty_result_is_valid(loop: str) -> None:
    assert "The query returned no rows" in words_of(asked(loop, "SELECT * FROM gpu_ops WHERE false"))


def test_the_table_browser_explains_every_column(loop: str) -> None:
    test = opened("sql", loop)
    words = "\n".join(str(element.proto.body) for element in test.get("html"))
    assert "excluded_<wbr>because" in words
    assert "Why a step is not counted" in words
    assert words.index("<details open") < words.index(">steps <")  # The query reads kernels, which come first.
