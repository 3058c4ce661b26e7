"""Number formats for sentences: few significant figures, a unit, and no exponent."""

from __future__ import annotations

import math


def significant(value: float, figures: int = 3) -> str:
    """Format ``value`` with at most ``figures`` significant figures: 0.0312, 1.5, 640, 12,346.

    All digits before the decimal point are written, even if there are more than ``figures``.
    """
    if not value or not math.isfinite(value):
        return f"{value:g}"
    # The exponent comes from the rounded value, because 99.96 rounds to 100, which has three digits.
    exponent = int(f"{value:.{figures - 1}e}".split("e")[1])
    decimals = max(figures - 1 - exponent, 0)
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def in_words(ms: float, figures: int = 3) -> str:
    """Format milliseconds in the unit that is easiest to read: 850 µs, 12.3 ms, 1.23 s, 5,200 s.

    The number has at most ``figures`` significant figures.
    """
    rounded = abs(float(f"{ms:.{figures - 1}e}"))
    if rounded < 1:
        return f"{significant(ms * 1e3, figures)} µs"
    return f"{significant(ms, figures)} ms" if rounded < 1000 else f"{significant(ms / 1e3, figures)} s"
