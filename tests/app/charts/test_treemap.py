"""Tests of the treemap of GPU time."""

import pytest

from sawtooth.app.charts.rankings import work_of
from sawtooth.app.charts.treemap import Tile, treemap, wrapped
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


@pytest.mark.parametrize(
    ("name", "letters", "lines", "rows"),
    [
        ("batch_norm_collect_statistics_kernel", 14, 4, ["batch_norm_", "collect_", "statistics_", "kernel"]),
        ("batch_norm_collect_statistics_kernel", 12, 2, ["batch_norm_", "collect…"]),
        ("vectorized_elementwise", 6, 3, []),  # The first word does not fit.
        ("CUDAFunctorAdd", 11, 2, ["CUDAFunctor", "Add"]),
    ],
)
def test_a_name_in_a_tile_is_never_cut_within_a_word(name: str, letters: int, lines: int, rows: list[str]) -> None:
    assert wrapped(name, letters, lines) == rows


def test_small_tiles_are_drawn_and_not_added_up_to_the_largest_tile() -> None:
    tiles = [Tile(("conv",), "conv", 0.0), Tile(("conv", "large"), "large", 10.0, "other_compute")]
    tiles += [Tile(("conv", f"k{i}"), f"k{i}", 0.5, "other_compute") for i in range(40)]  # 20 ms, each 1.7 % of 30 ms
    drawn = treemap(tiles, "title", "per step", dark=False).figure.data[0]
    assert max(drawn["values"]) == 10.0 and "smaller" not in " ".join(drawn["labels"])


def test_the_kind_of_work_is_named_in_few_letters() -> None:
    names = ("sm90_xmma_dgrad_implicit_gemm", "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>", "padding_kernel")
    assert [work_of(name) for name in names] == ["dgrad", "add", ""]
