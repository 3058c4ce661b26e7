"""Throughput over the value of a setting: measured values and predictions with their interval.

Measured values are a solid line. Predictions from a trace are a dashed line.
"""

from __future__ import annotations

import math

import pandas as pd
import plotly.graph_objects as go

from sawtooth.app import format as fmt
from sawtooth.app.charts.base import Chart, with_layout
from sawtooth.app.charts.telemetry_bands import with_opacity
from sawtooth.app.theme import ACCENT, MUTED

METHOD = (
    "Predicted: each kernel's work is scaled with the batch, its time comes from a model of kernels timed on GPUs, and the step is replayed; "
    "the band contains the rate in nine of ten cases. Accumulated: gradients of several batches are added up, and the optimizer runs once for all of them."
)


def curve(points: pd.DataFrame, setting: str, unit: str, title: str, *, dark: bool) -> Chart:
    """Draw throughput; ``points`` is the table of ``sawtooth.app.words.comparisons.sweep``."""
    labels = [fmt.plain(str(value), 30) for value in points["value"]]
    figure = go.Figure()
    if "predicted" in points:
        _draw_predictions(figure, points, labels, unit, dark)
    measured = points["throughput"].notna().to_numpy()
    measured_points = points[measured]
    names = [label for label, is_measured in zip(labels, measured, strict=True) if is_measured]
    figure.add_scatter(
        x=names,
        y=measured_points["throughput"],
        name="measured",
        mode="lines+markers",
        line={"color": ACCENT.on(dark)},
        marker={"size": [14 if note == "sweet spot" else 8 for note in measured_points["note"]], "color": ACCENT.on(dark)},
        customdata=[f"{n}: {fmt.number(t)} {unit}/s" for n, t in zip(names, measured_points["throughput"], strict=True)],
        hovertemplate="%{customdata}<extra></extra>",
    )
    full = [label for label, note in zip(labels, points["note"], strict=True) if note == "out of memory"]
    if full:
        figure.add_scatter(
            x=full,
            y=[0.0] * len(full),
            name="out of memory",
            mode="markers",
            marker={"symbol": "x", "size": 11, "color": MUTED.on(dark)},
            hovertemplate="%{x}: out of memory<extra></extra>",
        )
    with_layout(figure, 300, legend="predicted" in points or bool(full))
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=labels, title={"text": fmt.plain(setting, 40)})
    figure.update_yaxes(title={"text": f"{unit} per second"}, rangemode="tozero", zeroline=False)
    return Chart(figure, title, f"{title}.", pd.DataFrame(), method=METHOD if "predicted" in points else "")


def _draw_predictions(figure: go.Figure, points: pd.DataFrame, labels: list[str], unit: str, dark: bool) -> None:
    """Draw predictions with their intervals; a point without a prediction has only its interval.

    The traced run's own value has no prediction. Its measured value joins both sides of the line.
    """
    without_interval = points["low"].isna()
    middle = points["predicted"].where(~without_interval, points["throughput"])
    low, high = points["low"].where(~without_interval, middle), points["high"].where(~without_interval, middle)
    has_interval = low.notna().to_numpy()
    names = [label for label, is_drawn in zip(labels, has_interval, strict=True) if is_drawn]
    band = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    figure.add_scatter(x=names, y=high[has_interval], **band)
    figure.add_scatter(x=names, y=low[has_interval], fill="tonexty", fillcolor=with_opacity(MUTED.on(dark)), **band)
    figure.add_scatter(
        x=names,
        y=middle[has_interval],
        name="predicted from one trace",
        mode="lines+markers",
        line={"color": MUTED.on(dark), "dash": "dash"},
        marker={"size": [0 if math.isnan(p) else 6 for p in points["predicted"][has_interval]], "color": MUTED.on(dark)},
        customdata=[
            "" if math.isnan(m) else f"{name}: {fmt.number(m)} {unit}/s, {fmt.number(a)} to {fmt.number(b)}"
            for name, m, a, b in zip(names, middle[has_interval], low[has_interval], high[has_interval], strict=True)
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )
