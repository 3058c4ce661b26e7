"""What each cause of lost time costs a step, on one basis: the run, or its profiled steps."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from sawtooth.app import format as fmt
from sawtooth.app.charts.base import Chart, framed
from sawtooth.app.theme import UNKNOWN, colour_of

COLUMNS = {
    "label": "Cause",
    "unprofiled_ms": "Without the profiler, ms per step",
    "recorded_ms": "As profiled, ms per step",
    "recoverable_ms": "Gained without it, ms per step",
}


def causes(bars: Sequence[tuple[str, str | None, float]], table: pd.DataFrame, title: str, *, dark: bool, unit: str) -> Chart:
    """Draw one bar a cause: ``bars`` are owner ("" for all the small ones), cause and ms, largest first.

    ``table`` has every cause with the columns of COLUMNS, those that are not known missing.
    """
    colours = [colour_of(owner, cause) if owner else UNKNOWN for owner, cause, _ in bars]
    labels = [colour.label if owner else "everything else" for colour, (owner, *_) in zip(colours, bars, strict=True)]
    values = [ms for *_, ms in bars]
    figure = go.Figure()
    figure.add_bar(
        y=labels,
        x=values,
        orientation="h",
        marker={
            "color": [colour.on(dark) for colour in colours],
            "pattern": {"shape": [colour.texture for colour in colours], "fillmode": "overlay"},
            "line": {"width": 0},
        },
        text=[fmt.duration_ms(value) for value in values],
        textposition="outside",
        cliponaxis=False,
        customdata=[f"{label}: {fmt.duration_ms(value)}" for label, value in zip(labels, values, strict=True)],
        hovertemplate="%{customdata}<extra></extra>",
    )
    framed(figure, 70 + 30 * max(len(values), 1))
    figure.update_layout(bargap=0.3)
    figure.update_yaxes(autorange="reversed", showgrid=False, automargin=True, ticksuffix="  ")
    figure.update_xaxes(title={"text": unit}, range=[0, max(values, default=0.0) * 1.15 or 1], zeroline=False)
    alt = (
        f"{title}. " + "; ".join(f"{label} {fmt.duration_ms(value)}" for label, value in zip(labels, values, strict=True)) + "."
    )
    return Chart(
        figure=figure,
        title=title,
        alt=alt,
        table=table[list(COLUMNS)],
        columns={column: heading for column, heading in COLUMNS.items() if table[column].notna().any()},
        metrics=("gpu_idle_share", "step_time_unprofiled_est_ms"),
        method="Every piece of lost time has one cause: what the launching thread did meanwhile, whether the queue had run dry, and what had drained it. "
        "The run's times come from a replay of the trace without the profiler's own cost, brought to the run's step. 'Gained' is the replay with the cause "
        "removed: removing one wait often uncovers another, so it is less than the bar, and gains do not add up.",
    )
