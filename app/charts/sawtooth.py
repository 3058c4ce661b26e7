"""The sawtooth: its signal over time, and one period folded from all periods."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from sawtooth.analysis.telemetry import series
from sawtooth.analysis.telemetry.series import TelemetrySeries
from sawtooth.analysis.telemetry.signal.sawtooth import Sawtooth
from sawtooth.app import format as fmt
from sawtooth.app.charts.base import Chart, LegendEntry, time_unit, with_layout
from sawtooth.app.charts.telemetry import BACKGROUND_OPACITY, UTILIZATION, seconds
from sawtooth.app.charts.telemetry_bands import period, with_opacity
from sawtooth.app.theme import MUTED, colour_of_quantity
from sawtooth.ingest.quantities.registry import BY_COLUMN

HEIGHT_PX = 210
AXIS_TOP_PCT = 118.0  # Percent: room above a full period for its label.


def signal(
    telemetry: TelemetrySeries,
    column: str,
    title: str,
    *,
    origin_ns: int,
    dark: bool,
    steps: Sequence[tuple[float, float]] = (),
    sawtooth: Sawtooth | None = None,
) -> Chart:
    """Draw ``column`` over time, with NVML's utilization faintly behind it and one period as a band.

    ``steps`` are (start, end) in seconds.
    """
    figure = go.Figure()
    drawn_columns = [c for c in (UTILIZATION, column) if telemetry.has(c)]
    for name in dict.fromkeys(drawn_columns):
        time, value = series.line(telemetry, name)
        colour = colour_of_quantity(name).on(dark)
        figure.add_scatter(
            x=seconds(time, origin_ns),
            y=value.astype(np.float32),
            mode="lines",
            name=BY_COLUMN[name].label,
            line={"shape": "vh", "width": 1.6 if name == column else 1, "color": colour},
            opacity=1 if name == column else BACKGROUND_OPACITY,
            fill="tozeroy" if name == column else None,
            fillcolor=with_opacity(colour) if name == column else None,
            connectgaps=False,
            hovertemplate="%{y:.3~g}",
        )
    figure.update_layout(shapes=[_step(a, b, MUTED.on(dark)) for a, b in steps])
    if sawtooth is not None:
        _period(figure=figure, telemetry=telemetry, tooth=sawtooth, column=column, origin_ns=origin_ns, dark=dark)
    with_layout(figure, HEIGHT_PX)
    figure.update_layout(hovermode="x unified")
    figure.update_yaxes(range=[0, AXIS_TOP_PCT], tickvals=[0, 50, 100], title={"text": "%"})
    end_s = float(seconds(np.array([telemetry.span.end_ns]), origin_ns)[0])
    figure.update_xaxes(range=[0, end_s], ticksuffix=" s", zeroline=False)
    table = telemetry.samples[["time_ns", *dict.fromkeys(drawn_columns)]].assign(
        time_s=seconds(telemetry.samples["time_ns"].to_numpy(), origin_ns)
    )
    legend = [LegendEntry(BY_COLUMN[c].label, colour_of_quantity(c).on(dark)) for c in dict.fromkeys((column, *drawn_columns))]
    return Chart(
        figure=figure,
        title=title,
        alt=f"{title}. Drawn as a line over time.",
        table=table,
        columns={"time_s": "Time, s", **{c: BY_COLUMN[c].label for c in dict.fromkeys(drawn_columns)}},
        metrics=("nvml_gpu_util_mean",),
        method="Only the steady part of the recording, outside start, profile and end. A sample describes the window that ends at its time.",
        legend=(*legend, *([LegendEntry("every second profiled step", with_opacity(MUTED.on(dark)))] if steps else [])),
    )


def step_spans(steps: pd.DataFrame, origin_ns: int) -> list[tuple[float, float]]:
    """Return every second device step in seconds after ``origin_ns``, so that steps alternate in shade."""
    return [
        ((a - origin_ns) / 1e9, (b - origin_ns) / 1e9)
        for a, b in zip(steps["start_ns"][::2], steps["end_ns"][::2], strict=True)
    ]


def _step(start: float, end: float, colour: str) -> dict[str, object]:
    return {
        "type": "rect", "xref": "x", "yref": "paper", "x0": start, "x1": end, "y0": 0, "y1": 1,
        "fillcolor": colour, "opacity": 0.14, "line": {"width": 0}, "layer": "below",
    }  # fmt: skip


def _period(figure: go.Figure, telemetry: TelemetrySeries, tooth: Sawtooth, column: str, origin_ns: int, dark: bool) -> None:
    """Shade one period and write its length above it."""
    if tooth.period_s is None or tooth.low is None or tooth.high is None:
        return
    span = series.one_period(telemetry, tooth.period_s, tooth.low, tooth.high, column)
    if span is None:
        return
    start, end = (float(s) for s in seconds(np.array([span.start_ns, span.end_ns]), origin_ns))
    figure.add_shape(**period(start, end, dark))
    label = f"one period, {fmt.duration_ns(tooth.period_s * 1e9)}"
    figure.add_annotation(x=(start + end) / 2, y=102, text=label, showarrow=False, yanchor="bottom", font={"size": 12})


def folded_chart(telemetry: TelemetrySeries, column: str, tooth: Sawtooth, *, dark: bool) -> Chart | None:
    """Draw one period: the median of all periods and a band with 80 % of the samples.

    Periods are aligned at their rises. The result is None without a period.
    """
    if tooth.period_s is None or tooth.low is None or tooth.high is None:
        return None
    table = series.fold(telemetry, tooth.period_s, tooth.low, tooth.high, column)
    if len(table) < 2:
        return None
    colour = colour_of_quantity(column).on(dark)
    unit = time_unit(tooth.period_s * 1e3)
    at = table["after_s"].to_numpy(np.float64) * 1e3 / unit.ms
    figure = go.Figure()
    figure.add_scatter(x=at, y=table["p90"], mode="lines", line={"width": 0}, hoverinfo="skip")
    figure.add_scatter(
        x=at, y=table["p10"], mode="lines", line={"width": 0}, fill="tonexty", fillcolor=with_opacity(colour), hoverinfo="skip"
    )
    figure.add_scatter(
        x=at,
        y=table["median"],
        mode="lines",
        line={"width": 2.5, "color": colour},
        hovertemplate=f"%{{x:.3~g}} {unit.name} after the rise: %{{y:.0f}} %<extra></extra>",
    )
    with_layout(figure, HEIGHT_PX)
    figure.update_yaxes(range=[0, AXIS_TOP_PCT], tickvals=[0, 50, 100], title={"text": "%"})
    figure.update_xaxes(ticksuffix=f" {unit.name}", zeroline=True, title={"text": "time after the rise"})
    title = f"One period takes {fmt.duration_ns(tooth.period_s * 1e9)}"
    if tooth.duty is not None and tooth.middle is not None:
        title += f"; it is below {tooth.middle:.0f}\u00a0% for {fmt.share(1 - tooth.duty)} of it"
    return Chart(
        figure=figure,
        title=title,
        alt=f"{title}. The median of all periods, with a band from the 10th to the 90th percentile.",
        table=table,
        columns={
            "after_s": "After the rise, s",
            "p10": "10th percentile, %",
            "median": "Median, %",
            "p90": "90th percentile, %",
        },
        metrics=(),
        method="The periods of the steady part are aligned where the signal rises through the middle of its range, because a loop's period varies.",
        legend=(
            LegendEntry(f"{BY_COLUMN[column].label}, median", colour),
            LegendEntry("10th to 90th percentile", with_opacity(colour)),
        ),
    )
