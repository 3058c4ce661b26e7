"""Bars of steps as one Plotly figure, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from sawtooth.app import format as fmt
from sawtooth.app.charts.base import marker, time_unit, with_layout
from sawtooth.app.charts.step_svg import PictureBar
from sawtooth.app.theme import MUTED

NAME_LENGTH = 48  # Characters: a longer name would leave the bars no room.
ROW, LEGEND = 48, 150  # Px: height of a bar, and of the axis with a legend of several lines.


def figure(bars: Sequence[PictureBar]) -> go.Figure:
    """Return ``bars`` below each other, divided into their parts; an interval is an error bar."""
    unit = time_unit(max((bar.ms for bar in bars), default=0.0))
    picture = go.Figure()
    for colour in dict.fromkeys(part.colour for bar in bars for part in bar.parts):
        ms = [sum(part.ms for part in bar.parts if part.colour == colour) for bar in bars]
        picture.add_bar(
            y=list(range(len(bars))),
            x=[value / unit.ms for value in ms],
            orientation="h",
            name=colour.label,
            marker=marker(colour, dark=False),
            customdata=[f"{colour.label}: {fmt.duration_ms(value)}" for value in ms],
            hovertemplate="%{customdata}<extra></extra>",
        )
    between = [(at, bar.ms, bar.interval) for at, bar in enumerate(bars) if bar.interval is not None]
    if between:
        picture.add_scatter(
            y=[at for at, *_ in between],
            x=[ms / unit.ms for _, ms, _ in between],
            mode="markers",
            marker={"size": 1, "color": MUTED.light},
            error_x={
                "array": [(ends[1] - ms) / unit.ms for _, ms, ends in between],
                "arrayminus": [(ms - ends[0]) / unit.ms for _, ms, ends in between],
                "color": MUTED.light,
            },
            hoverinfo="skip",
            showlegend=False,
        )
    with_layout(picture, LEGEND + ROW * len(bars), legend=True)
    picture.update_layout(
        template="plotly_white", barmode="stack", bargap=0.3, legend_traceorder="normal", modebar_remove=["sendDataToCloud"]
    )
    names = [f"{fmt.plain(bar.caption, NAME_LENGTH)}<br>{fmt.plain(bar.time)}" for bar in bars]
    picture.update_yaxes(
        tickmode="array", tickvals=list(range(len(bars))), ticktext=names, autorange="reversed", showgrid=False, automargin=True
    )
    return picture.update_xaxes(title={"text": f"{unit.name} per step"}, rangemode="tozero", zeroline=False)
