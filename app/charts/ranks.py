"""The ledgers of several ranks under each other."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from sawtooth.analysis.knowledge.causes import BETWEEN_RANKS
from sawtooth.analysis.run.parallel import Pipeline
from sawtooth.app import format as fmt
from sawtooth.app.charts.base import Chart, LegendEntry, framed
from sawtooth.app.theme import ACCENT, CAUSES, OWNERS, PAGE, Colour

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


MEASURES = {"wait_ms": "Waiting for others", "own_ms": "Own time"}
SCALED_ROWS = 5  # of fewer, a scale would be higher than the picture
HARDLY = 0.01  # of what the other row does
SPREAD = 0.03  # of the median: rows that differ by less are as good as equal


def heat(rows: pd.DataFrame, measure: str, *, dark: bool) -> Chart:
    """Draw ranks (or hosts, or stages) × steps from ``rows`` of ``analysis.ranks.heat.pooled``; a point of a selection carries the rank in ``customdata``."""
    labels, steps = list(dict.fromkeys(rows["label"])), list(dict.fromkeys(rows["step"]))
    values = rows.pivot(index="label", columns="step", values=measure).reindex(index=labels, columns=steps)
    colour = (CAUSES["comm_wait"] if measure == "wait_ms" else ACCENT).on(dark)
    figure = _heat_map(values, colour, dark=dark, showscale=len(labels) >= SCALED_ROWS, hoverinfo="skip")
    # a heat map has no points to select: each square carries one that is not seen
    carried = rows[["rank", "own_ms", "wait_ms"]].astype(float).round(3)
    figure.add_scatter(
        x=rows["step"],
        y=rows["label"],
        mode="markers",
        marker={"opacity": 0, "size": 14, "symbol": "square"},
        customdata=carried.to_numpy().tolist(),  # of an array the browser sends no list back
        hovertemplate="%{y}, %{x}<br>%{customdata[1]:.3~g} ms by itself, %{customdata[2]:.3~g} ms waiting<extra></extra>",
    )
    framed(figure, min(90 + 22 * len(labels), 560))
    figure.update_layout(hovermode="closest", hoverdistance=-1)  # a click anywhere in a square is at its point
    figure.update_yaxes(nticks=24)
    figure.update_xaxes(title={"text": "step"})
    finding = _heat_finding(rows, measure)
    return Chart(
        figure=figure,
        title=finding,
        alt=finding,
        table=rows[["label", "step", "own_ms", "wait_ms"]],
        columns={"label": "Rank, host or stage", "step": "Step", "own_ms": "Own time, ms", "wait_ms": "Waiting for others, ms"},
        method="As profiled. Waiting is time in collectives, before their last rank joins them, in which the GPU computes nothing; own time is the rest of "
        "the device step. A row of several ranks shows the largest value of them.",
    )


def _heat_map(values: pd.DataFrame, colour: str, *, dark: bool, **more: Any) -> go.Figure:
    """Draw ``values`` (ms) from the page's colour to ``colour``, the first row on top; ``more`` goes to Plotly's heat map."""
    figure = go.Figure(
        go.Heatmap(
            x=list(values.columns),
            y=list(values.index),
            z=values.to_numpy(),
            zmin=0,
            colorscale=[[0, PAGE.on(dark)], [1, colour]],
            colorbar={"title": {"text": "ms"}, "thickness": 12},
            **more,
        )
    )
    figure.update_yaxes(autorange="reversed", showgrid=False, automargin=True, type="category")
    figure.update_xaxes(showgrid=False, type="category")
    return figure


def _heat_finding(rows: pd.DataFrame, measure: str) -> str:
    means = rows.groupby("label", sort=False)[measure].mean()
    low, high = float(means.min()), float(means.max())
    usual = float(means.median())
    what = "waits" if measure == "wait_ms" else "takes by itself"
    if high - low <= SPREAD * float((rows["own_ms"] + rows["wait_ms"]).mean()):
        return f"Every row {what} about equally long: {fmt.duration_ms(usual)} of a profiled step"
    if len(means) == 2:
        little = "hardly" if low < HARDLY * high else fmt.duration_ms(low)
        return f"{_named(means.idxmax())} {what} {fmt.duration_ms(high)} of a profiled step, {means.idxmin()}: {little}"
    if measure == "wait_ms":
        return f"{_named(means.idxmin())} waits least, {fmt.duration_ms(low)} of a profiled step; half of the rows wait {fmt.duration_ms(usual)} or more"
    return f"{_named(means.idxmax())} takes longest by itself: {fmt.duration_ms(high)} of a profiled step, where {fmt.duration_ms(usual)} are usual"


def _named(label: object) -> str:
    text = str(label)
    return f"{text[0].upper()}{text[1:]}" if text.startswith(("rank ", "stage ")) else text


def who_waits(rows: pd.DataFrame, level: str, *, dark: bool) -> Chart:
    """Draw who waits for whom, from ``rows`` of ``analysis.ranks.heat.waits_between``."""
    sides = sorted({*rows["waiter"], *rows["late"]}, key=_by_numbers)
    values = rows.pivot(index="waiter", columns="late", values="wait_ms").reindex(index=sides, columns=sides)
    least = HARDLY * float(rows["wait_ms"].max())
    texts = values.map(lambda ms: "" if pd.isna(ms) or ms < least else f"{ms:.3g}")
    few = len(sides) <= 12
    figure = _heat_map(
        values,
        CAUSES["comm_wait"].on(dark),
        dark=dark,
        text=texts.to_numpy() if few else None,
        texttemplate="%{text}" if few else None,
        showscale=not few,
        hovertemplate="%{y} waits %{z:.3~g} ms of a step for %{x}<extra></extra>",
        xgap=1,
        ygap=1,
    )
    framed(figure, min(130 + 34 * len(sides), 560))
    figure.update_yaxes(title={"text": "waits"})
    figure.update_xaxes(title={"text": "for"})
    late = rows.groupby("late")["wait_ms"].mean()
    finding = f"{_named(late.idxmax())} is waited for longest: {fmt.duration_ms(float(late.max()))} of a step by each {level}, as profiled"
    return Chart(
        figure=figure,
        title=finding,
        alt=finding,
        table=rows,
        columns={"waiter": "Waits", "late": "For", "wait_ms": "ms per step"},
        method="For each collective, the rank that joins it last is the one that the others wait for. Only waiting without computation counts; where "
        "several ranks share a row, it is their mean. The profiler slows some hosts more than others, which shows here.",
    )


def _by_numbers(text: str) -> list[tuple[int, str]]:
    """Return what sorts names as people do: rank 2 before rank 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]


def schedule(pipeline: Pipeline, labels: list[str], *, dark: bool) -> Chart:
    """Draw what each stage of a pipeline works and waits in a step."""
    work = list(pipeline.stage_ms)
    idle = [max(pipeline.step_ms - ms, 0.0) for ms in work]
    figure = go.Figure()
    parts = (("works", work, OWNERS["tensor_core_compute"]), ("waits", idle, CAUSES["comm_wait"]))
    for verb, values, colour in parts:
        figure.add_bar(
            y=labels,
            x=values,
            orientation="h",
            marker={"color": colour.on(dark), "line": {"width": 0}},
            customdata=[f"{label} {verb} {fmt.duration_ms(ms)} of a step" for label, ms in zip(labels, values, strict=True)],
            hovertemplate="%{customdata}<extra></extra>",
        )
    framed(figure, 66 + 36 * len(labels))
    figure.update_layout(barmode="stack", bargap=0.25)
    figure.update_yaxes(autorange="reversed", showgrid=False, automargin=True, ticksuffix="  ")
    figure.update_xaxes(title={"text": "ms per step, ≈ without the profiler"}, rangemode="tozero", zeroline=False)
    finding = (
        f"The pipeline's stages wait {fmt.share(pipeline.bubble_share)} of a step; {pipeline.microbatches} microbatches on "
        f"{len(labels)} equal stages would wait {fmt.share(pipeline.ideal_share)}"
    )
    return Chart(
        figure=figure,
        title=finding,
        alt=finding,
        table=pd.DataFrame({"stage": labels, "work_ms": work, "wait_ms": idle}),
        columns={"stage": "Stage", "work_ms": "Works, ms per step", "wait_ms": "Waits, ms per step"},
        method="With p equal stages and m microbatches each stage waits (p − 1) ÷ (m + p − 1) of a step while the pipeline fills and drains. A slower stage "
        "holds the others up for each microbatch. What is left is launches, transfers and late ranks.",
        legend=tuple(LegendEntry(verb, colour.on(dark)) for verb, _, colour in parts),
    )
