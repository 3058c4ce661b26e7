"""GPU work by category as one bar: each part has the colour of whose time it is, and is named where there is room."""

from __future__ import annotations

import pandas as pd
import pytest

from sawtooth.app.page.parts.category_bar import once_a_colour, pieces
from sawtooth.app.theme import OWNERS

ROWS = pd.DataFrame(
    [("memcpy", 4.0, 0), ("elementwise", 2.0, 0), ("conv", 3.0, 2_900_000), ("communication", 0.5, 0), ("norm", 0.5, None)],
    columns=["name", "ms", "tensor_core_ns"],
).assign(total_ns=lambda rows: rows["ms"] * 1e6, share=lambda rows: rows["ms"] / 10)


def test_categories_are_parts_in_the_order_and_colours_of_their_owners() -> None:
    parts = pieces(ROWS, dark=False)
    assert [part.hint.split(" ")[0] for part in parts] == [
        "convolutions",
        "elementwise",
        "normalization",
        "communication",
        "transfers",
    ]
    owners = ("tensor_core_compute", "other_compute", "other_compute", "exposed_comm", "exposed_memcpy")
    assert [part.colour for part in parts] == [OWNERS[owner].on(False) for owner in owners]
    assert sum(part.weight for part in parts) == pytest.approx(1000)


def test_a_part_is_named_where_its_name_fits() -> None:
    assert [part.label.replace("\xa0", " ") for part in pieces(ROWS, dark=False)] == [
        "convolutions 30 %",
        "elementwise 20 %",
        "",
        "",
        "transfers 40 %",
    ]


def test_a_name_that_only_just_fits_is_left_out_rather_than_cut() -> None:
    rows = pd.DataFrame([("norm", 0.84, 0), ("conv", 9.16, 0)], columns=["name", "ms", "tensor_core_ns"])
    rows = rows.assign(total_ns=rows["ms"] * 1e6, share=rows["ms"] / 10)
    assert [part.label.replace("\xa0", " ") for part in pieces(rows, dark=False)] == ["convolutions 92 %", ""]


def test_a_legend_has_each_colour_once() -> None:
    _, *others = pieces(ROWS, dark=False)
    blue, *rest = once_a_colour(others)
    assert blue.hint.startswith("from the left: elementwise") and "; normalization" in blue.hint
    assert [part.hint.split(" ")[0] for part in rest] == ["communication", "transfers"]
