"""The history of a tag: step time and MFU from run to run."""

from __future__ import annotations

import pandas as pd
from plotly.subplots import make_subplots

from sawtooth.app import format as fmt
from sawtooth.app.charts.base import Chart, framed
from sawtooth.app.theme import ACCENT

_COLUMNS = {"name": "Run", "step_ms": "Step time, ms", "mfu": "MFU"}


def chart(rows: pd.DataFrame, title: str, *, dark: bool) -> Chart:
    """Draw ``rows`` (run, name, step_ms, mfu; in order) as two lines above one another."""
    panels = [(column, label, text) for column, label, text in _PANELS if rows[column].notna().any()]
    figure = make_subplots(rows=max(len(panels), 1), cols=1, shared_xaxes=True, vertical_spacing=0.12)
    for place, (column, label, text) in enumerate(panels, start=1):
        scale = 100 if column == "mfu" else 1
        figure.add_scatter(
            x=list(range(1, len(rows) + 1)),
            y=rows[column] * scale,
            mode="lines+markers",
            line={"color": ACCENT.on(dark), "width": 1.5},
            marker={"size": 8},
            customdata=[
                f"{fmt.plain(name, 60)}: {text(value) if value == value else fmt.MISSING}"
                for name, value in zip(rows["name"], rows[column], strict=True)
            ],
            hovertemplate="%{customdata}<extra></extra>",
            row=place,
            col=1,
        )
        figure.update_yaxes(title={"text": label}, rangemode="tozero", zeroline=False, row=place, col=1)
    framed(figure, 90 + 120 * max(len(panels), 1))
    figure.update_xaxes(dtick=1 if len(rows) <= 30 else None, zeroline=False)
    figure.update_xaxes(title={"text": "runs, in order of ingestion"}, row=max(len(panels), 1), col=1)
    return Chart(
        figure=figure, title=title, alt=f"{title}.", table=rows, columns=_COLUMNS, metrics=("best_step_time_ms", "mfu")
    )


_PANELS = (("step_ms", "step, ms", fmt.duration_ms), ("mfu", "MFU, %", fmt.share))
