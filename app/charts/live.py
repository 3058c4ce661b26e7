"""The running GPU over the chosen window: utilization, measured activity, power, clocks and memory, one panel a unit."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from sawtooth.app.charts.base import Chart, framed
from sawtooth.app.charts.telemetry import PANELS, Panel, columns_of
from sawtooth.app.theme import ACCENT, MUTED, colour_of_quantity
from sawtooth.ingest.quantities.registry import BY_COLUMN

PANEL_PX = 112
FIRST = ("gr_active_pct", "util_pct", "sm_active_pct")  # the topmost panel: what the sentence speaks of
AT_WORK = Panel("GPU at work, %", top=102.0)
Line = tuple[NDArray[np.float64], NDArray[np.float64]]  # seconds before now (negative), values in the stored unit


def live_lanes(lines: Mapping[str, Line], window_s: float, title: str, *, dark: bool, period_s: float | None = None) -> Chart:
    """Draw the quantities that are there; x is seconds before the newest sample. ``period_s``: one period is marked at the right end."""
    empty = _empty(tuple(lines), window_s, dark)
    traces = []
    for trace in empty["data"]:
        column, divisor = trace["meta"]
        x, y = lines[column]
        traces.append({**trace, "x": x.astype(np.float32), "y": (y / divisor).astype(np.float32)})
    layout = empty["layout"]
    if period_s and traces:
        layout = {**layout, "shapes": [_period(period_s, dark)]}
    figure = go.Figure({"data": traces, "layout": layout}, skip_invalid=False)
    return Chart(figure, title, f"{title}. Drawn as lines over the last {window_s:.0f} seconds.", pd.DataFrame())


@lru_cache(maxsize=64)
def _empty(columns: tuple[str, ...], window_s: float, dark: bool) -> dict[str, Any]:
    """Return the picture without its lines, as plain data: built anew each second for every viewer it would keep a server busy."""
    rest = [(panel, [c for c in columns_of(key) if c not in FIRST]) for key, panel in PANELS.items()]
    panels = [
        (panel, measured) for panel, those in [(AT_WORK, FIRST), *rest] if (measured := [c for c in those if c in columns])
    ]
    count = max(len(panels), 1)
    figure = make_subplots(rows=count, cols=1, shared_xaxes=True, vertical_spacing=min(0.05, 0.3 / count))
    for row, (panel, measured) in enumerate(panels, start=1):
        for column in measured:
            _line(figure, column, panel.divisor, dark, row, named=len(measured) > 1)
        figure.update_yaxes(**panel.axis(), row=row, col=1)
    framed(figure, PANEL_PX * count + 60, legend=any(len(measured) > 1 for _, measured in panels))
    figure.update_layout(hovermode="x unified", uirevision=f"live-{window_s}")
    figure.update_xaxes(range=[-window_s, 0], zeroline=False)
    figure.update_xaxes(title={"text": "seconds before the newest sample"}, row=count, col=1)
    drawing: dict[str, Any] = figure.to_dict()
    drawing["layout"].pop("template", None)  # the page's theme; thousands of entries to check each time
    return drawing


def _line(figure: go.Figure, column: str, divisor: float, dark: bool, row: int, *, named: bool) -> None:
    main = column == "gr_active_pct"
    colour = ACCENT.on(dark) if main else MUTED.on(dark) if column == "util_pct" else colour_of_quantity(column).on(dark)
    figure.add_scatter(
        mode="lines",
        name=BY_COLUMN[column].label,
        line={"shape": "vh", "width": 1.5, "color": colour},
        hovertemplate="%{y:.3~g}",
        showlegend=named,
        meta=[column, divisor],
        row=row,
        col=1,
    )


def _period(period_s: float, dark: bool) -> dict[str, Any]:
    return {
        "type": "rect", "xref": "x", "yref": "y domain", "x0": -period_s, "x1": 0, "y0": 0, "y1": 1,
        "fillcolor": ACCENT.on(dark), "opacity": 0.14, "line": {"width": 0}, "layer": "below",
    }  # fmt: skip
