"""The ledgers of several ranks under each other."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from sawtooth.analysis.knowledge.causes import BETWEEN_RANKS
from sawtooth.app import format as fmt
from sawtooth.app.charts.base import Chart, LegendEntry, framed
from sawtooth.app.theme import CAUSES, OWNERS, Colour

# The ledger's owners; communication by its cause where the ranks' collectives tell it.
PARTS: dict[str, Colour] = {
    **{owner: colour for owner, colour in OWNERS.items() if owner != "idle"},
    **{cause: CAUSES[cause] for cause in reversed(BETWEEN_RANKS)},
    "idle": OWNERS["idle"],
}


def labels_of(rows: pd.DataFrame) -> list[str]:
    """Return how each row is called: rank 1 (device 1), or device 1 where ranks are unknown."""
    return [
        f"rank {int(rank)}, device {device}" if pd.notna(rank) else f"device {device}"
        for rank, device in zip(rows["rank"], rows["device"], strict=True)
    ]


def title(rows: pd.DataFrame) -> str:
    """Return the finding: how far the ranks' communication lies apart."""
    exposed = sum(rows[f"{part}_ms"] for part in ("exposed_comm", *BETWEEN_RANKS) if f"{part}_ms" in rows)
    if isinstance(exposed, int) or not exposed.max():
        return "No rank communicates outside its compute"
    return f"Exposed communication takes {fmt.duration_ms(float(exposed.min()))} to {fmt.duration_ms(float(exposed.max()))} of a step"


def side_by_side(rows: pd.DataFrame, finding: str, *, dark: bool, unprofiled: bool = False) -> Chart:
    """Draw one bar per device from the owners' ms per step (columns ``{part}_ms``, see PARTS)."""
    labels = labels_of(rows)
    owners = [owner for owner in PARTS if f"{owner}_ms" in rows and rows[f"{owner}_ms"].sum() > 0]
    figure = go.Figure()
    for owner in owners:
        values = [float(v) for v in rows[f"{owner}_ms"]]
        figure.add_bar(
            y=labels,
            x=values,
            orientation="h",
            name=PARTS[owner].label,
            marker={"color": PARTS[owner].on(dark), "line": {"width": 0}},
            customdata=[f"{label}: {PARTS[owner].label} {fmt.duration_ms(v)}" for label, v in zip(labels, values, strict=True)],
            hovertemplate="%{customdata}<extra></extra>",
        )
    framed(figure, 66 + 40 * len(rows))
    figure.update_layout(barmode="stack", bargap=0.25)
    figure.update_yaxes(autorange="reversed", showgrid=False, automargin=True, ticksuffix="  ")
    figure.update_xaxes(
        title={"text": "ms per step, ≈ without the profiler" if unprofiled else "ms per step, as profiled"},
        rangemode="tozero",
        zeroline=False,
    )
    table = rows.assign(label=labels)
    columns = {"label": "Rank", "step_ms": "Step, ms", **{f"{o}_ms": f"{PARTS[o].label}, ms per step" for o in owners}}
    alt = f"{finding}. " + "; ".join(
        f"{label}: " + ", ".join(f"{PARTS[o].label} {fmt.duration_ms(float(row[f'{o}_ms']))}" for o in owners)
        for label, row in zip(labels, rows.to_dict("records"), strict=True)
    )
    return Chart(
        figure=figure,
        title=finding,
        alt=alt,
        table=table,
        columns=columns,
        metrics=("exposed_comm_share", "gpu_busy_share"),
        method="Each bar is the ledger of one device over its own steady window. A collective ends for all ranks together, so a rank that joins early "
        "spends more time in it. Without the profiler each rank is replayed alone, its collectives as long as recorded.",
        legend=tuple(LegendEntry(PARTS[o].label, PARTS[o].on(dark)) for o in owners),
    )
