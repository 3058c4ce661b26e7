"""The ledgers of several ranks under each other."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from app import format as fmt
from app.charts.base import Chart, framed
from app.theme import OWNERS


def labels_of(rows: pd.DataFrame) -> list[str]:
    """Return how each row is called: rank 1 (device 1), or device 1 where ranks are unknown."""
    return [
        f"rank {int(rank)}, device {device}" if pd.notna(rank) else f"device {device}"
        for rank, device in zip(rows["rank"], rows["device"], strict=True)
    ]


def title(rows: pd.DataFrame) -> str:
    """Return the finding: how far the ranks' communication lies apart."""
    if "exposed_comm_ms" not in rows or rows["exposed_comm_ms"].max() == 0:
        return "No rank communicates outside its compute"
    low, high = float(rows["exposed_comm_ms"].min()), float(rows["exposed_comm_ms"].max())
    return f"Exposed communication takes {fmt.duration_ms(low)} to {fmt.duration_ms(high)} of a step"


def side_by_side(rows: pd.DataFrame, finding: str, *, dark: bool) -> Chart:
    """Draw one bar per device from the owners' ms per step (columns ``{owner}_ms``)."""
    labels = labels_of(rows)
    owners = [owner for owner in OWNERS if f"{owner}_ms" in rows and rows[f"{owner}_ms"].sum() > 0]
    figure = go.Figure()
    for owner in owners:
        values = [float(v) for v in rows[f"{owner}_ms"]]
        figure.add_bar(
            y=labels,
            x=values,
            orientation="h",
            name=OWNERS[owner].label,
            marker={"color": OWNERS[owner].on(dark), "line": {"width": 0}},
            customdata=[
                f"{label}: {OWNERS[owner].label} {fmt.duration_ms(v)}" for label, v in zip(labels, values, strict=True)
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )
    framed(figure, 66 + 40 * len(rows))
    figure.update_layout(barmode="stack", bargap=0.25)
    figure.update_yaxes(autorange="reversed", showgrid=False, automargin=True, ticksuffix="  ")
    figure.update_xaxes(title={"text": "ms per step, as profiled"}, rangemode="tozero", zeroline=False)
    table = rows.assign(label=labels)
    columns = {"label": "Rank", "step_ms": "Step, ms", **{f"{o}_ms": f"{OWNERS[o].label}, ms per step" for o in owners}}
    alt = f"{finding}. " + "; ".join(
        f"{label}: " + ", ".join(f"{OWNERS[o].label} {fmt.duration_ms(float(row[f'{o}_ms']))}" for o in owners)
        for label, row in zip(labels, rows.to_dict("records"), strict=True)
    )
    return Chart(
        figure,
        finding,
        alt,
        table,
        columns,
        ("exposed_comm_share", "gpu_busy_share"),
        "Each bar is the ledger of one device over its own steady window. A collective ends for all ranks together, so a rank that comes early "
        "spends more time in it.",
        tuple((OWNERS[o].label, OWNERS[o].on(dark), False) for o in owners),
    )
