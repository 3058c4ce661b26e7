"""Tests of numbers in tables: they have the same digits as the sentences beside them."""

from __future__ import annotations

import pandas as pd
import pytest

from sawtooth.app.page import panel


@pytest.mark.parametrize(
    ("values", "shown"), [([0.00998, 0.002], "0.00998"), ([0.00998, 0.05], "0.00998"), ([0.2714], "0.271"), ([26.16], "26.16")]
)
def test_a_column_has_as_many_decimals_as_its_small_numbers_need(values: list[float], shown: str) -> None:
    column = panel.number_column("Wait, ms", pd.Series(values, name="ms"))
    assert column["type_config"]["format"] % values[0] == shown
