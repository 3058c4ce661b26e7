"""The GPUs of a run's hosts below each other: activity over time as colour."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from sawtooth.analysis.findings.sampled.fleet import Fleet
from sawtooth.app import format as fmt
from sawtooth.app.charts.base import Chart, LegendEntry, with_layout
from sawtooth.app.theme import Colour, colour_of_quantity

IDLE = Colour("0 %", "#DDE3EA", "#2E353D")  # It differs from the page's colour, which marks a span without samples.
MAX_ROWS = 128  # Rows that are drawn, the worst first: more rows would be too thin to distinguish.
UNITS = ((172_800.0, 86_400.0, "days"), (7200.0, 3600.0, "hours"), (180.0, 60.0, "min"), (0.0, 1.0, "s"))


def without_folder(labels: Sequence[str]) -> list[str]:
    """Return the labels of GPUs without the folder that all of their files are in."""
    folders = {label.rpartition("/")[0] for label in labels}
    return [label.rpartition("/")[2] for label in labels] if len(folders) == 1 else list(labels)


def chart(fleet: Fleet, *, dark: bool) -> Chart:
    """Draw a row per GPU, the worst on top; a span without samples stays empty."""
    first_rows = fleet.rows[:MAX_ROWS]
    length_s = (fleet.end_ns - fleet.start_ns) / 1e9
    _, unit_s, unit = next(entry for entry in UNITS if length_s >= entry[0])
    count = len(first_rows[0].cells)
    times = [length_s / unit_s * (cell + 0.5) / count for cell in range(count)]
    labels = without_folder([row.label for row in first_rows])
    busy = colour_of_quantity("util_pct").on(dark)
    figure = go.Figure(
        go.Heatmap(
            x=times,
            y=labels,
            z=[row.cells for row in first_rows],
            zmin=0,
            zmax=100,
            colorscale=[[0, IDLE.on(dark)], [1, busy]],
            showscale=False,
            hovertemplate=f"%{{y}}, %{{x:.3~g}} {unit}<br>%{{z:.0f}} % in use<extra></extra>",
            hoverongaps=False,
        )
    )
    with_layout(figure, min(90 + 22 * len(first_rows), 720))
    figure.update_yaxes(autorange="reversed", nticks=32)
    figure.update_xaxes(title={"text": f"time since the telemetry began, {unit}"})
    table = pd.DataFrame(
        {
            "gpu": [row.label for row in fleet.rows],
            "shows": [row.finding.title if row.finding is not None else "" for row in fleet.rows],
            "in_use_pct": [row.in_use_pct for row in fleet.rows],
            **{
                column: [row.sampled.means.get(column) for row in fleet.rows]
                for column in ("clock_sm_mhz", "power_w", "temp_c")
            },
        }
    )
    title = f"Utilization of {fmt.count(len(fleet.rows))} GPUs over {fmt.duration_ns(fleet.end_ns - fleet.start_ns)}, the worst first"
    if len(fleet.rows) > len(first_rows):
        title = f"{title}; the first {len(first_rows)} are drawn"
    return Chart(
        figure=figure,
        title=title,
        alt=f"{title}. " + "; ".join(f"{row.label}: {row.finding.title}" for row in first_rows[:3] if row.finding is not None),
        table=table,
        legend=(LegendEntry("0\u00a0% in use", IDLE.on(dark)), LegendEntry("100\u00a0% in use", busy)),
        columns={
            "gpu": "GPU",
            "shows": "What the samples show",
            "in_use_pct": "In use, %",
            "clock_sm_mhz": "SM clock, MHz",
            "power_w": "Power, W",
            "temp_c": "Temperature, °C",
        },
        method="The colour is the mean utilization of each span of time. A span without samples is empty and has no tooltip; 0 % is grey. Rows are sorted by the severity of what the samples "
        "show, then by the share of time in use.",
    )
