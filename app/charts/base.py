"""The base of every chart: a figure, its finding as title, an alternative text, and its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pandas as pd
import plotly.graph_objects as go

from sawtooth.app.theme import Colour

# Plotly 7 offers to upload a chart by default, but no data may leave this machine.
CONFIG: dict[str, Any] = {
    "displaylogo": False,
    "showSendToCloud": False,
    "displayModeBar": "hover",
    # Dragging and double-clicking replace these buttons; only the button that saves a PNG remains.
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


MAX_IN_MS = 999.5  # A longer time reads as 1.00 s or more.


class LegendEntry(NamedTuple):
    """The meaning of a colour.

    ``colour`` is a hex value, or empty for a line of text only. A ``heading`` comes before the entries of its group.
    """

    label: str
    colour: str
    hatched: bool = False
    texture: str = ""
    heading: bool = False


@dataclass(frozen=True)
class Chart:
    """A figure with its finding (``title``), alternative text and table.

    ``alt`` describes the picture in words, and ``table`` has the drawn data in full precision. ``legend`` is text below the
    title, because a legend inside the picture would cover it on a narrow page. ``columns`` maps the table's columns to headings
    with units. ``metrics`` are keys whose definitions explain the chart, and ``method`` says how it is computed.
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
    """The unit of a time axis, with its length in ms."""

    name: str
    ms: float


def time_unit(longest_ms: float) -> TimeUnit:
    """Return the unit of a time axis that ends at ``longest_ms``.

    The unit is s from one second on, as in the app's texts.
    """
    return TimeUnit("s", 1e3) if longest_ms >= MAX_IN_MS else TimeUnit("ms", 1.0)


def marker(colour: Colour, dark: bool) -> dict[str, Any]:
    """Return the fill of a bar: its colour, and the texture of templates/textures.css."""
    tone = "rgba(0,0,0,0.38)" if dark else "rgba(255,255,255,0.45)"
    # Plotly draws an overlay at half of its opacity, unless the pattern has its own.
    pattern = {"shape": colour.texture, "fillmode": "overlay", "fgcolor": tone, "fgopacity": 1, "size": 8, "solidity": 0.26}
    return {"color": colour.on(dark), "pattern": pattern if colour.texture else {}, "line": {"width": 0}}


def entry_of(colour: Colour, dark: bool) -> LegendEntry:
    """Return the legend entry of a colour."""
    return LegendEntry(colour.label, colour.on(dark), colour.hatched, colour.texture)


def with_layout(figure: go.Figure, height: int, *, legend: bool = False) -> go.Figure:
    """Give a figure the margins, numbers and fonts of all charts; the page's theme colours text and grid."""
    if any("xaxis" in trace for trace in figure.data):  # A treemap has no axes.
        figure.update_xaxes(separatethousands=True)
        figure.update_yaxes(separatethousands=True)
    return figure.update_layout(
        height=height,
        margin={"l": 8, "r": 8, "t": 28 if legend else 8, "b": 8},
        showlegend=legend,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0, "font": {"size": 12}},
        hoverlabel={"align": "left", "namelength": -1},
        uirevision="keep",
    )
