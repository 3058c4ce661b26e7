"""Bisection: find the point in an interval at which a condition becomes false."""

from __future__ import annotations

import math
from collections.abc import Callable


def turning_point(
    holds: Callable[[float], bool], low: float, high: float, *, halvings: int, geometric: bool = False
) -> tuple[float, float]:
    """Return the interval that contains the turning point after ``halvings`` bisections.

    ``holds`` must be true below the turning point and false above it. At ``low`` and ``high`` this is assumed and not checked.
    ``geometric`` splits at √(low · high), for factors.
    """
    for _ in range(halvings):
        middle = math.sqrt(low * high) if geometric else (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high
