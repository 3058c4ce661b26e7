"""Tests of numbers in sentences: a few digits with their unit and without an exponent."""

from __future__ import annotations

import pytest

from sawtooth.analysis.units import in_bytes, in_memory, in_number, in_times, in_words, significant


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0.52, "520 µs"), (0.9999, "1 ms"), (1.5, "1.5 ms"), (99.96, "100 ms"), (640.4, "640 ms"), (999.7, "1 s"),
        (1234.0, "1.23 s"), (999.7e3, "1,000 s"), (5.2e6, "5,200 s"), (0.0, "0 µs"),
    ],
)  # fmt: skip
def test_milliseconds(ms: float, words: str) -> None:
    assert in_words(ms) == words


def test_milliseconds_to_four_figures() -> None:
    assert [in_words(ms, 4) for ms in (12_345.6, 702.31, 9.65, 0.99999)] == ["12.35 s", "702.3 ms", "9.65 ms", "1 ms"]


def test_a_number_has_all_its_digits_before_the_point() -> None:
    assert [significant(value, 4) for value in (12_345.6, 1.5, 0.031249, 0.0000125)] == [
        "12,346",
        "1.5",
        "0.03125",
        "0.0000125",
    ]


def test_bytes_and_times() -> None:
    assert [in_bytes(count) for count in (1.5e9, 999.9e6, 1.5e12, 20.0)] == ["1.5 GB", "1 GB", "1,500 GB", "20 bytes"]
    # An H200 reports 143,771 MiB, which are 140 GiB and 151 decimal GB.
    assert [in_memory(count) for count in (143_771 * 2**20, 1.5 * 2**30, 512 * 2**20, 20.0)] == [
        "140 GiB",
        "1.5 GiB",
        "512 MiB",
        "20 bytes",
    ]
    assert [in_times(count) for count in (1, 2.5, 1240)] == ["once", "2.5 times", "1,240 times"]


def test_a_count_of_one_is_singular() -> None:
    assert [in_number(count, "kernel") for count in (0.3, 1, 1.4, 2, 1769)] == [
        "0 kernels",
        "1 kernel",
        "1 kernel",
        "2 kernels",
        "1,769 kernels",
    ]
    assert [in_number(count, "copy is", "copies are") for count in (1, 3)] == ["1 copy is", "3 copies are"]
