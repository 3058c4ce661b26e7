"""Tests of the roofline chart and its limits.

Operations that only move data lie below the memory's line; products lie below the slope, the ridge and the peak.
"""

from __future__ import annotations

from itertools import pairwise

import pandas as pd
import pytest

from sawtooth.app.charts import roofline

BANDWIDTH, PEAK = 4e12, 800.0  # Bytes per second, TFLOP/s: the ridge is at 200 FLOPs per byte.


def placed() -> pd.DataFrame:
    """Return one operator that only moves 8 GB in 4 ms, and one product of 1 TFLOP in 2 ms."""
    moving = {"name": "aten::add", "flops": 0.0, "bytes": 8e9, "time_ns": 4e6, "ms": 4.0, "opportunity_ms": 2.0, "attained_share": 0.5,
              "achieved_tflops": None, "attainable_tflops": None, "intensity": None, "bound": "memory", "dtype": "bf16", "shapes": "4×4"}  # fmt: skip
    product = {"name": "aten::mm", "flops": 1e12, "bytes": 1e9, "time_ns": 2e6, "ms": 2.0, "opportunity_ms": 0.75, "attained_share": 0.625,
               "achieved_tflops": 500.0, "attainable_tflops": 800.0, "intensity": 1000.0, "bound": "compute", "dtype": "bf16", "shapes": "8×8"}  # fmt: skip
    return pd.DataFrame([moving, product])


def lines(figure):
    return [trace for trace in figure.data if trace.mode == "lines"]


def numbers(figure):
    return [note.text for note in figure.layout.annotations if note.text.startswith("<b>")]


@pytest.mark.parametrize("dark", [False, True])
def test_the_memory_roof_is_drawn_and_named_on_both_sides(dark):
    chart, moving = roofline.roofline(placed(), {"bf16": PEAK}, BANDWIDTH, "t", dark=dark)
    (memory,) = lines(moving)
    assert set(memory.y) == {4000.0}  # GB/s
    slope, ridge = lines(chart.figure)
    assert slope.x[1] == ridge.x[0] == ridge.x[1] == pytest.approx(200.0)
    assert slope.y[1] == slope.y[2] == PEAK
    assert slope.y[0] / slope.x[0] == pytest.approx(BANDWIDTH / 1e12)
    notes = [note.text for figure in (chart.figure, moving) for note in figure.layout.annotations]
    assert sum("memory 4.00 TB/s" in note for note in notes) == 2
    assert "200" in notes  # FLOPs per byte, at the dotted line


def test_the_largest_gains_are_rows_with_the_limit_of_the_roof():
    first, second = roofline.largest(placed())
    assert first == ("1  aten::add 4×4", "4.00\u00a0ms", "2.00\u00a0ms", "50\u00a0%")
    assert second[1:] == ("2.00\u00a0ms", "750\u00a0µs", "62\u00a0%")


def test_without_products_only_the_memory_roof_is_drawn():
    (chart,) = roofline.roofline(placed().head(1), {}, BANDWIDTH, "t", dark=False)
    assert [set(line.y) for line in lines(chart.figure)] == [{4000.0}]
    assert "1: the largest gain, in the table" in {entry.label for entry in chart.legend}


def test_text_dots_and_table_have_the_same_numbers():
    tiny = placed().head(1).assign(name="aten::tiny", ms=1e-4, opportunity_ms=9e-5)
    rows = pd.concat([tiny, placed()], ignore_index=True)  # Too short for a dot.
    chart, moving = roofline.roofline(rows, {"bf16": PEAK}, BANDWIDTH, "t", dark=False)
    assert numbers(moving) == ["<b>1</b>"]
    assert numbers(chart.figure) == ["<b>2</b>"]
    assert [row[0][:12] for row in roofline.largest(rows)] == ["1  aten::add", "2  aten::mm "]
    assert "tiny" not in chart.alt and "1 to 2: the largest gains, in the table" in {entry.label for entry in chart.legend}


def test_numbers_of_overlapping_dots_are_stacked():
    across, up = [100.0, 101.0, 100.0, 300.0], [100.0, 101.0, 99.0, 100.0]
    shifts = roofline.shifts(across, up)
    assert shifts[2:] == [0.0, 0.0]  # The lowest of three dots at one place, and a dot at another place, stay.
    heights = sorted(y + shift for y, shift in zip(up[:3], shifts[:3], strict=True))
    assert [b - a for a, b in pairwise(heights)] == pytest.approx([roofline.LINE] * 2)
    assert roofline.shifts([], []) == []


def test_a_numbered_dot_has_room_for_its_number_and_is_not_hidden():
    product = placed().tail(1)
    rows = pd.concat(
        [product.assign(ms=0.02), *[product] * (roofline.MAX_LABELLED - 1), product.assign(ms=0.5)], ignore_index=True
    )
    (chart,) = roofline.roofline(rows, {"bf16": PEAK}, BANDWIDTH, "t", dark=False)
    (dots,) = (trace for trace in chart.figure.data if trace.mode == "markers")
    assert len(dots.x) == roofline.MAX_LABELLED + 1
    assert dots.marker.size[0] < roofline.NAMED_PX <= min(dots.marker.size[1:])  # The dot without a number is drawn first.
