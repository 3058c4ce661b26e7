"""Numbers in sentences keep three figures and their unit, and none has an exponent."""

from __future__ import annotations

import pytest

from sawtooth.analysis.units import in_bytes, in_times, in_words


@pytest.mark.parametrize(
    ("ms", "words"),
    [(0.52, "520 µs"), (1.5, "1.5 ms"), (99.96, "100 ms"), (640.4, "640 ms"), (1234.0, "1.23 s"), (5.2e6, "5,200 s")],
)
def test_milliseconds(ms: float, words: str) -> None:
    assert in_words(ms) == words


def test_bytes_and_times() -> None:
    assert (in_bytes(1.5e9), in_bytes(20.0), in_times(1), in_times(2.5), in_times(1240)) == (
        "1.5 GB",
        "20 bytes",
        "once",
        "2.5 times",
        "1,240 times",
    )
