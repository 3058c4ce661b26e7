"""Allocated and reserved device memory over time."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from sawtooth.app import format as fmt
from sawtooth.app.charts.base import Chart, LegendEntry, framed
from sawtooth.app.charts.poster_bars import Piece
from sawtooth.app.theme import ACCENT, MUTED, OWNERS

HOLDERS = 12  # of the peak, drawn one by one: narrower pieces are lines
NAMED_FROM = 0.25  # of the peak: a piece with room for its name where the peak is most of the bar
SKY = OWNERS["other_compute"]


def over_time(rows: pd.DataFrame, title: str, steps: list[tuple[float, float]], *, dark: bool, relative: bool) -> Chart:
    """Draw ``rows`` (at_ms, allocated_bytes and, where recorded, reserved_bytes); ``steps`` are (start, end) ms to shade."""
    figure = go.Figure()
    for column, label, colour, dash in (
        ("reserved_bytes", "reserved", MUTED, "dot"),
        ("allocated_bytes", "allocated", ACCENT, "solid"),
    ):
        if column in rows:
            figure.add_scatter(
                x=rows["at_ms"],
                y=(rows[column] / 1e9).astype(np.float32),
                mode="lines",
                name=label,
                line={"shape": "hv", "width": 1.5, "color": colour.on(dark), "dash": dash},
                hovertemplate="%{y:.4~g} GB<extra></extra>",
            )
    shade = ACCENT.on(dark)
    figure.update_layout(
        shapes=[
            {
                "type": "rect", "xref": "x", "yref": "paper", "x0": a, "x1": b, "y0": 0, "y1": 1,
                "fillcolor": shade, "opacity": 0.08, "line": {"width": 0}, "layer": "below",
            }
            for a, b in steps
        ]
    )  # fmt: skip
    framed(figure, 320)
    figure.update_xaxes(title={"text": "ms since the recording began"}, zeroline=False)
    figure.update_yaxes(title={"text": "GB above the least seen" if relative else "GB"}, rangemode="tozero")
    columns = {"at_ms": "At, ms", "allocated_bytes": "Allocated, bytes", "reserved_bytes": "Reserved, bytes"}
    legend = [LegendEntry("allocated", ACCENT.on(dark))]
    if "reserved_bytes" in rows:
        legend.append(LegendEntry("reserved", MUTED.on(dark), hatched=True))
    return Chart(
        figure=figure,
        title=title,
        alt=f"{title}. Drawn as lines over time.",
        table=rows,
        columns={c: h for c, h in columns.items() if c in rows},
        metrics=("peak_memory_bytes",),
        method="The allocator's own events: allocated is the memory of tensors, reserved is what the allocator has taken from the driver. Every second "
        "step is shaded. Lines are thinned so that the peak stays.",
        legend=tuple(legend),
    )


def held(rows: pd.DataFrame, *, dark: bool) -> list[Piece]:
    """Return who holds the peak as the pieces of a bar: the largest by name, the rest together."""
    pieces = []
    for i, row in enumerate(rows.head(HOLDERS).to_dict("records")):
        name, size = fmt.clean(str(row["operator"]), 40), fmt.bytes_(row["bytes"])
        label = f"{name} {size}" if row["share"] >= NAMED_FROM else ""
        pieces.append(
            Piece(f"{name}: {size}, {fmt.share(row['share'])}", label, 1000 * row["share"], (ACCENT, SKY)[i % 2].on(dark), "")
        )
    rest = float(rows["share"].iloc[HOLDERS:].sum())
    if rest > 0:
        pieces.append(Piece(f"{len(rows) - HOLDERS} others: {fmt.share(rest)}", "", 1000 * rest, MUTED.on(dark), ""))
    return pieces


def of_the_gpu(peak_bytes: float, capacity_bytes: float, *, dark: bool) -> tuple[list[Piece], str]:
    """Return the peak as a piece of a bar that is the GPU's memory, and its width."""
    share = min(peak_bytes / capacity_bytes, 1.0)
    return [Piece(f"{fmt.share(share)} of the GPU's memory", "", 1.0, ACCENT.on(dark), "")], f"{share:.2%}"


def step_spans(steps: pd.DataFrame, origin_ns: int) -> list[tuple[float, float]]:
    """Return every second step on the host as ms after ``origin_ns``: allocations happen on the host's time."""
    return [
        ((a - origin_ns) / 1e6, (b - origin_ns) / 1e6)
        for a, b in zip(steps["host_start_ns"][::2], steps["host_end_ns"][::2], strict=True)
    ]
