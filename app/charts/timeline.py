"""Lanes on one clock: steps, lost time, GPU streams, host threads and telemetry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from sawtooth.analysis.knowledge import owners
from sawtooth.analysis.tables.timeline import Span
from sawtooth.app import format as fmt
from sawtooth.app.charts.base import LegendEntry, framed
from sawtooth.app.charts.rankings import short
from sawtooth.app.theme import CAUSES, OWNERS, UNKNOWN, Colour

LANE_PX = 32  # height of a lane: text of 11 px inside a bar with air around it
PANEL_PX = 86  # height of a telemetry panel: enough to see a tooth
TEXT_FROM = 0.05  # share of the view from which a bar carries its name: about 40 px at 800 px
HOVER_NAME = 90  # characters of a name on hover; 3,000 bars of them stay under half a megabyte

HOST_KINDS: dict[str, Colour] = {
    "annotation": Colour("annotation", "#6B7C8C", "#8FA1B3"),
    "op": Colour("operator", "#9FB3C8", "#5C7085"),
    "launch": Colour("launch call", "#A7A7A7", "#7D7D7D"),
    "call": Colour("other runtime call", "#C9C9C9", "#5A5A5A"),
    "copy": replace(OWNERS["exposed_memcpy"], label="copy call"),
    "sync": replace(CAUSES["host_sync"], label="waits for the GPU"),
    "allocator": replace(CAUSES["allocator"], label="allocates or frees"),
}


@dataclass(frozen=True)
class Lane:
    """One row of bars: ``rows`` has the columns of ``sawtooth.analysis.tables.timeline.BARS``; ``colours`` gives each kind its colour and label."""

    label: str
    rows: pd.DataFrame
    colours: Mapping[str, Colour]
    names: Mapping[int, str] = field(default_factory=dict)
    what: str = "operations"


@dataclass(frozen=True)
class Line:
    """A telemetry line in a panel: absolute times, values, a label and a colour."""

    time_ns: NDArray[np.int64]
    value: NDArray[np.float64]
    label: str
    colour: Colour


@dataclass(frozen=True)
class Panel:
    """A telemetry panel above the lanes."""

    unit: str
    lines: Sequence[Line]
    top: float | None = None


def kind_label(kind: str | None) -> str:
    """Return a bar's kind in words, whatever lane it is of."""
    known = {**gap_colours(), **work_colours(), **HOST_KINDS}
    return known[kind].label if kind in known else ""


def work_colours() -> dict[str, Colour]:
    """Return the colours of GPU operations by owner class."""
    return {o.key: replace(OWNERS[o.key], label=o.work) for o in owners.OWNERS if o.key != "idle"}


def gap_colours() -> dict[str, Colour]:
    """Return the colours of lost time, by cause, or by owner where no cause is known."""
    return {**CAUSES, **{k: OWNERS[k] for k in reversed(owners.LOST_OWNERS)}}


def figure(lanes: Sequence[Lane], panels: Sequence[Panel], view: Span, origin_ns: int, *, dark: bool) -> go.Figure:
    """Draw ``lanes`` and ``panels`` over ``view``; times are ms after ``origin_ns``."""
    body = max(LANE_PX * len(lanes), LANE_PX)
    heights = [*(PANEL_PX for _ in panels), body]
    made = make_subplots(
        rows=len(heights),
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.0 if len(heights) == 1 else 18 / sum(heights),
        row_heights=heights,
    )
    for row, panel in enumerate(panels, start=1):
        _panel(made, panel, row, origin_ns, dark)
    _lanes(made, lanes, len(heights), view, origin_ns, dark)
    low, high = view.relative_ms(origin_ns)
    framed(made, sum(heights) + 60 + 18 * len(panels))
    made.update_layout(barmode="overlay", bargap=0, dragmode="select", selectdirection="h", hovermode="closest")
    made.update_xaxes(range=[low, high], showgrid=True, zeroline=False)
    made.update_xaxes(title={"text": "ms since the recording began"}, row=len(heights), col=1)
    return made


def legend(lanes: Sequence[Lane], panels: Sequence[Panel], *, dark: bool) -> tuple[LegendEntry, ...]:
    """Return what the colours mean, in the order of the lanes."""
    entries: dict[str, LegendEntry] = {}
    for panel in panels:
        for line in panel.lines:
            entries.setdefault(line.label, LegendEntry(line.label, line.colour.on(dark)))
    for lane in lanes:
        for kind in lane.rows["kind"].unique():
            colour = lane.colours.get(str(kind), UNKNOWN)
            entries.setdefault(colour.label, LegendEntry(colour.label, colour.on(dark), colour.hatched))
    return tuple(entries.values())


def _panel(made: go.Figure, panel: Panel, row: int, origin_ns: int, dark: bool) -> None:
    for line in panel.lines:
        made.add_scatter(
            x=((line.time_ns - origin_ns) / 1e6),
            y=line.value.astype(np.float32),
            mode="lines",
            line={"shape": "vh", "width": 1.5, "color": line.colour.on(dark)},
            name=line.label,
            connectgaps=False,
            hovertemplate=f"{line.label}: %{{y:.3~g}} {panel.unit}<extra></extra>",
            row=row,
            col=1,
        )
    made.update_yaxes(
        title={"text": panel.unit, "font": {"size": 11}},
        range=[0, panel.top] if panel.top else None,
        rangemode="tozero",
        nticks=4,
        row=row,
        col=1,
    )


def _lanes(made: go.Figure, lanes: Sequence[Lane], row: int, view: Span, origin_ns: int, dark: bool) -> None:
    for position, lane in enumerate(lanes):
        for kind, rows in lane.rows.groupby("kind", sort=False):
            colour = lane.colours.get(str(kind), UNKNOWN)
            made.add_bar(
                y=np.full(len(rows), position, np.float32),
                base=np.maximum(rows["start_ns"].to_numpy() - origin_ns, view.start_ns - origin_ns) / 1e6,
                x=(np.minimum(rows["end_ns"], view.end_ns) - np.maximum(rows["start_ns"], view.start_ns)).to_numpy() / 1e6,
                width=(0.86 * rows["fill"].to_numpy()).astype(np.float32),
                orientation="h",
                name=colour.label,
                marker={"color": colour.on(dark), "line": {"width": 0}, "pattern": {"shape": "/" if colour.hatched else ""}},
                text=_texts(rows, lane, view, colour.label),
                textposition="inside",
                insidetextanchor="start",
                constraintext="none",
                textangle=0,
                textfont={"size": 11},
                cliponaxis=True,
                customdata=_hovers(rows, lane, colour.label),
                hovertemplate="%{customdata}<extra></extra>",
                row=row,
                col=1,
            )
    made.update_yaxes(
        tickmode="array",
        tickvals=list(range(len(lanes))),
        ticktext=[fmt.plain(lane.label, 26) for lane in lanes],
        range=[len(lanes) - 0.5, -0.5],
        showgrid=False,
        zeroline=False,
        automargin=True,
        tickfont={"size": 11},
        row=row,
        col=1,
    )


def _texts(rows: pd.DataFrame, lane: Lane, view: Span, label: str) -> list[str]:
    lengths = np.minimum(rows["end_ns"], view.end_ns) - np.maximum(rows["start_ns"], view.start_ns)
    wide = lengths.to_numpy() >= TEXT_FROM * view.ns
    texts = []
    for is_wide, length, name, count in zip(wide, lengths, rows["name_id"], rows["operations"], strict=True):
        if not is_wide:
            texts.append("")
            continue
        known = lane.names.get(int(name)) if pd.notna(name) else (label if count == 1 else None)
        room = max(int(length / view.ns * 110), 4)  # characters of 11 px that fit into the bar on a page of 800 px
        texts.append(fmt.plain(short(known, room)) if known else "")
    return texts


def _hovers(rows: pd.DataFrame, lane: Lane, label: str) -> list[str]:
    hovers = []
    for name, count, busy, start, end in zip(
        rows["name_id"], rows["operations"], rows["busy_ns"], rows["start_ns"], rows["end_ns"], strict=True
    ):
        if count == 1:
            known = lane.names.get(int(name)) if pd.notna(name) else None
            head = fmt.plain(known, HOVER_NAME) if known else label
            hovers.append(f"{head}<br>{fmt.duration_ns(end - start)}" + (f" · {label}" if known else ""))
        else:
            hovers.append(
                f"{fmt.count(count)} {lane.what}, mostly {label}<br>{fmt.duration_ns(busy)} of {fmt.duration_ns(end - start)}"
            )
    return hovers


def steps_lane(steps: pd.DataFrame, view: Span) -> Lane:
    """Return the lane of device steps: ``steps`` is the derived table."""
    inside = steps[(steps["start_ns"] < view.end_ns) & (steps["end_ns"] > view.start_ns)].reset_index(drop=True)
    rows = pd.DataFrame(
        {
            "lane": 0,
            "kind": np.where(inside["counted"], "counted", "left out"),
            "start_ns": inside["start_ns"],
            "end_ns": inside["end_ns"],
            "name_id": pd.array(range(len(inside)), dtype="Int64"),
            "operations": 1,
            "busy_ns": inside["end_ns"] - inside["start_ns"],
            "fill": 0.75,
        }
    )
    names = {
        i: str(name) + (f" (not counted: {why})" if isinstance(why, str) and why else "")
        for i, (name, why) in enumerate(zip(inside["name"], inside["excluded_because"], strict=True))
    }
    colours = {
        "counted": Colour("counted step", "#3F5873", "#7D93AB"),
        "left out": Colour("step not counted", "#A9B4BF", "#4C5866"),
    }
    return Lane("Steps", rows, colours, names)
