"""Allocated and reserved device memory over time."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from sawtooth.app import format as fmt
from sawtooth.app.charts.base import Chart, LegendEntry, time_unit, with_layout
from sawtooth.app.charts.poster_bars import LETTER_SHARE, BarSegment, StepBar
from sawtooth.app.theme import MUTED, PAGE, Colour, colour_of_quantity, mix

MAX_DRAWN_PARTS = 12  # Parts of the peak with a piece of their own. More pieces would be thin lines.
NUMBERED_FROM = 0.07  # Share of the peak. A wider piece has room for its number in the table, also on a narrow page.
MARGIN_LETTERS = 6  # In letters: the width of the number and of the margins of a name.
MOSTLY_USED = 0.85  # Share of the memory. Above this share, the rest of the bar has no room for words.
USED = colour_of_quantity("mem_used_bytes")  # The same colour as for memory in telemetry.
# A paler colour for every second part, so that neighbours in a bar can be distinguished.
PALER = Colour("", mix(USED.light, PAGE.light, 0.35), mix(USED.dark, PAGE.dark, 0.35))


def over_time(rows: pd.DataFrame, title: str, steps: list[tuple[float, float]], *, dark: bool, relative: bool) -> Chart:
    """Draw memory over time; ``steps`` are (start, end) in ms and are shaded.

    ``rows`` has at_ms, allocated_bytes and, if recorded, reserved_bytes.
    """
    unit = time_unit(float(rows["at_ms"].max()))
    figure = go.Figure()
    for column, label, colour, dash in (
        ("reserved_bytes", "reserved", MUTED, "dot"),
        ("allocated_bytes", "allocated", USED, "solid"),
    ):
        if column in rows:
            figure.add_scatter(
                x=rows["at_ms"] / unit.ms,
                y=(rows[column] / 2**30).astype(np.float32),
                mode="lines",
                name=label,
                line={"shape": "hv", "width": 1.5, "color": colour.on(dark), "dash": dash},
                hovertemplate="%{y:.4~g} GiB<extra></extra>",
            )
    shade = USED.on(dark)
    figure.update_layout(
        shapes=[
            {
                "type": "rect", "xref": "x", "yref": "paper", "x0": a / unit.ms, "x1": b / unit.ms, "y0": 0, "y1": 1,
                "fillcolor": shade, "opacity": 0.08, "line": {"width": 0}, "layer": "below",
            }
            for a, b in steps
        ]
    )  # fmt: skip
    with_layout(figure, 320)
    figure.update_xaxes(title={"text": f"{unit.name} since the recording began"}, zeroline=False)
    figure.update_yaxes(title={"text": "GiB above the least seen" if relative else "GiB"}, rangemode="tozero")
    columns = {"at_ms": "At, ms", "allocated_bytes": "Allocated, bytes", "reserved_bytes": "Reserved, bytes"}
    legend = [LegendEntry("allocated", USED.on(dark))]
    if "reserved_bytes" in rows:
        legend.append(LegendEntry("reserved", MUTED.on(dark), hatched=True))
    return Chart(
        figure=figure,
        title=title,
        alt=f"{title}. Drawn as lines over time.",
        table=rows,
        columns={c: h for c, h in columns.items() if c in rows},
        metrics=("peak_memory_bytes",),
        method="The allocator's own events: allocated is the memory of tensors, reserved is what the allocator has taken from the driver. "
        f"{'Every second step is shaded. ' if steps else ''}Lines are thinned so that the peak stays.",
        legend=tuple(legend),
    )


def holders(rows: pd.DataFrame, *, dark: bool) -> list[BarSegment]:
    """Return the operators that hold the peak as pieces of a bar: the largest by name, the rest as one."""
    pieces = []
    for i, row in enumerate(rows.head(MAX_DRAWN_PARTS).to_dict("records")):
        name, size = fmt.clean(str(row["operator"]), 40), fmt.memory(row["bytes"])
        place = str(i + 1) if row["share"] >= NUMBERED_FROM else ""
        label = f"{i + 1}  {name} {size}" if row["share"] >= LETTER_SHARE * (len(name) + len(size) + MARGIN_LETTERS) else place
        hint, colour = f"{name}: {size}, {fmt.share(row['share'])}", (USED, PALER)[i % 2].on(dark)
        pieces.append(BarSegment(hint, label, 1000 * row["share"], colour, "", number=place))
    other_share = float(rows["share"].iloc[MAX_DRAWN_PARTS:].sum())
    if other_share > 0:
        pieces.append(
            BarSegment(
                f"{len(rows) - MAX_DRAWN_PARTS} others: {fmt.share(other_share)}", "", 1000 * other_share, MUTED.on(dark), ""
            )
        )
    return pieces


def of_the_gpu(peak_bytes: float, capacity_bytes: float, *, dark: bool) -> StepBar:
    """Return the peak relative to the GPU's memory as a bar, with the free memory in words."""
    share = min(peak_bytes / capacity_bytes, 1.0)
    used = f"{fmt.memory(peak_bytes)} in use"
    piece = BarSegment(
        f"{fmt.share(share)} of the GPU's memory",
        used if share >= LETTER_SHARE * (len(used) + MARGIN_LETTERS) else "",
        1.0,
        USED.on(dark),
        "",
    )
    free = f"{fmt.memory(max(capacity_bytes - peak_bytes, 0.0))} free" if share < MOSTLY_USED else ""
    return StepBar("GPU", fmt.memory(capacity_bytes), f"{share:.2%}", (piece,), free)


def step_spans(steps: pd.DataFrame, origin_ns: int) -> list[tuple[float, float]]:
    """Return every second step, in the host's time, as ms after ``origin_ns``.

    Allocations are recorded in the host's time.
    """
    return [
        ((a - origin_ns) / 1e6, (b - origin_ns) / 1e6)
        for a, b in zip(steps["host_start_ns"][::2], steps["host_end_ns"][::2], strict=True)
    ]
