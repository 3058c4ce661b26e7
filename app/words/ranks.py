"""Ranks in words: how a rank's lateness relates to the gain without it."""

from __future__ import annotations

from sawtooth.analysis.run.job import Straggler
from sawtooth.app import format as fmt

SAME = 0.05  # share of the lateness: a gain that differs by less needs no explanation


def lateness_and_gain(late: Straggler, gain_ms: float) -> str:
    """Return why the gain is smaller than the lateness; "" if both are about equal."""
    if late.at_most or gain_ms >= (1 - SAME) * late.own_ms:
        return ""
    gains = f"Of these {fmt.duration_ms(late.own_ms)} a step gains ≈\u00a0{fmt.duration_ms(gain_ms)}"
    if late.reason == "work":
        return f"{gains}: shared out evenly, part of the work goes to the others."
    return f"{gains}: for the rest of them the others are at work themselves, and do not wait."
