"""Tests of the format of numbers and names."""

import pytest

from sawtooth.analysis.metrics.reading import Reading, missing
from sawtooth.app import format as fmt

NB = "\u00a0"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (41.26, "41.3"),
        (312.4, "312"),
        (0.03124, "0.0312"),
        (1240, "1,240"),
        (9.996, "10.0"),
        (-2.5, "−2.50"),
        (3e-5, "3.0e−5"),
    ],
)
def test_numbers_have_three_significant_figures(value: float, text: str) -> None:
    assert fmt.number(value) == text


@pytest.mark.parametrize(("times", "text"), [(6.6, f"6.6{NB}×"), (1.05, f"1.1{NB}×"), (1.04, f"−3.8{NB}%"), (0.8, f"+25{NB}%")])
def test_a_small_gain_is_a_percentage_instead_of_a_factor(times: float, text: str) -> None:
    assert fmt.speedup(times) == text  # 1 / 1.04 − 1 = −3.8 %


def test_a_range_shows_a_common_unit_once() -> None:
    assert fmt.span_ms(37.2, 46.7) == f"37.2 to 46.7{NB}ms"
    assert fmt.span_ms(0.82, 37.1) == f"0.82 to 37.1{NB}ms"
    assert fmt.span_ms(0.0049, 0.037) == f"4.90 to 37.0{NB}µs"
    assert [fmt.part_ms(32.3, ms) for ms in (5.63, 0.0905, 0.0079)] == [f"5.63{NB}ms", f"0.090{NB}ms", f"7.90{NB}µs"]
    assert fmt.step_change(1.07, 0.63) == f"1.07 → ≈{NB}0.63{NB}ms"
    assert fmt.part_ms(0.6, 0.0905) == f"90.5{NB}µs"  # The whole is in µs.


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (340, "340 ns"),
        (8_200, "8.20 µs"),
        (41_300_000, "41.3 ms"),
        (999_600_000, "1.00 s"),
        (90e9, "90.0 s"),
        (180e9, "3.00 min"),
        (18 * 3600e9, "18.0 h"),
        (-1500, "−1.50 µs"),
    ],
)
def test_a_duration_has_the_most_readable_unit(ns: float, text: str) -> None:
    assert fmt.duration_ns(ns) == text.replace(" ", NB)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 %"),
        (1, "100 %"),
        (0.884, "88 %"),
        (0.0621, "6.2 %"),
        (0.0052, "0.52 %"),
        (0.00001, "< 0.01 %"),
        (0.9996, "99.9 %"),
        (0.996, "99.6 %"),
        (1.002, "100 %"),  # Values above 100 % are rounded like other shares.
        (1.02, "102 %"),
        (-0.06, "−6.0 %"),
    ],
)
def test_a_share_is_never_rounded_to_zero_or_all(value: float, text: str) -> None:
    assert fmt.share(value) == text.replace(" ", NB)


@pytest.mark.parametrize("value", [0.9965, 0.9996, 0.5, 0.995, 1.0])
def test_a_table_formats_a_share_as_the_text_does(value: float) -> None:
    assert f"{100 * (fmt.shown_share(value) or 0.0):.3g}\u2009%".replace("\u2009", " ") == fmt.share(value).replace(
        "\u00a0", " "
    ).replace("\u2009", " ").replace("\u202f", " ")


def test_amounts_have_decimal_prefixes() -> None:
    assert fmt.bytes_(1_240_000_000) == f"1.24{NB}GB"
    assert fmt.bytes_(840) == f"840{NB}B"
    # An H200 reports 143,771 MiB: 143,771 / 1,024 = 140 GiB.
    assert [fmt.memory(size) for size in (143_771 * 2**20, 1.5 * 2**30, 512 * 2**20)] == [
        f"140{NB}GiB",
        f"1.50{NB}GiB",
        f"512{NB}MiB",
    ]
    assert fmt.flop_rate(312.4) == f"312{NB}TFLOP/s"
    assert fmt.flop_rate(1979) == f"1.98{NB}PFLOP/s"
    assert fmt.flops(1_555_140_968_448) == f"1.56{NB}TFLOP"
    assert fmt.count(918) == "918"
    assert (fmt.count(9_999), fmt.count(12_400)) == ("9,999", f"12.4{NB}k")
    assert fmt.count(5_020_000) == f"5.02{NB}M"
    assert (fmt.money(12.4), fmt.money(1240.2)) == (f"${NB}12.40", f"${NB}1,240")
    assert fmt.in_unit(41.2, "percent") == f"41{NB}%"
    assert fmt.factor(6.64) == f"6.6{NB}×"
    assert fmt.signed(fmt.share(0.05), 0.05) == f"+5.0{NB}%"


def test_a_reading_shows_its_metric_s_unit_and_a_missing_one_no_number() -> None:
    assert fmt.reading("step_time_ms", Reading(312.0)) == f"312{NB}ms"
    assert fmt.reading("mfu", Reading(0.0052)) == f"0.52{NB}%"
    assert fmt.reading("mfu", missing("no shapes were recorded")) == fmt.MISSING


def test_every_metric_s_unit_has_a_format() -> None:
    from sawtooth.analysis.metrics.registry import METRICS

    for metric in METRICS.values():
        assert fmt.in_unit(0.5, metric.unit)
        assert metric.unit in {"ms", "share", "FLOP", "TFLOP/s", "count", "bytes", "s", "percent"}, metric.key


HOSTILE = [
    "<script>alert(1)</script>",
    "![x](http://evil.example/x.png)",
    "<img src=http://evil.example/x.png onerror=alert(1)>",
    "[link](javascript:alert(1))",
    "$\\frac{1}{2}$",
    ":material/delete:",
    ":red[text]",
    "http://evil.example www.evil.example a@evil.example",
    "**bold** _it_ `code`",
    "%{x} %{customdata}",
    "a<b>c</b>d &lt;b&gt;",
    "\u202egnp.exe",
    "line\nbreak\r\ttab\x00",
    "'; DROP TABLE gpu_ops; --",
    "x" * 5000,
]


@pytest.mark.parametrize("name", HOSTILE)
def test_escaped_names_contain_no_markup(name: str) -> None:
    escaped = fmt.plain(name)
    assert "<" not in escaped
    assert ">" not in escaped
    assert "&quot;" not in escaped  # Plotly would show &quot; as it is.
    assert len(fmt.clean(name, 120)) <= 120
    assert not set(fmt.clean(name)) & set("\n\r\t\x00\u202e")


def test_a_name_with_combining_characters_is_cut_at_the_limit() -> None:
    assert fmt.clean("e\u0301" * 10, 5) == "éééé…"


@pytest.mark.parametrize("name", HOSTILE)
def test_names_in_markdown_contain_no_active_characters(name: str) -> None:
    import html

    escaped = fmt.markdown(name)
    assert not set(escaped) & set("<>*_`[]()!$\\:/@\n")
    shown = html.unescape(escaped).replace("\u2060", "")
    assert shown == fmt.clean(name, fmt.NAME_LENGTH)
    assert "http://" not in html.unescape(escaped)
    assert "www." not in html.unescape(escaped)


@pytest.mark.parametrize("name", ["resnet50-baseline (2)", "aten::mm", "at 10:30", "a <b> [c]", "x_y.pt.trace.json.gz"])
def test_an_ordinary_name_is_copied_as_it_is(name: str) -> None:
    import html

    assert html.unescape(fmt.markdown(name)) == name


@pytest.mark.parametrize(
    "name",
    [
        "a->b",
        "a <- b",
        ":smile:",
        ":material/delete:",
        "http://evil.example",
        "www.evil.example",
        "a@evil.example",
        "x--y",
        "x>=y",
    ],
)
def test_character_sequences_for_arrows_icons_or_addresses_are_split(name: str) -> None:
    import html

    shown = html.unescape(fmt.markdown(name))
    assert shown != name
    assert shown.replace("\u2060", "") == name


@pytest.mark.parametrize(
    ("key", "heading"),
    [("longest_wait_ms", "Longest wait, ms"), ("data-loader-starves-gpu", "Data loader starves gpu"), ("ms", "Ms"), ("", "")],
)
def test_a_key_becomes_a_heading(key: str, heading: str) -> None:
    assert fmt.heading(key) == heading


@pytest.mark.parametrize(
    ("before", "after", "shorter"),
    [
        (33.64, 15.86, "17.7 ms"),  # 33.6 − 15.9: the difference of the shown values, not 17.78
        (27.7, 9.034, "18.7 ms"),
        (1250.0, 310.0, "940 ms"),
        (2.0, 0.5, "1.50 ms"),
        (9.6, 9.599, "1.00 µs"),  # Both times are shown as 9.60 ms.
        (4321.0, 1200.0, "3.12 s"),
    ],
)
def test_shown_differences_of_steps_add_up(before: float, after: float, shorter: str) -> None:
    assert fmt.saved_time(before, after).replace("\u00a0", " ") == shorter


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("65.7 ms → ≈ 35.1 ms", "65.7_ms →_≈_35.1_ms"),
        ("26 ms of 12 GB at 3 ×, 7 steps", "26_ms of 12_GB at 3_×, 7 steps"),
        ("8 sm80 kernels", "8 sm80 kernels"),
    ],
)
def test_numbers_stay_on_one_line_with_unit_and_arrow(written: str, kept: str) -> None:
    assert fmt.spaced(written) == kept.replace("_", "\u00a0")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("680 µs of each 1.07 ms step", "0.68_ms of each 1.07_ms step"),
        ("a step of 1.07_ms (490 to 892_µs)", "a step of 1.07_ms (0.49 to 0.89_ms)"),
        ("680 → ≈ 400 µs of 12 ms", "0.68 →_≈_0.40_ms of 12_ms"),
        ("343 kernels, 680 µs of each step", "343 kernels, 680_µs of each step"),  # There is no other unit.
        ("1.8 µs per operator and 210 µs per step of 7 ms", "1.8_µs per operator and 210_µs per step of 7_ms"),
    ],
)
def test_the_times_of_a_sentence_have_one_unit(written: str, shown: str) -> None:
    assert fmt.spaced(written.replace("_", NB)) == shown.replace("_", NB)


def test_percentages_have_a_space_everywhere() -> None:
    assert fmt.spaced("94% full, 3.5% of it; 12\u00a0% stay, and so do 10%foo and %d") == (
        "94\u00a0% full, 3.5\u00a0% of it; 12\u00a0% stay, and so do 10%foo and %d"
    )


def test_a_bound_of_a_rounded_value_has_one_symbol() -> None:
    assert [fmt.with_bound_sign("42 %", bound) for bound in ("least", "most", None)] == ["≥\u00a042 %", "≤\u00a042 %", "42 %"]
    assert [fmt.with_bound_sign("< 0.01 %", bound) for bound in ("least", "most")] == ["≥\u00a00", "< 0.01 %"]
