"""Telemetry over time: utilization, tensor activity, power and clocks, with throttling as bands and holes as holes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from analysis.sawtooth import Sawtooth
from analysis.series import Telemetry, line, one_tooth
from app import format as fmt
from app.charts.base import Chart, framed
from app.theme import ACCENT, CAUSES, MUTED, OWNERS, Colour

PANEL_PX = 128
COLOURS: dict[str, Colour] = {
    "util_pct": ACCENT,
    "gr_active_pct": Colour("", "#5B8DB8", "#7FA9CC"),
    "tensor_active_pct": Colour("", "#7B5EA7", "#B39DDB"),
    "sm_active_pct": OWNERS["other_compute"],
    "dram_active_pct": OWNERS["exposed_memcpy"],
    "power_w": CAUSES["data_wait"],
    "clock_sm_mhz": CAUSES["python_host"],
    "temp_c": CAUSES["host_sync"],
    "mem_used_bytes": MUTED,
    "pcie_rx_bps": OWNERS["exposed_comm"],
    "nvlink_rx_bps": CAUSES["comm_transfer"],
}
# Panels from top to bottom: heading with unit, the quantities on it, the divisor from the stored unit, a fixed upper end.
PANELS: tuple[tuple[str, tuple[str, ...], float, float | None], ...] = (
    ("GPU utilization, %", ("util_pct",), 1.0, 118.0),
    ("Measured activity, %", ("gr_active_pct", "sm_active_pct", "tensor_active_pct", "dram_active_pct"), 1.0, None),
    ("Power, W", ("power_w",), 1.0, None),
    ("SM clock, MHz", ("clock_sm_mhz",), 1.0, None),
    ("Memory in use, GB", ("mem_used_bytes",), 1e9, None),
    ("Temperature, °C", ("temp_c",), 1.0, None),
)
LABELS = {
    "util_pct": "GPU utilization",
    "gr_active_pct": "GPU active",
    "sm_active_pct": "SM active",
    "tensor_active_pct": "tensor pipe",
    "dram_active_pct": "memory bandwidth",
    "power_w": "power",
    "clock_sm_mhz": "SM clock",
    "mem_used_bytes": "memory in use",
    "temp_c": "temperature",
}


def seconds(time_ns: NDArray[np.int64], origin_ns: int) -> NDArray[np.float64]:
    """Return times as seconds after ``origin_ns``."""
    return (time_ns - origin_ns) / 1e9


def lanes(
    told: Telemetry,
    title: str,
    alt: str,
    *,
    origin_ns: int,
    dark: bool,
    steps: Sequence[tuple[float, float]] = (),
    wanted: Sequence[str] | None = None,
    height: int = PANEL_PX,
    sawtooth: Sawtooth | None = None,
) -> Chart:
    """Draw the quantities that were measured, one panel per unit; ``steps`` are (start, end) seconds to shade."""
    panels = [
        (h, [c for c in cs if told.has(c)], d, top) for h, cs, d, top in PANELS if wanted is None or set(cs) & set(wanted)
    ]
    panels = [panel for panel in panels if panel[1]]
    figure = make_subplots(
        rows=max(len(panels), 1), cols=1, shared_xaxes=True, vertical_spacing=min(0.05, 0.3 / max(len(panels), 1))
    )
    for row, (heading, columns, divisor, top) in enumerate(panels, start=1):
        for column in columns:
            _line(figure, told, column, divisor, origin_ns, dark, row)
        figure.update_yaxes(
            title={"text": heading, "font": {"size": 11}}, range=[0, top] if top else None, rangemode="tozero", row=row, col=1
        )
    shapes = [_band(a, b, ACCENT.on(dark), 0.12) for a, b in steps]
    shapes += [
        _band((a - origin_ns) / 1e9, (b - origin_ns) / 1e9, CAUSES["data_wait"].on(dark), 0.16)
        for a, b in zip(told.throttles["start_ns"], told.throttles["end_ns"], strict=True)
    ]
    figure.update_layout(shapes=shapes)
    if sawtooth is not None and sawtooth.period_s is not None and panels:
        _tooth(figure, told, sawtooth, panels[0][1][0], origin_ns, dark)
    framed(figure, height * max(len(panels), 1) + 50)
    figure.update_layout(dragmode="select", selectdirection="h", hovermode="x unified")
    low, high = (told.span.start_ns - origin_ns) / 1e9, (told.span.end_ns - origin_ns) / 1e9
    figure.update_xaxes(range=[low, high], zeroline=False)
    figure.update_xaxes(title={"text": "seconds since the telemetry began"}, row=max(len(panels), 1), col=1)
    columns = [c for _, cs, _, _ in panels for c in cs]
    table = told.samples[["time_ns", *columns]].assign(time_s=seconds(told.samples["time_ns"].to_numpy(), origin_ns))
    return Chart(
        figure,
        title,
        alt,
        table[["time_s", "time_ns", *columns]],
        {"time_s": "Time, s", **{c: c for c in columns}},
        ("nvml_gpu_util_mean", "tensor_active_measured"),
        "A sample describes the window that ends at its time, so a value is drawn back to the sample before. Lines are thinned so that every "
        "peak and valley stays; times without samples are left empty; bands mark clocks held down by power or heat.",
        _legend(told, columns, dark, bool(steps)),
    )


def _line(figure: go.Figure, told: Telemetry, column: str, divisor: float, origin_ns: int, dark: bool, row: int) -> None:
    time, value = line(told, column)
    filled = column == "util_pct"
    figure.add_scatter(
        x=seconds(time, origin_ns),
        y=(value / divisor).astype(np.float32),
        mode="lines",
        name=LABELS[column],
        line={"shape": "vh", "width": 1.5, "color": COLOURS[column].on(dark)},
        fill="tozeroy" if filled else None,
        fillcolor=_faint(COLOURS[column].on(dark)) if filled else None,
        connectgaps=False,
        hovertemplate="%{y:.3~g}",
        row=row,
        col=1,
    )


def _tooth(figure: go.Figure, told: Telemetry, found: Sawtooth, column: str, origin_ns: int, dark: bool) -> None:
    """Shade one period of the sawtooth and write its length above it."""
    if found.period_s is None or found.low is None or found.high is None:
        return
    tooth = one_tooth(told, found.period_s, found.low, found.high, column)
    if tooth is None:
        return
    a, b = seconds(np.array([tooth.start_ns, tooth.end_ns]), origin_ns)
    colour = CAUSES["host_sync"].on(dark)
    figure.add_vrect(x0=a, x1=b, fillcolor=colour, opacity=0.2, line={"width": 1, "color": colour}, row=1, col=1)
    figure.add_annotation(
        x=(a + b) / 2,
        y=102,
        text=f"one period, {fmt.duration_ns(found.period_s * 1e9)}",
        showarrow=False,
        yanchor="bottom",
        font={"size": 11},
        row=1,
        col=1,
    )


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"


def _band(start: float, end: float, colour: str, opacity: float) -> dict[str, Any]:
    """Return a band over all panels. As plain data: Plotly's own helper takes a tenth of a second for each of them."""
    return {
        "type": "rect", "xref": "x", "yref": "paper", "x0": start, "x1": end, "y0": 0, "y1": 1,
        "fillcolor": colour, "opacity": opacity, "line": {"width": 0}, "layer": "below",
    }  # fmt: skip


def _legend(told: Telemetry, columns: Sequence[str], dark: bool, steps: bool) -> tuple[tuple[str, str, bool], ...]:
    items = [(LABELS[c], COLOURS[c].on(dark), False) for c in columns]
    if steps:
        items.append(("every second step", _faint(ACCENT.on(dark)), False))
    for reason in dict.fromkeys(told.throttles["reason"]):
        items.append((f"clocks held down: {reason}", _faint(CAUSES["data_wait"].on(dark)), False))
    return tuple(items)


def overview(told: Telemetry, shown: tuple[float, float] | None, *, origin_ns: int, dark: bool) -> go.Figure:
    """Draw the strip above: the whole recording's utilization, with the part that is shown below marked."""
    column = next((c for c in ("util_pct", "power_w", "clock_sm_mhz") if told.has(c)), None)
    figure = go.Figure()
    if column:
        time, value = line(told, column)
        figure.add_scatter(
            x=seconds(time, origin_ns),
            y=value.astype(np.float32),
            mode="lines",
            line={"shape": "vh", "width": 1, "color": COLOURS[column].on(dark)},
            fill="tozeroy",
            fillcolor=_faint(COLOURS[column].on(dark)),
            hoverinfo="skip",
        )
    if shown:
        figure.add_vrect(x0=shown[0], x1=shown[1], fillcolor=ACCENT.on(dark), opacity=0.22, line_width=1)
    framed(figure, 100).update_layout(margin={"b": 26})
    figure.update_layout(dragmode="select", selectdirection="h")
    figure.update_yaxes(visible=False, fixedrange=True, rangemode="tozero")
    low, high = (told.span.start_ns - origin_ns) / 1e9, (told.span.end_ns - origin_ns) / 1e9
    figure.update_xaxes(range=[low, high], showgrid=False, ticksuffix=" s", zeroline=False)
    return figure


def step_spans(steps: pd.DataFrame, origin_ns: int) -> list[tuple[float, float]]:
    """Return every second device step as seconds after ``origin_ns``, to shade steps in turn."""
    return [
        ((a - origin_ns) / 1e9, (b - origin_ns) / 1e9)
        for a, b in zip(steps["start_ns"][::2], steps["end_ns"][::2], strict=True)
    ]
