"""Tests that NULL becomes None, and NumPy's numbers become plain Python numbers."""

from __future__ import annotations

import duckdb
import pandas as pd
import pytest

from sawtooth.analysis.nulls import none_if_null, plain_rows


@pytest.mark.parametrize("null", [None, float("nan"), pd.NA, pd.NaT])
def test_each_null_of_pandas_becomes_none(null: object) -> None:
    assert none_if_null(null) is None


@pytest.mark.parametrize("value", [0, "", False, "node-1"])
def test_other_values_do_not_change(value: object) -> None:
    assert none_if_null(value) is value


def test_rows_have_plain_python_numbers_and_none() -> None:
    frame = duckdb.sql("SELECT * FROM (VALUES (1, 2.5, 'a'), (NULL, NULL, NULL)) AS t(whole, part, text)").df()
    rows = plain_rows(frame)
    assert rows == [{"whole": 1, "part": 2.5, "text": "a"}, {"whole": None, "part": None, "text": None}]
    assert {type(value) for value in rows[0].values()} <= {int, float, str}
