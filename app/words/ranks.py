"""Ranks in words: how a rank's lateness and what a step gains without it go together."""

from __future__ import annotations

from sawtooth.analysis.run.job import Straggler
from sawtooth.app import format as fmt

SAME = 0.05  # of the lateness: a gain that differs by less needs no reason


def lateness_and_gain(late: Straggler, gain_ms: float) -> str:
    """Say why a step gains less than a rank is late by; "" where it gains as much."""
    if late.at_most or gain_ms >= (1 - SAME) * late.own_ms:
        return ""
    gains = f"Of these {fmt.duration_ms(late.own_ms)} a step gains ≈\u00a0{fmt.duration_ms(gain_ms)}"
    if late.reason == "work":
        return f"{gains}: shared out evenly, part of the work goes to the others."
    return f"{gains}: for the rest of them the others are at work themselves, and do not wait."
