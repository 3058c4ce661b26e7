"""Tests of distinct rows against numpy's own slower function."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sawtooth.analysis.distinct_rows import distinct_rows

ROWS = st.lists(st.tuples(st.integers(-2, 3), st.integers(-(2**62), 2**62), st.sampled_from([0, 7, 2**40])), min_size=1)


@given(ROWS)
def test_distinct_rows_match_numpy(rows: list[tuple[int, int, int]]) -> None:
    columns = np.array(rows, np.int64).T
    wanted, inverse = np.unique(columns, axis=1, return_inverse=True)
    first, code = distinct_rows(*columns)
    assert np.array_equal(columns[:, first], wanted)
    assert np.array_equal(code, inverse.reshape(-1))


def test_the_first_of_equal_rows_is_returned() -> None:
    first, code = distinct_rows(np.array([5, 1, 5, 1], np.int32), np.array([0, 2, 0, 2]))
    assert first.tolist() == [1, 0] and code.tolist() == [1, 0, 1, 0]


def test_an_empty_table_has_no_distinct_rows() -> None:
    first, code = distinct_rows(np.empty(0, np.int64), np.empty(0, np.int64))
    assert len(first) == len(code) == 0
