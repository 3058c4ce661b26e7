"""Quantiles of Student's t and of the normal distribution, without SciPy: loading it takes longer than all else that a report computes of a trace."""

from __future__ import annotations

import math
from statistics import NormalDist

MOST_ROUNDS = 100_000  # of the continued fraction, which takes about the square root of the degrees of freedom
NEARLY = 1e-15  # relative; a float holds no more digits
TINY = 1e-300  # stands for a zero by which one divides


def student_t(freedom: float, share: float) -> float:
    """Return what a t-distributed number with ``freedom`` degrees (above 0) stays below with probability ``share``, 0 < share < 1.

    Newton's method inside a bracket, on the tail beyond the number. Eleven digits are right up to a thousand degrees, eight up to a million
    (a test holds them against SciPy).
    """
    tail = min(share, 1 - share)
    low, high = 0.0, 1.0
    while _beyond(high, freedom) > tail:
        low, high = high, 2 * high
    constant = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
    t = high
    for _ in range(MOST_ROUNDS):
        missing = _beyond(t, freedom) - tail
        low, high = (t, high) if missing > 0 else (low, t)
        density = math.exp(constant - (freedom + 1) / 2 * math.log1p(t * t / freedom))
        guess = t + missing / density
        if not low < guess < high:
            guess = (low + high) / 2
        if abs(guess - t) <= NEARLY * t or not low < guess < high:
            break
        t = guess
    return t if share > tail else -t


def normal(share: float) -> float:
    """Return what a standard normal number stays below with probability ``share``."""
    return NormalDist().inv_cdf(share)


def _beyond(t: float, freedom: float) -> float:
    """Return how likely a t-distributed number is above ``t`` (0 or more): half the incomplete beta function at freedom ÷ (freedom + t²)."""
    a, b = freedom / 2, 0.5
    x, rest = freedom / (freedom + t * t), t * t / (freedom + t * t)
    if rest == 0:
        return 0.5
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a / 2
    return 0.5 - front * _fraction(b, a, rest) / b / 2


def _fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of the incomplete beta function (DLMF 8.17.22) by Lentz's method."""
    numerator, denominator = 1.0, 1 / (1 - (a + b) * x / (a + 1) or TINY)
    value = denominator
    for m in range(1, MOST_ROUNDS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for part in (even, odd):
            numerator = 1 + part / numerator or TINY
            denominator = 1 / (1 + part * denominator or TINY)
            value *= numerator * denominator
        if abs(numerator * denominator - 1) < NEARLY:
            break
    return value
