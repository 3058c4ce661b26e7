"""Tests of numbers in tables: they have as many digits as in the sentences beside them."""

from __future__ import annotations

import pandas as pd
import pytest

from sawtooth.app.page import panel


# Three decimals below 10 and two below 100; more if all numbers of the column are below 0.1.
@pytest.mark.parametrize(
    ("values", "shown"), [([0.00998, 0.002], "0.00998"), ([0.00998, 0.05], "0.00998"), ([0.2714], "0.271"), ([26.16], "26.16")]
)
def test_the_decimals_of_a_column_follow_from_its_largest_number(values: list[float], shown: str) -> None:
    column = panel.number_column("Wait, ms", pd.Series(values, name="ms"))
    assert column["type_config"]["format"] % values[0] == shown
