"""The place in an interval where a condition stops to hold, by halving it."""

from __future__ import annotations

import math
from collections.abc import Callable


def turning_point(
    holds: Callable[[float], bool], low: float, high: float, *, halvings: int, geometric: bool = False
) -> tuple[float, float]:
    """Return what is left of ``low`` to ``high`` around the place above which ``holds`` is false, after so many ``halvings``.

    ``holds`` is taken to be true at ``low`` and false at ``high``, neither of which is tried. ``geometric`` halves ratios, not differences:
    for a factor that may be below 1 as well as above.
    """
    for _ in range(halvings):
        middle = math.sqrt(low * high) if geometric else (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high
