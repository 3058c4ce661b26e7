"""Bands between the equal parts of two steps, and the ratio of their times on an axis, for HTML."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sawtooth.app import format as fmt
from sawtooth.app.charts.waterfall import WaterfallBar
from sawtooth.app.theme import colour_of, place_of

TICKS = (0.05, 0.1, 0.2, 0.25, 0.33, 0.5, 0.67, 0.8, 0.9, 1.1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100)
LETTER, LABEL_GAP = (
    0.025,
    0.03,
)  # Shares of an axis of 280 pixels: the width of a tick label's letter, and the room between labels.
MARGIN = 0.06  # Share of the axis that remains free at both ends.
MIN_DECADES = math.log10(1.25)  # A shorter axis would enlarge noise.


@dataclass(frozen=True)
class Ribbon:
    """A band from a part of A's bar to the same part of B's.

    ``polygon`` are its corners in CSS, and ``hint`` its times in words.
    """

    polygon: str
    colour: str
    hint: str


@dataclass(frozen=True)
class RatioMark:
    """A ratio on the axis: places in CSS and words. ``hollow`` marks a prediction.

    ``bar_left`` and ``bar_width`` are the place of the bar from 1 to the ratio.
    """

    name: str
    text: str
    at: str
    left: str
    width: str
    bar_left: str
    bar_width: str
    hollow: bool


@dataclass(frozen=True)
class RatioAxis:
    """Ratios with their intervals on one logarithmic axis; ``ticks`` have a text and a place in CSS."""

    marks: tuple[RatioMark, ...]
    ticks: tuple[tuple[str, str], ...]
    same: str  # The position of a ratio of 1, in CSS.


@dataclass(frozen=True)
class Ratio:
    """A's step time ÷ B's with its interval; ``name`` says what it is, such as "measured".

    ``digits`` is how many digits are shown.
    """

    name: str
    value: float
    low: float
    high: float
    predicted: bool = False
    digits: int = 2


def ribbons(bars: Sequence[WaterfallBar], *, dark: bool) -> list[Ribbon]:
    """Return the bands between both steps, useful time first.

    A part that only one step has becomes a triangle.
    """
    longest = max(sum(bar.ms_a for bar in bars), sum(bar.ms_b for bar in bars), 1e-12)
    a = b = 0.0
    bands = []
    for bar in sorted(bars, key=lambda bar: place_of(bar.owner, bar.cause)):
        ends = (a, a + bar.ms_a, b + bar.ms_b, b)
        a, b = ends[1], ends[2]
        corners = zip((f"{100 * end / longest:.2f}%" for end in ends), ("0", "0", "100%", "100%"), strict=True)
        hint = f"{bar.label}: {fmt.duration_ms(bar.ms_a)} → {fmt.duration_ms(bar.ms_b)}"
        bands.append(Ribbon(", ".join(map(" ".join, corners)), colour_of(bar.owner, bar.cause).on(dark), hint))
    return bands


def ratio_axis(ratios: Sequence[Ratio]) -> RatioAxis:
    """Return the axis of ``ratios``; it always contains 1, where both steps take the same time."""
    ends = [math.log10(end) for ratio in ratios for end in (ratio.low, ratio.high, ratio.value)]
    low, high = min(0.0, *ends), max(0.0, *ends)
    missing = max(MIN_DECADES - (high - low), 0.0) / 2
    low, high = low - missing, high + missing
    pad = (high - low) * MARGIN
    low, high = low - pad, high + pad

    def place(value: float) -> float:
        return (math.log10(value) - low) / (high - low)

    marks = tuple(
        RatioMark(
            ratio.name,
            f"{fmt.times(ratio.value, ratio.digits)} ({fmt.number(ratio.low, ratio.digits)} to {fmt.number(ratio.high, ratio.digits)})",
            f"{place(ratio.value):.2%}",
            f"{place(ratio.low):.2%}",
            f"{place(ratio.high) - place(ratio.low):.2%}",
            f"{min(place(1.0), place(ratio.value)):.2%}",
            f"{abs(place(ratio.value) - place(1.0)):.2%}",
            ratio.predicted,
        )
        for ratio in ratios
    )
    ticks = tuple((text, f"{at:.2%}") for text, at in _ticks(ratios[-1].value, place))
    return RatioAxis(marks, ticks, f"{place(1.0):.2%}")


def _ticks(value: float, place: Callable[[float], float]) -> list[tuple[str, float]]:
    """Return texts and places of the ticks, whose labels do not touch.

    1 ("same") comes first, then the ratios closest to ``value``.
    """
    ticks = [("same", place(1.0))]
    for tick in sorted(TICKS, key=lambda tick: abs(math.log10(tick / value))):
        text, at = f"{tick:g}\u00a0×", place(tick)
        if 0.02 <= at <= 0.98 and all(
            abs(at - other) >= LETTER * (len(text) + len(word)) / 2 + LABEL_GAP for word, other in ticks
        ):
            ticks.append((text, at))
    return sorted(ticks, key=lambda tick: tick[1])
