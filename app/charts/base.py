"""What every chart is: a figure with its finding as title, a text for those who cannot see it, and its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pandas as pd
import plotly.graph_objects as go

from sawtooth.app.theme import Colour

# Plotly 7 offers to upload a chart by default; nothing leaves this machine.
CONFIG: dict[str, Any] = {
    "displaylogo": False,
    "showSendToCloud": False,
    "displayModeBar": "hover",
    # dragging and double-clicking do what these do; what stays is the picture as PNG
    "modeBarButtonsToRemove": [
        "zoom2d",
        "pan2d",
        "select2d",
        "lasso2d",
        "zoomIn2d",
        "zoomOut2d",
        "autoScale2d",
        "resetScale2d",
    ],
}


LONGEST_IN_MS = 999.5  # more reads as 1.00 s


class LegendEntry(NamedTuple):
    """What a colour means; ``colour`` as hex, empty for a line of words alone; a ``heading`` stands before those that it names."""

    label: str
    colour: str
    hatched: bool = False
    texture: str = ""
    heading: bool = False


@dataclass(frozen=True)
class Chart:
    """``title`` is the finding, ``alt`` says the same as the picture, ``table`` holds what is drawn in full precision.

    ``legend`` is shown as text under the title: it wraps where a legend inside the picture would cover it.
    ``columns`` maps the table's columns to headings with units, ``metrics`` are keys whose definitions explain the chart, ``method`` says in
    words how it is computed.
    """

    figure: go.Figure
    title: str
    alt: str
    table: pd.DataFrame
    columns: Mapping[str, str] = field(default_factory=dict)
    metrics: tuple[str, ...] = ()
    method: str = ""
    legend: tuple[LegendEntry, ...] = ()


class TimeUnit(NamedTuple):
    """The unit of an axis of times, and how many ms it is."""

    name: str
    ms: float


def time_unit(longest_ms: float) -> TimeUnit:
    """Return the unit of an axis that reaches to ``longest_ms``: s from a second on, as the numbers for people have it."""
    return TimeUnit("s", 1e3) if longest_ms >= LONGEST_IN_MS else TimeUnit("ms", 1.0)


def marker(colour: Colour, dark: bool) -> dict[str, Any]:
    """Return how a bar of a class is filled: its colour, and its texture in a lighter or darker tone of the page."""
    tone = "rgba(0,0,0,0.32)" if dark else "rgba(255,255,255,0.42)"
    pattern = {"shape": colour.texture, "fillmode": "overlay", "fgcolor": tone, "size": 7, "solidity": 0.2}
    return {"color": colour.on(dark), "pattern": pattern if colour.texture else {}, "line": {"width": 0}}


def entry_of(colour: Colour, dark: bool) -> LegendEntry:
    """Return the line of a legend that names a class."""
    return LegendEntry(colour.label, colour.on(dark), colour.hatched, colour.texture)


def framed(figure: go.Figure, height: int, *, legend: bool = False) -> go.Figure:
    """Give a figure the margins and fonts that all charts share; the page's theme gives text and grid their colours."""
    return figure.update_layout(
        height=height,
        margin={"l": 8, "r": 8, "t": 28 if legend else 8, "b": 8},
        showlegend=legend,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0, "font": {"size": 12}},
        hoverlabel={"align": "left", "namelength": -1},
        uirevision="keep",
    )
