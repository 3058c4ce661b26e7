"""Numbers in the sentences that analysis writes; screens have formats of their own."""

from __future__ import annotations


def in_words(ms: float) -> str:
    """Return milliseconds for a sentence, with three significant figures at most: 850 µs, 12.3 ms, 1.23 s."""
    if ms < 1:
        return f"{ms * 1000:.3g} µs"
    if ms >= 1000:
        return f"{ms / 1000:,.3g} s" if ms < 1e6 else f"{ms / 1000:,.0f} s"
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.3g} ms"


def in_bytes(count: float) -> str:
    """Return bytes for a sentence."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


def in_times(count: float) -> str:
    """Return how often: once, 2 times, 1,240 times."""
    return "once" if count == 1 else f"{count:,.0f} times" if count >= 10 else f"{count:.3g} times"
