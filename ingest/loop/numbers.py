"""Numbers in sentences, of the recorder and of the analysis: a few significant figures, a unit, and never an exponent."""

from __future__ import annotations

import math


def significant(value: float, figures: int = 3) -> str:
    """Return ``value`` with as many significant figures at most, and all digits before the point: 0.0312, 1.5, 640, 12,346."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    exponent = int(f"{value:.{figures - 1}e}".split("e")[1])  # of the rounded value: 99.96 has two digits, 100 has three
    decimals = max(figures - 1 - exponent, 0)
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def in_words(ms: float, figures: int = 3) -> str:
    """Return milliseconds in the unit that reads best, with ``figures`` significant ones at most: 850 µs, 12.3 ms, 1.23 s, 5,200 s."""
    rounded = abs(float(f"{ms:.{figures - 1}e}"))
    if rounded < 1:
        return f"{significant(ms * 1e3, figures)} µs"
    return f"{significant(ms, figures)} ms" if rounded < 1000 else f"{significant(ms / 1e3, figures)} s"
