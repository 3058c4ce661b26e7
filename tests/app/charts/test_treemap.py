"""Tests of the treemap of GPU time."""

import pytest

from sawtooth.app.charts.rankings import work_of
from sawtooth.app.charts.treemap import Tile, names_of, treemap, wrapped
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


def drawn(tiles: list[Tile]) -> dict[str, str]:
    """Return the text of each drawn tile and frame by its id."""
    figure = treemap(tiles, "title", "per step", dark=False).figure.data[0]
    return dict(zip(figure["ids"], figure["text"], strict=True))


def test_every_tile_has_a_name() -> None:
    """A tile without room for a name is added to the others of its frame."""
    # Of 100 ms, 1 ms is 1020 square pixels: assumed to be 22 pixels wide and high, without a line for a name.
    kernels = [("nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_NNN", 47.0), ("nvjet_sm90_tst_128x64_64x8_1x2_h_bz_TNT", 9.0)]
    kernels += [(f"nvjet_sm90_tst_64x64_64x{i}_1x2_h_bz_TNT", 1.0) for i in range(36)]
    tiles = [Tile(("gemm",), "gemm", 0.0), *(Tile(("gemm", name), name, ms, "other_compute") for name, ms in kernels)]
    tiles += [Tile(("layout",), "layout", 0.0), Tile(("layout", "transpose"), "transpose", 8.0, "other_compute")]
    texts = {names_of(key)[-1]: text for key, text in drawn(tiles).items()}
    assert set(texts) == {"all", "gemm", kernels[0][0], kernels[1][0], "others", "layout", "transpose"}
    # 9 ms are 67 pixels wide, 10 letters; 36 ms have 21 letters; 8 ms have 10, enough for "transpose".
    assert texts[kernels[1][0]].startswith("nvjet_<br>sm90_tst_<br>")
    assert texts["others"] == "36 others<br>36.0\u00a0ms · 36\u00a0%"
    assert texts["transpose"] == "transpose<br>8.00\u00a0ms"


def test_a_frame_without_room_for_its_name_is_not_drawn() -> None:
    """1 ms of 100 ms is 32 pixels wide, and "normalization" has 79 pixels."""
    tiles = [Tile(("copies",), "copies", 0.0), Tile(("copies", "copy_kernel"), "copy_kernel", 99.0, "other_compute")]
    tiles += [Tile(("normalization",), "normalization", 0.0), Tile(("normalization", "norm"), "norm", 1.0, "other_compute")]
    assert [names_of(key) for key in drawn(tiles)] == [("all",), ("copies",), ("copies", "copy_kernel"), ("others",)]


def test_the_kind_of_work_is_named_in_few_letters() -> None:
    names = ("sm90_xmma_dgrad_implicit_gemm", "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>", "padding_kernel")
    assert [work_of(name) for name in names] == ["dgrad", "add", ""]
