"""The running GPU over the chosen window: utilization, measured activity, power, clocks and memory, one panel a unit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from app.charts.base import Chart, framed
from app.charts.telemetry import COLOURS, LABELS, PANELS
from app.theme import ACCENT, MUTED

PANEL_PX = 112
FIRST = ("gr_active_pct", "util_pct", "sm_active_pct")  # the topmost panel: what the sentence speaks of
ACTIVITY_LABEL = "GPU active (GPM)"
Line = tuple[NDArray[np.float64], NDArray[np.float64]]  # seconds before now (negative), values in the stored unit


def live_lanes(lines: Mapping[str, Line], window_s: float, title: str, *, dark: bool, period_s: float | None = None) -> Chart:
    """Draw the quantities that are there; x is seconds before the newest sample. ``period_s``: one period is marked at the right end."""
    rest = [(heading, tuple(c for c in columns if c not in FIRST), divisor, top) for heading, columns, divisor, top in PANELS]
    wanted = [("GPU at work, %", FIRST, 1.0, 102.0), *rest]
    panels = [(heading, [c for c in columns if c in lines], divisor, top) for heading, columns, divisor, top in wanted]
    panels = [panel for panel in panels if panel[1]]
    count = max(len(panels), 1)
    figure = make_subplots(rows=count, cols=1, shared_xaxes=True, vertical_spacing=min(0.05, 0.3 / count))
    for row, (heading, columns, divisor, top) in enumerate(panels, start=1):
        for column in columns:
            _line(figure, column, lines[column], divisor, dark, row, named=len(columns) > 1)
        figure.update_yaxes(
            title={"text": heading, "font": {"size": 11}}, range=[0, top] if top else None, rangemode="tozero", row=row, col=1
        )
    if period_s and panels:
        figure.add_vrect(
            x0=-period_s, x1=0, fillcolor=ACCENT.on(dark), opacity=0.14, line_width=0, layer="below", row=1, col=1,
        )  # fmt: skip
    framed(figure, PANEL_PX * count + 60, legend=any(len(columns) > 1 for _, columns, _, _ in panels))
    figure.update_layout(hovermode="x unified", uirevision=f"live-{window_s}")
    figure.update_xaxes(range=[-window_s, 0], zeroline=False)
    figure.update_xaxes(title={"text": "seconds before the newest sample"}, row=count, col=1)
    return Chart(figure, title, f"{title}. Drawn as lines over the last {window_s:.0f} seconds.", _table(lines), {})


def _line(figure: go.Figure, column: str, line: Line, divisor: float, dark: bool, row: int, *, named: bool) -> None:
    main = column == "gr_active_pct"
    colour = ACCENT.on(dark) if main else MUTED.on(dark) if column == "util_pct" else COLOURS[column].on(dark)
    figure.add_scatter(
        x=line[0].astype(np.float32),
        y=(line[1] / divisor).astype(np.float32),
        mode="lines",
        name=ACTIVITY_LABEL if main else LABELS[column],
        line={"shape": "vh", "width": 1.5, "color": colour},
        hovertemplate="%{y:.3~g}",
        showlegend=named,
        row=row,
        col=1,
    )


def _table(lines: Mapping[str, Line]) -> pd.DataFrame:
    parts = [pd.DataFrame({"seconds": x, "quantity": column, "value": y}) for column, (x, y) in lines.items()]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["seconds", "quantity", "value"])
