"""Telemetry over time, in panels, with bands for throttling and empty spaces for telemetry gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from sawtooth.analysis.telemetry.series import TelemetrySeries, facts, line, one_period
from sawtooth.analysis.telemetry.signal.sawtooth import Sawtooth
from sawtooth.app import format as fmt
from sawtooth.app.charts import telemetry_bands as bands
from sawtooth.app.charts.base import Chart, with_layout
from sawtooth.app.theme import ACCENT, ALARM, PAGE, colour_of_quantity
from sawtooth.ingest.quantities.host import HOST
from sawtooth.ingest.quantities.registry import BY_COLUMN, QUANTITIES

PANEL_PX = 108
FIRST_LANE_HEIGHT = 2.0  # Height of the first lane, relative to the others.
LINE_PX = 17  # Height in pixels of a line in a lane's heading.
IN_A_LINE = 2  # Quantities in one line of a heading. Three with their averages do not fit on a phone.
SIGNALS = ("gr_active_pct", "sm_active_pct", "util_pct")  # Signals in which a sawtooth is searched for, the fastest first.
# NVML's utilization: whole percent over windows of its own choice, so it is drawn faintly behind a fast counter
UTILIZATION = "util_pct"
BACKGROUND_OPACITY = 0.45  # Opacity of a background line.
NAMED_SHARE = 0.26  # Share of the width. A narrower shaded range has no room for its text.


@dataclass(frozen=True)
class Panel:
    """A panel of the telemetry charts: heading with unit, divisor of stored values, and fixed top."""

    heading: str
    divisor: float = 1.0
    top: float | None = None

    @property
    def unit(self) -> str:
        """The unit of the panel's numbers, as on its axis."""
        return self.heading.rsplit(", ", 1)[-1]

    def axis(self) -> dict[str, Any]:
        """Return the settings of the panel's y axis."""
        return {
            "range": [0, self.top] if self.top else None,
            "rangemode": "tozero",
            "nticks": 4,
            "title": {"text": self.unit, "standoff": 4},
        }


# From top to bottom. ``sawtooth.ingest.quantities`` assigns quantities to panels.
PANELS: dict[str, Panel] = {
    "utilization": Panel("GPU utilization, %", top=118.0),
    "activity": Panel("Measured activity, %"),
    "power": Panel("Power, W"),
    "clock": Panel("SM clock, MHz"),
    "memory": Panel("Memory in use, GiB", divisor=2.0**30),
    "temperature": Panel("Temperature, °C"),
    "host": Panel("Host, %"),
}


def columns_of(panel: str) -> list[str]:
    """Return the quantities of a panel."""
    return [quantity.column for quantity in (*QUANTITIES, *HOST) if quantity.panel == panel]


def seconds(time_ns: NDArray[np.int64], origin_ns: int) -> NDArray[np.float64]:
    """Return times as seconds after ``origin_ns``."""
    return (time_ns - origin_ns) / 1e9


def lanes(
    telemetry: TelemetrySeries,
    title: str,
    alt: str,
    *,
    origin_ns: int,
    dark: bool,
    quantities: Sequence[str] | None = None,
    height: int = PANEL_PX,
    sawtooth: Sawtooth | None = None,
    steady: TelemetrySeries | None = None,
    trouble: Sequence[str] = (),
    means: Mapping[str, float] | None = None,
) -> Chart:
    """Draw the measured quantities, one panel per unit; panels with ``trouble`` come first.

    The average of a column is its value in ``means``. If there is none, it is computed over ``steady``, or without ``steady`` over
    all samples. ``steady`` is a part of ``telemetry``; the rest is faded.
    """
    preferred = SIGNALS if sawtooth is not None and sawtooth.period_s is not None else (UTILIZATION, *SIGNALS)
    signal = next((column for column in preferred if telemetry.has(column)), None)
    panels = sorted(
        _panels(telemetry, signal, quantities), key=lambda panel_and_columns: not set(trouble) & set(panel_and_columns[1])
    )
    not_averaged = _outside_steady(telemetry, steady, origin_ns)
    figure = _laid_out([len(measured) for _, measured in panels], height)
    for row, (panel, measured) in enumerate(panels, start=1):
        for column in measured:
            behind = column == UTILIZATION != signal
            _line(figure, telemetry, column, divisor=panel.divisor, origin_ns=origin_ns, dark=dark, row=row, behind=behind)
        figure.update_yaxes(**panel.axis(), row=row, col=1)
        named = measured if row > 1 else sorted(measured, key=lambda column: column != signal)
        averages = {c: _mean(c, means, telemetry if steady is None else steady) for c in named}
        _heading(figure, row, named, averages, _throttled_by(telemetry, dark) if panel is PANELS["clock"] else "", dark)
    drawn_s = _drawn_s(telemetry, origin_ns)
    shapes = bands.not_averaged(not_averaged, drawn_s, dark)
    clock = next((row for row, (panel, _) in enumerate(panels, start=1) if panel is PANELS["clock"]), None)
    if clock is not None and len(telemetry.throttles):  # Throttling is above the clock, because it lowers the clock.
        highest = max(float(np.nanmax(telemetry.samples[column].to_numpy(float))) for column in panels[clock - 1][1])
        figure.update_yaxes(range=[0, highest / bands.LANE_FROM], row=clock, col=1)
        times = telemetry.throttles[["start_ns", "end_ns"]].to_numpy()
        shapes += [bands.throttled(float(a), float(b), clock, dark) for a, b in (times - origin_ns) / 1e9]
    figure.update_layout(shapes=shapes)
    lanes_of = [(row, column) for column in SIGNALS for row, (_, measured) in enumerate(panels, start=1) if column in measured]
    if sawtooth is not None and lanes_of:
        _add_sawtooth_period(figure, telemetry, sawtooth, lanes_of[0], origin_ns=origin_ns, dark=dark)
    for a, b in ((a, b) for a, b in not_averaged if (b - a) * 1e9 >= NAMED_SHARE * telemetry.span.ns):
        figure.add_annotation(x=(a + b) / 2, y=1, yref="y domain", yanchor="top", text="not averaged", showarrow=False)
    figure.update_layout(dragmode="select", selectdirection="h", hovermode="x unified")
    figure.update_xaxes(range=drawn_s, zeroline=False)
    figure.update_xaxes(title={"text": "time since the telemetry began, s"}, row=max(len(panels), 1), col=1)
    columns = [column for _, measured in panels for column in measured]
    table = telemetry.samples[["time_ns", *columns]].assign(time_s=seconds(telemetry.samples["time_ns"].to_numpy(), origin_ns))
    return Chart(
        figure=figure,
        title=title,
        alt=alt,
        table=table[["time_s", "time_ns", *columns]],
        columns={"time_s": "Time, s", **{c: c for c in columns}},
        metrics=("nvml_gpu_util_mean", "tensor_active_measured"),
        method="A sample describes the window that ends at its time, so its value is drawn back to the previous sample. Lines are thinned so that every "
        "peak and valley stays; times without samples are left empty; bars above the clock mark throttling.",
    )


def window(column: str | None, interval_s: float | None) -> str:
    """Return a sentence with the averaging time of the counter ``column``; "" if it is not known."""
    if column not in SIGNALS or column == UTILIZATION or not interval_s:
        return ""
    return f"A point of {BY_COLUMN[column].label} is the mean of {fmt.duration_ns(float(f'{interval_s:.2g}') * 1e9)}."


def _panels(telemetry: TelemetrySeries, signal: str | None, quantities: Sequence[str] | None) -> list[tuple[Panel, list[str]]]:
    """Return the panels with their measured quantities, that of ``signal`` first."""
    panels = {key: columns_of(key) for key in PANELS if quantities is None or set(columns_of(key)) & set(quantities)}
    columns_of_panel = {key: [column for column in columns if telemetry.has(column)] for key, columns in panels.items()}
    preferred = [
        c
        for c in dict.fromkeys((UTILIZATION, signal or UTILIZATION))
        if any(c in columns for columns in columns_of_panel.values())
    ]
    first = [(PANELS["utilization"], preferred)] if signal in preferred else []
    other_panels = [
        (PANELS[key], [column for column in columns if not first or column not in preferred])
        for key, columns in columns_of_panel.items()
    ]
    return [(panel, columns) for panel, columns in (*first, *other_panels) if columns]


def _laid_out(named: Sequence[int], height: int) -> go.Figure:
    """Return an empty figure with a panel per entry of ``named``, the number of quantities in its heading."""
    rows = max(len(named), 1)
    first = FIRST_LANE_HEIGHT if rows > 1 else 1.0
    drawn_px = height * (rows - 1 + first)
    first_px, *later_px = [LINE_PX * len(range(0, count, IN_A_LINE)) + 10 for count in named] or [LINE_PX + 10]
    figure = make_subplots(
        rows=rows,
        cols=1,
        shared_xaxes=True,
        row_heights=[first] + [1.0] * (rows - 1),
        vertical_spacing=min(max(later_px, default=first_px) / drawn_px, 0.6 / rows),
    )
    return with_layout(figure, round(drawn_px) + 50).update_layout(margin={"t": first_px})


def _drawn_s(telemetry: TelemetrySeries, origin_ns: int) -> list[float]:
    return [(end - origin_ns) / 1e9 for end in (telemetry.span.start_ns, telemetry.span.end_ns)]


def _outside_steady(telemetry: TelemetrySeries, steady: TelemetrySeries | None, origin_ns: int) -> list[tuple[float, float]]:
    """Return the ranges before and after the steady part in seconds after ``origin_ns``."""
    if steady is None:
        return []
    full_span, steady_span = telemetry.span, steady.span
    sides = ((full_span.start_ns, steady_span.start_ns), (steady_span.end_ns, full_span.end_ns))
    return [((a - origin_ns) / 1e9, (b - origin_ns) / 1e9) for a, b in sides if a < b]


def _mean(column: str, means: Mapping[str, float] | None, telemetry: TelemetrySeries) -> float | None:
    return means[column] if means is not None and column in means else facts(telemetry, column).get("mean")


def _heading(
    figure: go.Figure, row: int, measured: Sequence[str], means: Mapping[str, float | None], band: str, dark: bool
) -> None:
    """Write the name and mean of each line above its panel, and ``band``, the meaning of its bands."""
    named = []
    for column in measured:
        quantity, mean = BY_COLUMN[column], means[column]
        average = f" <b>{fmt.in_unit(mean, quantity.unit)}</b>" if mean is not None else ""
        named.append(f'<span style="color:{colour_of_quantity(column).on(dark)}">━</span> {quantity.label}{average}')
    lines = [", ".join(named[i : i + IN_A_LINE]) for i in range(0, len(named), IN_A_LINE)]
    figure.add_annotation(
        x=0, xref="paper", xanchor="left", y=1, yref=f"y{row if row > 1 else ''} domain", yanchor="bottom",
        text=f"{',<br>'.join(lines)}{band}", showarrow=False, font={"size": 12}, align="left",
    )  # fmt: skip


def _line(
    figure: go.Figure,
    telemetry: TelemetrySeries,
    column: str,
    *,
    divisor: float,
    origin_ns: int,
    dark: bool,
    row: int,
    behind: bool,
) -> None:
    time, value = line(telemetry, column)
    filled = row == 1 and column in SIGNALS and not behind
    figure.add_scatter(
        x=seconds(time, origin_ns),
        y=(value / divisor).astype(np.float32),
        mode="lines",
        name=BY_COLUMN[column].label,
        line={"shape": "vh", "width": 1 if behind else 1.5, "color": colour_of_quantity(column).on(dark)},
        opacity=BACKGROUND_OPACITY if behind else 1,
        fill="tozeroy" if filled else None,
        fillcolor=bands.with_opacity(colour_of_quantity(column).on(dark)) if filled else None,
        connectgaps=False,
        hovertemplate="%{y:.3~g}",
        row=row,
        col=1,
    )


def _add_sawtooth_period(
    figure: go.Figure, telemetry: TelemetrySeries, sawtooth: Sawtooth, place: tuple[int, str], *, origin_ns: int, dark: bool
) -> None:
    """Shade one period of the sawtooth in the panel of ``place`` and write its length above it."""
    row, column = place
    if sawtooth.period_s is None or sawtooth.low is None or sawtooth.high is None:
        return
    tooth = one_period(telemetry, sawtooth.period_s, sawtooth.low, sawtooth.high, column)
    if tooth is None:
        return
    a, b = seconds(np.array([tooth.start_ns, tooth.end_ns]), origin_ns)
    figure.add_shape(**bands.period(float(a), float(b), dark), row=row, col=1)
    figure.add_annotation(
        x=(a + b) / 2, y=102, text=f"one period, {fmt.duration_ns(sawtooth.period_s * 1e9)}", showarrow=False, yanchor="bottom",
        font={"size": 11}, bgcolor=PAGE.on(dark), row=row, col=1,
    )  # fmt: skip


def _throttled_by(telemetry: TelemetrySeries, dark: bool) -> str:
    """Return the meaning of the bars above the clock, for its heading; "" without throttling."""
    reasons = ", ".join(dict.fromkeys(telemetry.throttles["reason"]))
    return f'&nbsp;&nbsp; <span style="color:{ALARM.on(dark)}">▮</span> throttled by {reasons}' if reasons else ""


def overview(telemetry: TelemetrySeries, shown: tuple[float, float] | None, *, origin_ns: int, dark: bool) -> go.Figure:
    """Draw the overview strip: the whole recording's utilization with the visible range marked."""
    column = next((c for c in (UTILIZATION, *SIGNALS, "power_w", "clock_sm_mhz") if telemetry.has(c)), None)
    figure = go.Figure()
    if column:
        time, value = line(telemetry, column)
        figure.add_scatter(
            x=seconds(time, origin_ns),
            y=value.astype(np.float32),
            mode="lines",
            line={"shape": "vh", "width": 1, "color": colour_of_quantity(column).on(dark)},
            fill="tozeroy",
            fillcolor=bands.with_opacity(colour_of_quantity(column).on(dark)),
            hoverinfo="skip",
        )
    if shown:
        figure.add_vrect(x0=shown[0], x1=shown[1], fillcolor=ACCENT.on(dark), opacity=0.22, line_width=1)
    with_layout(figure, 100).update_layout(margin={"b": 26})
    figure.update_layout(dragmode="select", selectdirection="h")
    figure.update_yaxes(visible=False, fixedrange=True, rangemode="tozero")
    figure.update_xaxes(range=_drawn_s(telemetry, origin_ns), showgrid=False, ticksuffix=" s", zeroline=False)
    return figure
