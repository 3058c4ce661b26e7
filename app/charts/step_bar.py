"""The parts of a step: one bar divided by the ledger's owners and causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pandas as pd
import plotly.graph_objects as go

from sawtooth.analysis.run.verdict import Column, StepPart
from sawtooth.app import format as fmt
from sawtooth.app.charts.base import Chart, entry_of, marker, with_layout
from sawtooth.app.theme import colour_of, ink_on, place_of

LABEL_FROM = 0.08  # Share of the longer bar from which a part is wide enough for its time at 800 px.
NAME_FROM = 0.3  # Share from which a part also has room for its name.
COLUMN_NAMES = {"recorded": "as profiled", "unprofiled": "without the profiler, ≈"}
NO_NAMES: Mapping[str, str] = MappingProxyType({})
_COLUMNS = {"column": "Column", "part": "Part", "ms": "ms per step", "share": "Share of the step"}


def label(part: StepPart, names: Mapping[str, str] = NO_NAMES) -> str:
    """Return the part's readable name; ``names`` are a run's own names of causes."""
    return names.get(part.cause or "") or colour_of(part.owner, part.cause).label


def chart(
    columns: Mapping[Column, Sequence[StepPart]], title: str, names: Mapping[str, str] = NO_NAMES, *, dark: bool, per_step: bool
) -> Chart:
    """Draw one bar per ledger column, the first one on top.

    ``columns`` maps "recorded" or "unprofiled" to the parts.
    """
    figure = go.Figure()
    rows = list(columns)
    unit = "ms per step" if per_step else "ms of the recorded time"
    longest = max(sum(p.ms for p in parts) for parts in columns.values())
    drawn: dict[tuple[str, str | None], None] = {}
    for name in rows:
        drawn.update({(p.owner, p.cause): None for p in columns[name]})
    order = sorted(drawn, key=lambda part: place_of(*part))
    for key in order:
        parts_here = {name: next((p for p in columns[name] if (p.owner, p.cause) == key), None) for name in rows}
        figure.add_bar(
            y=[COLUMN_NAMES[name] for name in rows],
            x=[part.ms if (part := parts_here[name]) else 0.0 for name in rows],
            orientation="h",
            name=names.get(key[1] or "") or colour_of(*key).label,
            marker=marker(colour_of(*key), dark),
            text=[_bar_text(parts_here[name], names, longest) for name in rows],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            constraintext="none",
            textfont={"size": 12, "color": ink_on(colour_of(*key).on(dark)), "shadow": _halo(colour_of(*key).on(dark))},
            customdata=[_hover(parts_here[name], names, longest) for name in rows],
            hovertemplate="%{customdata}<extra></extra>",
        )
    with_layout(figure, 66 + 48 * len(rows))
    figure.update_layout(barmode="stack", bargap=0.25)
    figure.update_yaxes(autorange="reversed", ticksuffix="  ", showgrid=False, visible=len(rows) > 1, automargin=True)
    figure.update_xaxes(title={"text": unit}, range=[0, longest], zeroline=False)
    table = pd.DataFrame(
        [(COLUMN_NAMES[n], label(p, names), p.ms, p.share) for n in rows for p in columns[n]],
        columns=["column", "part", "ms", "share"],
    )
    alt = f"{title} " + "; ".join(
        f"{COLUMN_NAMES[n]}: "
        + ", ".join(f"{label(p, names)} {fmt.part_ms(longest, p.ms)} ({fmt.share(p.share)})" for p in columns[n])
        for n in rows
    )
    return Chart(
        figure=figure,
        title=title,
        alt=alt,
        table=table,
        columns={**_COLUMNS, "ms": unit},
        metrics=("gpu_busy_share", "tensor_core_time_share", "exposed_comm_share"),
        method="Every nanosecond of the steady window has one owner, in this order: tensor-core kernel, other kernel, memory set, communication, copy, "
        "idle. Time without compute is split by cause. The parts sum to the step exactly. The bar without the profiler comes from replaying "
        "the trace without the profiler's own cost on the host.",
        legend=tuple(
            dict.fromkeys(
                entry_of(replace(colour_of(*key), label=names.get(key[1] or "") or colour_of(*key).label), dark)
                for key in order
            )
        ),
    )


def _halo(colour: str) -> str:
    """Return a shadow in the bar's colour, so that its texture does not cross the letters."""
    return ", ".join(f"{x}px {y}px 2px {colour}" for x in (-3, 0, 3) for y in (-3, 0, 3))


def _bar_text(part: StepPart | None, names: Mapping[str, str], longest: float) -> str:
    if part is None or part.ms < LABEL_FROM * longest:
        return ""
    time = fmt.part_ms(longest, part.ms)
    return f"{label(part, names)} {time}" if part.ms >= NAME_FROM * longest else time


def _hover(part: StepPart | None, names: Mapping[str, str], longest: float) -> str:
    return f"{label(part, names)}: {fmt.part_ms(longest, part.ms)}, {fmt.share(part.share)}" if part is not None else ""
