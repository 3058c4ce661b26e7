"""Several runs in one chart: the history of a tag, and all runs by GPU busy share and MFU."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from sawtooth.app import format as fmt
from sawtooth.app.charts.base import Chart, time_unit, with_layout
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
    with_layout(figure, 90 + 120 * max(len(panels), 1))
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
    names, positions = _names_with_room(rows, top)
    figure = go.Figure()
    figure.add_scatter(
        x=[0, 100], y=[0, 100], mode="lines", hoverinfo="skip", showlegend=False, line={"color": MUTED.on(dark), "width": 1, "dash": "dot"}
    )  # fmt: skip
    figure.add_scatter(
        x=rows["busy"] * 100,
        y=rows["mfu"] * 100,
        mode="markers+text",
        text=names,
        textposition=positions,
        cliponaxis=False,
        showlegend=False,
        marker={"size": 10, "color": ACCENT.on(dark), "opacity": 0.8},
        customdata=[
            f"{fmt.plain(str(name), 60)}: GPU busy {fmt.share(busy)}, MFU {fmt.share(mfu)}"
            for name, busy, mfu in zip(rows["run"], rows["busy"], rows["mfu"], strict=True)
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )
    with_layout(figure, 360)
    figure.update_xaxes(title={"text": "share of the step in which the GPU is busy, %"}, range=[0, 105], zeroline=False)
    figure.update_yaxes(title={"text": "MFU, %"}, range=[-100 * MARGIN_BELOW * top, 100 * top], zeroline=False)
    columns = {"run": "Run", "busy": "GPU busy", "mfu": "MFU"}
    return Chart(figure=figure, title=title, alt=f"{title}.", table=rows, columns=columns, metrics=("mfu", "gpu_busy_share"))


# The size of a name and of a dot, as shares of the axes of a picture that is 560 pixels wide and 270 high.
LETTER_WIDTH, NAME_HEIGHT, RADIUS, LABEL_GAP = 0.0135, 0.075, 0.009, 0.02  # The dot's radius, horizontally and vertically.
MARGIN_BELOW = 0.12  # Share of the vertical axis below 0: room for the name of a run whose MFU is almost 0.
RIGHT_END = 1.03  # A name that ended further to the right would be cut off on a phone.
# Where a name may stand, in order of preference: the direction from its dot, to the right and upwards.
POSITIONS = {
    "top center": (0, 1), "top left": (-1, 1), "top right": (1, 1),
    "bottom center": (0, -1), "bottom left": (-1, -1), "bottom right": (1, -1),
}  # fmt: skip


def _names_with_room(rows: pd.DataFrame, top: float) -> tuple[list[str], list[str]]:
    """Return the names of the dots and their positions.

    A name is "" if it would cover another name or dot at each position.
    Runs that wait most are named first, because the title is about them. The others have their names on hover.
    """
    dots = {run: (busy, mfu / top) for run, busy, mfu in zip(rows.index, rows["busy"], rows["mfu"], strict=True)}
    names, positions = dict.fromkeys(rows.index, ""), dict.fromkeys(rows.index, next(iter(POSITIONS)))
    occupied: list[tuple[float, float, float, float]] = []  # Left, right, low and high end of the names so far.
    for run in rows.sort_values("busy").index:
        name, (x, y) = fmt.plain(str(rows.loc[run, "run"]), 24), dots[run]
        half = LETTER_WIDTH * len(name) / 2
        for position, (aside, up) in POSITIONS.items():
            left, low = x + half * (aside - 1), y + (LABEL_GAP if up > 0 else -LABEL_GAP - NAME_HEIGHT)
            box = (left, left + 2 * half, low, low + NAME_HEIGHT)
            outside = box[0] < 0 or box[1] > RIGHT_END or box[2] < -MARGIN_BELOW
            covers = any(
                box[0] - RADIUS < a < box[1] + RADIUS and box[2] - LABEL_GAP < b < box[3] + LABEL_GAP
                for other, (a, b) in dots.items()
                if other != run
            )
            if not (outside or covers) and all(box[1] < a or b < box[0] or box[3] < c or d < box[2] for a, b, c, d in occupied):
                occupied.append(box)
                names[run], positions[run] = name, position
                break
    return list(names.values()), list(positions.values())
