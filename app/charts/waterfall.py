"""Two step times compared: a waterfall from one to the other, both steps as bars, steps as dots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd
import plotly.graph_objects as go

from sawtooth.app import format as fmt
from sawtooth.app.charts.base import Chart, TimeUnit, entry_of, marker, time_unit, with_layout
from sawtooth.app.theme import ACCENT, MUTED, UNKNOWN, Colour, colour_of, place_of

# A share of the longer step. Smaller parts would be about one pixel of a chart of 300 px, so they share one bar.
MIN_BAR_SHARE = 0.004
CUT_FROM = 0.35  # Share of the step. If all changes are smaller, the axis is cut, because the changes would be unreadable.
CHANGE_PX = 92  # Pixels on the right for a change in words, such as ▼ −613 ms.
DOTS_TICKED = 20  # Up to this number of steps, each one has its number on the axis.
NOT_RESOLVED = "not resolved"
_PARTS = {"part": "Part", "ms_a": "A, ms per step", "ms_b": "B, ms per step", "change_ms": "Change, ms per step"}


@dataclass(frozen=True)
class WaterfallBar:
    """One owner and cause in both steps, in ms per step.

    If it is not ``resolved``, its change may come only from the scaling of the profiled parts to the run's step.
    """

    owner: str
    cause: str | None
    ms_a: float
    ms_b: float
    resolved: bool = True

    @property
    def change_ms(self) -> float:
        """B − A."""
        return self.ms_b - self.ms_a

    @property
    def label(self) -> str:
        """The name: that of its cause, if it has one."""
        name, owner = colour_of(self.owner, self.cause).label, colour_of(self.owner).label
        return name if self.owner in ("idle", "exposed_comm") or name == owner else f"{owner}: {name}"

    @property
    def named(self) -> str:
        """The label, with a note if the change is not resolved."""
        return self.label if self.resolved else f"{self.label} ({NOT_RESOLVED})"

    @property
    def label_in_sentence(self) -> str:
        """The label as part of a sentence, such as "waiting for the data loader"."""
        return f"waiting for the {self.label}" if (self.owner, self.cause) == ("idle", "data_wait") else self.label


class _BarRow(NamedTuple):
    """A bar of the picture.

    ``side`` is "" for a part of the change. ``begin`` and ``length`` are in ms; a gain has a negative length.
    """

    side: str
    label: str
    begin: float
    length: float
    colour: Colour
    hover: str


def _rows(
    large_bars: Sequence[WaterfallBar], small_bars: Sequence[WaterfallBar], names: tuple[str, str], totals: tuple[float, float]
) -> list[_BarRow]:
    """Return A, the parts (each begins where the last one ended), the small parts as one, and B."""
    rows = [_BarRow("A", fmt.plain(names[0], 28), 0.0, totals[0], MUTED, f"A: {fmt.duration_ms(totals[0])}")]
    at = totals[0]
    for bar in large_bars:
        hover = f"{bar.named}: {fmt.duration_ms(bar.ms_a)} → {fmt.duration_ms(bar.ms_b)}"
        colour = colour_of(bar.owner, bar.cause) if bar.resolved else UNKNOWN
        rows.append(_BarRow("", bar.named, at, bar.change_ms, colour, hover))
        at += bar.change_ms
    remaining_ms = sum(b.change_ms for b in small_bars)
    if small_bars and abs(remaining_ms) > 1e-9:
        rows.append(_BarRow("", "everything else", at, remaining_ms, UNKNOWN, ", ".join(b.label for b in small_bars)))
    return [*rows, _BarRow("B", fmt.plain(names[1], 28), 0.0, totals[1], ACCENT, f"B: {fmt.duration_ms(totals[1])}")]


def waterfall(bars: Sequence[WaterfallBar], names: tuple[str, str], title: str, *, dark: bool, method: str) -> Chart:
    """Draw the waterfall from A's step to B's: gains first, then losses.

    Each bar begins where the previous one ended.
    """
    total_a, total_b = sum(b.ms_a for b in bars), sum(b.ms_b for b in bars)
    longest = max(total_a, total_b, 1e-12)
    large_bars = sorted((b for b in bars if abs(b.change_ms) >= MIN_BAR_SHARE * longest), key=lambda b: b.change_ms)
    small_bars = [b for b in bars if abs(b.change_ms) < MIN_BAR_SHARE * longest]
    rows = _rows(large_bars, small_bars, names, (total_a, total_b))
    unit = time_unit(longest)
    figure = go.Figure()
    for at_row, (side, _, base, length, fill, hover) in enumerate(rows):
        figure.add_bar(
            y=[at_row],
            base=[base / unit.ms],
            x=[length / unit.ms],
            orientation="h",
            marker=marker(fill, dark),
            customdata=[hover],
            hovertemplate="%{customdata}<extra></extra>",
        )
        # The words are always to the right of the bar, because the bar's name is on its left.
        words = fmt.duration_ms(length) if side else change_with_arrow(length)
        figure.add_annotation(
            x=max(base, base + length) / unit.ms,
            y=at_row,
            text=words,
            showarrow=False,
            xanchor="left",
            xshift=2,
            font={"size": 12},
        )
    with_layout(figure, 70 + 30 * len(rows)).update_layout(barmode="overlay", bargap=0.3, margin={"r": CHANGE_PX})
    ticks = [f"<b>{row.side}</b> {row.label if row.label != row.side else ''}" if row.side else row.label for row in rows]
    figure.update_yaxes(
        tickmode="array", tickvals=list(range(len(rows))), ticktext=ticks, autorange="reversed", showgrid=False, automargin=True
    )
    axis = _axis([(row.begin, row.begin + row.length) for row in rows if not row.side], total_a, total_b, unit)
    figure.update_xaxes(zeroline=False, **axis)
    if axis["range"][0]:
        _break(figure, (0, len(rows) - 1), *axis["range"], dark=dark)
    table = pd.DataFrame(
        [(b.named, b.ms_a, b.ms_b, b.change_ms) for b in [*large_bars, *small_bars]],
        columns=["part", "ms_a", "ms_b", "change_ms"],
    )
    changes = ", ".join(f"{b.named} {fmt.signed(fmt.duration_ms(b.change_ms), b.change_ms)}" for b in large_bars) or "no change"
    alt = f"{title}. From A, {fmt.duration_ms(total_a)}, to B, {fmt.duration_ms(total_b)}: {changes}."
    return Chart(figure=figure, title=title, alt=alt, table=table, columns=_PARTS, metrics=(), method=method)


def change_with_arrow(change_ms: float) -> str:
    """Return a change of time with its sign and an arrow; a down arrow means better."""
    arrow = "▼ " if change_ms < 0 else "▲ " if change_ms > 0 else ""
    return arrow + fmt.signed(fmt.duration_ms(change_ms), change_ms)


def _break(figure: go.Figure, rows: tuple[int, int], low: float, high: float, *, dark: bool) -> None:
    """Draw two slanted lines in the page's colour over the bars of ``rows``, where the axis is cut."""
    page = "#14171A" if dark else "#FFFFFF"
    step = (high - low) / 100
    for row in rows:
        for at in (low + 1.5 * step, low + 3 * step):
            path = f"M {at},{row + 0.5} L {at + 0.8 * step},{row - 0.5}"
            figure.add_shape(type="path", path=path, line={"color": page, "width": 4})


def _axis(spans: Sequence[tuple[float, float]], total_a: float, total_b: float, unit: TimeUnit) -> dict[str, Any]:
    """Return the axis: from 0, or cut if the changes are small relative to the step; its title says so."""
    ends = [v for span in spans for v in span] + [total_a, total_b]
    low, high = min(ends), max(ends)
    room = 0.12 * max(high - low, 0.02 * high)
    if spans and high and (high - low) < CUT_FROM * high and low > 0:  # Two equal steps need no cut axis.
        start = max(low - 3 * room, 0.0)
        return {
            "range": [start / unit.ms, (high + 2 * room) / unit.ms],
            "title": {"text": f"{unit.name} per step, cut at {fmt.duration_ms(start)}"},
        }
    return {"range": [0, high * 1.01 / unit.ms if high else 1], "title": {"text": f"{unit.name} per step"}}


def two_steps(bars: Sequence[WaterfallBar], names: tuple[str, str], title: str, *, dark: bool) -> Chart:
    """Draw both steps one below the other, part by part, without parts that neither side has."""
    figure = go.Figure()
    unit = time_unit(max(sum(b.ms_a for b in bars), sum(b.ms_b for b in bars)))
    ordered = sorted((b for b in bars if b.ms_a or b.ms_b), key=lambda b: place_of(b.owner, b.cause))
    for bar in ordered:
        colour = colour_of(bar.owner, bar.cause)
        figure.add_bar(
            y=["A", "B"],
            x=[bar.ms_a / unit.ms, bar.ms_b / unit.ms],
            orientation="h",
            name=bar.label,
            marker=marker(colour, dark),
            customdata=[f"{bar.label}: {fmt.duration_ms(ms)}" for ms in (bar.ms_a, bar.ms_b)],
            hovertemplate="%{customdata}<extra></extra>",
        )
    with_layout(figure, 160)
    figure.update_layout(barmode="stack", bargap=0.25)
    figure.update_yaxes(autorange="reversed", ticksuffix="  ", showgrid=False)
    figure.update_xaxes(title={"text": f"{unit.name} per step"}, zeroline=False)
    table = pd.DataFrame(
        [(b.label, b.ms_a, b.ms_b, b.change_ms) for b in ordered], columns=["part", "ms_a", "ms_b", "change_ms"]
    )
    alt = f"{title}. " + "; ".join(
        f"{side}, {fmt.plain(name)}: "
        + ", ".join(f"{b.label} {fmt.duration_ms(ms)}" for b in ordered if (ms := getattr(b, field)))
        for side, name, field in (("A", names[0], "ms_a"), ("B", names[1], "ms_b"))
    )
    legend = tuple(entry_of(colour_of(b.owner, b.cause), dark)._replace(label=b.label) for b in ordered)
    return Chart(figure, title, alt, table, _PARTS, legend=legend)


def step_dots(a: Sequence[float], b: Sequence[float], names: tuple[str, str], *, dark: bool) -> Chart:
    """Draw every counted step of both sides as a dot, in order, with a line at each side's median."""
    unit = time_unit(max([*a, *b], default=0.0))
    figure = go.Figure()
    for side, steps, name, colour in (("A", a, names[0], MUTED), ("B", b, names[1], ACCENT)):
        values = pd.Series(steps, dtype=float) / unit.ms
        figure.add_scatter(
            x=list(range(1, len(steps) + 1)),
            y=values,
            mode="markers",
            name=f"{side} {fmt.plain(name, 40)}" if name != side else side,
            marker={
                "color": colour.on(dark),
                "size": 9 if len(steps) < 100 else 5,
                "symbol": "circle" if side == "A" else "diamond",
            },
            customdata=[f"{side}, step {i + 1}: {fmt.duration_ms(ms)}" for i, ms in enumerate(steps)],
            hovertemplate="%{customdata}<extra></extra>",
        )
        if len(steps):
            figure.add_hline(y=values.median(), line={"color": colour.on(dark), "width": 1, "dash": "dot"})
    with_layout(figure, 260, legend=True)
    figure.update_xaxes(
        title={"text": "counted step"}, zeroline=False, tickformat="d", dtick=1 if max(len(a), len(b)) <= DOTS_TICKED else None
    )
    figure.update_yaxes(title={"text": unit.name}, rangemode="tozero", zeroline=False)
    table = pd.DataFrame(
        [(side, i + 1, ms) for side, steps in (("A", a), ("B", b)) for i, ms in enumerate(steps)],
        columns=["side", "step", "ms"],
    )
    title = "Profiled steps in their order"
    return Chart(figure, title, f"{title}.", table, {"side": "Side", "step": "Counted step", "ms": "ms"})
