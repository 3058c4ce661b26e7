"""The rectangles of the telemetry charts: times that no average includes, throttling, and one period."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sawtooth.app.theme import ACCENT, ALARM, MUTED, PAGE

LANE_FROM, LANE_GAP = 0.86, 0.06  # Shares of the clock panel's height: the lane of throttling is above its line, after a gap.
FADE_OPACITY = 0.62  # Opacity of the page's colour over a time that no average includes. The lines below it stay visible.


def not_averaged(times: Sequence[tuple[float, float]], drawn: Sequence[float], dark: bool) -> list[dict[str, Any]]:
    """Return faded areas over all panels (x in seconds), each with a line where it ends within ``drawn``.

    An area has the page's colour, because a grey area would look like the grey line of NVML's utilization.
    """
    colour = MUTED.on(dark)
    shades = [
        {
            **_rectangle(start, end),
            "yref": "paper",
            "layer": "above",
            "fillcolor": with_opacity(PAGE.on(dark), FADE_OPACITY),
            "line": {"width": 0},
        }
        for start, end in times
    ]
    edges = sorted({edge for ends in times for edge in ends} - set(drawn))
    lines = [{**_rectangle(at, at), "type": "line", "yref": "paper", "line": {"width": 1, "color": colour}} for at in edges]
    return [*shades, *lines]


def throttled(start: float, end: float, row: int, dark: bool) -> dict[str, Any]:
    """Return a bar in the lane at the top of a panel (``row`` from 1), where it hides no line."""
    colour = ALARM.on(dark)
    rectangle = {**_rectangle(start, end), "yref": f"y{row if row > 1 else ''} domain", "y0": LANE_FROM + LANE_GAP}
    return {**rectangle, "fillcolor": colour, "line": {"width": 1, "color": colour}}


def period(start: float, end: float, dark: bool) -> dict[str, Any]:
    """Return the band that marks one period (x in seconds)."""
    colour = ACCENT.on(dark)
    band = {**_rectangle(start, end), "y1": 100, "fillcolor": colour, "opacity": 0.24}
    return {**band, "line": {"width": 1.5, "color": colour}}


def with_opacity(colour: str, opacity: float = 0.18) -> str:
    """Return a hex colour as a transparent colour for areas below or behind lines."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def _rectangle(start: float, end: float) -> dict[str, Any]:
    """Return a rectangle of the whole height behind the lines; Plotly's own helper takes 0.1 s each."""
    return {"type": "rect", "x0": start, "x1": end, "y0": 0, "y1": 1, "layer": "below"}
