"""Numbers in the sentences that analysis writes; screens have formats of their own."""

from __future__ import annotations

from sawtooth.ingest.loop.numbers import in_words, significant

__all__ = ["in_bytes", "in_mhz", "in_number", "in_times", "in_words", "significant"]


def in_bytes(count: float, figures: int = 3) -> str:
    """Return bytes for a sentence."""
    rounded = float(f"{count:.{figures - 1}e}")
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if rounded >= size:
            return f"{significant(count / size, figures)} {unit}"
    return f"{count:.0f} bytes"


def in_mhz(clock: float) -> str:
    """Return a clock to three figures, as the pages round it: 1,460 MHz."""
    return f"{float(f'{clock:.2e}'):,.0f} MHz"


def in_times(count: float) -> str:
    """Return how often: once, 2 times, 1,240 times."""
    return "once" if count == 1 else f"{count:,.0f} times" if count >= 10 else f"{count:.3g} times"


def in_number(count: float, one: str, several: str = "") -> str:
    """Return how many of a thing, rounded: 1 tensor, 1,240 tensors. ``several`` is the plural where more than an s comes to ``one``."""
    return f"{count:,.0f} {one if round(count) == 1 else several or one + 's'}"
