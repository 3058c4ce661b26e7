"""Tests of the treemap of GPU time."""

import pytest

from sawtooth.app.charts.treemap import Tile, treemap
from sawtooth.app.theme import OWNERS


@pytest.mark.parametrize("dark", [False, True])
def test_tiles_and_legend_have_the_colours_of_the_other_screens(dark: bool) -> None:
    owners = ("tensor_core_compute", "other_compute")
    tiles = [Tile(("gemm",), "gemm", 0.0), *(Tile(("gemm", owner), owner, 1.0, owner) for owner in owners)]
    chart = treemap(tiles, "title", "per step", dark=dark)
    assert [entry.colour for entry in chart.legend] == [OWNERS[owner].on(dark) for owner in owners]
    assert set(chart.figure.data[0].marker.colors) >= {OWNERS[owner].on(dark) for owner in owners}


def test_no_tile_has_letters_too_small_to_read() -> None:
    """Plotly shrinks a text until it fits; it must hide the text instead."""
    layout = treemap([Tile(("gemm",), "gemm", 1.0, "other_compute")], "title", "per step", dark=False).figure.layout
    assert (layout.uniformtext.mode, layout.uniformtext.minsize) == ("hide", 11)
