"""Several runs in one chart: the history of a tag, and all runs by GPU busy share and MFU."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from sawtooth.app import format as fmt
from sawtooth.app.charts.base import Chart, framed, time_unit
from sawtooth.app.theme import ACCENT, MUTED

_COLUMNS = {"name": "Run", "step_ms": "Step time, ms", "mfu": "MFU"}


def chart(rows: pd.DataFrame, title: str, *, dark: bool) -> Chart:
    """Draw ``rows`` (run, name, step_ms, mfu; in order) as two lines, one above the other."""
    unit = time_unit(float(rows["step_ms"].max()))
    drawn = (("step_ms", f"step, {unit.name}", 1 / unit.ms, fmt.duration_ms), ("mfu", "MFU, %", 100, fmt.share))
    panels = [panel for panel in drawn if rows[panel[0]].notna().any()]
    figure = make_subplots(rows=max(len(panels), 1), cols=1, shared_xaxes=True, vertical_spacing=0.12)
    for place, (column, label, scale, text) in enumerate(panels, start=1):
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


def mfu_by_busy(rows: pd.DataFrame, *, dark: bool) -> Chart:
    """Draw runs by the share of the step in which the GPU is busy and by their MFU.

    ``rows`` has run, busy and mfu (shares, all known). Runs on the left wait; runs far below the diagonal use the GPU badly.
    MFU cannot exceed the busy share, which is the diagonal.
    """
    worst = rows.sort_values("busy").iloc[0]
    title = f"{fmt.clean(str(worst['run']), 40)} waits most: its GPU is busy {fmt.share(worst['busy'])} of a step"
    top = max(float(rows["mfu"].max()) * 1.2, 0.1)
    figure = go.Figure()
    figure.add_scatter(
        x=[0, 1], y=[0, 1], mode="lines", hoverinfo="skip", showlegend=False, line={"color": MUTED.on(dark), "width": 1, "dash": "dot"}
    )  # fmt: skip
    figure.add_scatter(
        x=rows["busy"],
        y=rows["mfu"],
        mode="markers+text",
        text=_names_with_room(rows, top),
        textposition="top center",
        showlegend=False,
        marker={"size": 10, "color": ACCENT.on(dark), "opacity": 0.8},
        customdata=[
            f"{fmt.plain(str(name), 60)}: GPU busy {fmt.share(busy)}, MFU {fmt.share(mfu)}"
            for name, busy, mfu in zip(rows["run"], rows["busy"], rows["mfu"], strict=True)
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )
    framed(figure, 360)
    figure.update_xaxes(
        title={"text": "share of the step in which the GPU is busy"}, tickformat=".0%", range=[0, 1.05], zeroline=False
    )
    figure.update_yaxes(title={"text": "MFU"}, tickformat=".0%", range=[0, top], zeroline=False)
    columns = {"run": "Run", "busy": "GPU busy", "mfu": "MFU"}
    return Chart(figure=figure, title=title, alt=f"{title}.", table=rows, columns=columns, metrics=("mfu", "gpu_busy_share"))


# The size of a name above its dot, as shares of the axes of a picture that is 560 pixels wide and 270 high.
LETTER_WIDTH, NAME_HEIGHT, ABOVE = 0.0135, 0.075, 0.02


def _names_with_room(rows: pd.DataFrame, top: float) -> list[str]:
    """Return the names of the dots, "" for a name that would cover another name or dot.

    Runs that wait most are named first, because the title is about them. The others have their names on hover.
    """
    dots = {run: (busy, mfu / top) for run, busy, mfu in zip(rows.index, rows["busy"], rows["mfu"], strict=True)}
    names = dict.fromkeys(rows.index, "")
    taken: list[tuple[float, float, float, float]] = []  # left, right, low and high end of the names so far
    for run in rows.sort_values("busy").index:
        name, (x, y) = fmt.plain(str(rows.loc[run, "run"]), 24), dots[run]
        half = LETTER_WIDTH * len(name) / 2
        box = (x - half, x + half, y + ABOVE, y + ABOVE + NAME_HEIGHT)
        covers = any(box[0] < a < box[1] and box[2] < b < box[3] for other, (a, b) in dots.items() if other != run)
        if not covers and all(box[1] < a or b < box[0] or box[3] < low or high < box[2] for a, b, low, high in taken):
            taken.append(box)
            names[run] = name
    return list(names.values())
