"""The change from A's step to B's as one signed bar per cause, for HTML; the bars sum to the change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sawtooth.app import format as fmt
from sawtooth.app.charts.poster_bars import WaterfallStep
from sawtooth.app.charts.waterfall import WaterfallBar
from sawtooth.app.theme import UNKNOWN, colour_of

MAX_BARS = 4  # Causes with a bar of their own. The others are one bar, so that the list stays short.
MIN_BAR_SHARE = 0.01  # Share of the largest change: a shorter bar is invisible.


@dataclass(frozen=True)
class CauseChanges:
    """The bars, the largest change first.

    ``zero`` is the place of no change in CSS, and ``total`` the change of the step.
    """

    rows: tuple[WaterfallStep, ...]
    zero: str
    total: str


def cause_changes(bars: Sequence[WaterfallBar], *, dark: bool) -> CauseChanges | None:
    """Return the signed bars of a comparison; None if no part changes."""
    by_size = sorted(bars, key=lambda bar: -abs(bar.change_ms))
    largest = abs(by_size[0].change_ms) if by_size else 0.0
    if not largest:
        return None
    largest_bars = [bar for bar in by_size[:MAX_BARS] if abs(bar.change_ms) >= MIN_BAR_SHARE * largest]
    other_change = sum(bar.change_ms for bar in by_size[len(largest_bars) :])
    rows = [(bar.named, bar.change_ms, colour_of(bar.owner, bar.cause) if bar.resolved else UNKNOWN) for bar in largest_bars]
    rows += (
        [("everything else", other_change, UNKNOWN)] if len(by_size) > len(largest_bars) and abs(other_change) > 1e-9 else []
    )
    low, high = (end(0.0, *(ms for _, ms, _ in rows)) for end in (min, max))
    longest_ms = max(sum(bar.ms_a for bar in bars), sum(bar.ms_b for bar in bars))
    drawn = tuple(
        WaterfallStep(
            name,
            signed_ms(longest_ms, ms),
            f"{(min(ms, 0.0) - low) / (high - low):.2%}",
            f"{abs(ms) / (high - low):.2%}",
            colour.on(dark),
            colour.texture,
        )
        for name, ms, colour in rows
    )
    return CauseChanges(drawn, f"{-low / (high - low):.2%}", signed_ms(longest_ms, sum(bar.change_ms for bar in bars)))


def signed_ms(whole_ms: float, change_ms: float) -> str:
    """Return a change with its sign, in the unit of the step, such as "−613 ms"."""
    sign = "−" if change_ms < 0 else "+"
    return f"{sign}{fmt.part_ms(whole_ms, abs(change_ms))}"
