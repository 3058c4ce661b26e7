"""What each cause of lost time costs a step, as recorded and without the profiler."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from sawtooth.app import format as fmt
from sawtooth.app.charts.base import Chart, LegendEntry, framed
from sawtooth.app.theme import MUTED, Colour, colour_of

COLUMNS = {
    "label": "Cause",
    "unprofiled_ms": "Without the profiler, ms per step",
    "recorded_ms": "As profiled, ms per step",
    "recoverable_ms": "Gained without it, ms per step",
}


def causes(rows: pd.DataFrame, title: str, *, dark: bool, unit: str, least: float = 0.0) -> Chart:
    """Draw one pair of bars per cause; ``rows`` are those of ``sawtooth.analysis.tables.waits.causes``.

    Causes below ``least`` of the largest (0 to 1) stand in the table alone.
    """
    everything = rows
    times = rows[["unprofiled_ms", "recorded_ms"]].max(axis=1)
    rows = rows[times >= least * times.max()]
    colours = [_colour(row) for row in rows.to_dict("records")]
    labels = [colour.label for colour in colours]
    table = everything.assign(label=[_colour(row).label for row in everything.to_dict("records")])
    figure = go.Figure()
    has_estimate = bool(rows["unprofiled_ms"].notna().any())
    series = [("unprofiled_ms", "without the profiler, ≈", 1.0, "")] if has_estimate else []
    series.append(("recorded_ms", "as profiled", 0.45 if has_estimate else 1.0, "/" if has_estimate else ""))
    for column, name, opacity, pattern in series:
        values = [float(v) if pd.notna(v) else 0.0 for v in rows[column]]
        figure.add_bar(
            y=labels,
            x=values,
            orientation="h",
            name=name,
            marker={
                "color": [c.on(dark) for c in colours],
                "opacity": opacity,
                "pattern": {
                    "shape": pattern,
                    "fillmode": "overlay",
                },  # here a texture tells profiled from not; the causes have names
                "line": {"width": 0},
            },
            text=[fmt.duration_ms(v) if v else "" for v in values],
            textposition="outside",
            cliponaxis=False,
            customdata=[f"{label}, {name}: {fmt.duration_ms(v)}" for label, v in zip(labels, values, strict=True)],
            hovertemplate="%{customdata}<extra></extra>",
        )
    framed(figure, 70 + (44 if has_estimate else 30) * max(len(rows), 1))
    largest = max((float(v) for c, *_ in series for v in rows[c].dropna()), default=1.0)
    figure.update_layout(barmode="group", bargap=0.3, bargroupgap=0.05)
    figure.update_yaxes(autorange="reversed", showgrid=False, automargin=True, ticksuffix="  ")
    figure.update_xaxes(
        title={"text": unit},
        range=[0, largest * 1.15 or 1],
        zeroline=False,
    )
    grey = MUTED.on(dark)
    legend = (
        (LegendEntry("the run, without the profiler", grey), LegendEntry("as profiled", grey, hatched=True))
        if has_estimate
        else ()
    )
    alt = f"{title}. " + "; ".join(_words(row) for row in table.to_dict("records")) + "."
    columns = {c: h for c, h in COLUMNS.items() if c == "label" or table[c].notna().any()}
    return Chart(
        figure=figure,
        title=title,
        alt=alt,
        table=table[["label", "recorded_ms", "unprofiled_ms", "recoverable_ms"]],
        columns=columns,
        legend=legend,
        metrics=("gpu_idle_share", "step_time_unprofiled_est_ms"),
        method="Every piece of lost time has one cause: what the launching thread did meanwhile, whether the queue had run dry, and what had drained it. "
        "The solid bar replays the trace without the profiler's own cost and describes the run. 'Gained' is the replay with the cause removed: "
        "removing one wait often uncovers another, so it is less than the bar, and gains do not add up.",
    )


def _colour(row: dict[Any, Any]) -> Colour:
    return colour_of(str(row["owner"]), None if row["cause"] == row["owner"] else str(row["cause"]))


def _words(row: dict[Any, Any]) -> str:
    estimate = f", ≈ {fmt.duration_ms(row['unprofiled_ms'])} without the profiler" if pd.notna(row["unprofiled_ms"]) else ""
    return f"{row['label']} {fmt.duration_ms(row['recorded_ms'])}{estimate}"
