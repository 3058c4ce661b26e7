"""The ledgers of several ranks, one below the other."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from sawtooth.analysis.knowledge.causes import BETWEEN_RANKS
from sawtooth.analysis.run.job import Pipeline
from sawtooth.app import format as fmt
from sawtooth.app.charts.base import Chart, entry_of, with_layout
from sawtooth.app.charts.poster_bars import NAMED_FROM, BarChart, bars_of
from sawtooth.app.theme import ACCENT, CAUSES, OWNERS, PAGE, Colour, ink_on, mix

# The ledger's parts in the order of a bar: useful time, communication by cause (if the collectives of several ranks show it), then
# idle time by cause.
PARTS: dict[str, Colour] = {
    **{owner: colour for owner, colour in OWNERS.items() if owner != "idle"},
    **{cause: CAUSES[cause] for cause in reversed(BETWEEN_RANKS)},
    **{f"idle_{cause}": colour for cause, colour in CAUSES.items()},
    # The heat map and who_waits count only waits in collectives under this cause's name, so this one needs another label.
    "idle_comm_wait": replace(CAUSES["comm_wait"], label="idle behind another stream", texture="|"),
    "idle": OWNERS["idle"],
}

EXTRA_COLUMNS = {
    "overlap_share": "Communication overlapped by compute, as profiled",
    "last_share": "Collectives it joins last, as profiled",
}
MIN_NUMBERED_SHARE = 0.01  # Share of a step, or of another row's value: a smaller amount gets no number.


def labels_of(rows: pd.DataFrame) -> list[str]:
    """Return the label of each row, such as "rank 1, device 1", or "device 1" if ranks are unknown.

    It is "trace 1" if several devices have the same number, as in the map.
    """
    unknown = rows["rank"].isna()
    ambiguous = bool(rows.loc[unknown, "device"].duplicated().any())
    return [
        f"rank {int(rank)}, device {device}" if pd.notna(rank) else f"trace {number}" if ambiguous else f"device {device}"
        for number, rank, device in zip(rows.index, rows["rank"], rows["device"], strict=True)
    ]


def title(rows: pd.DataFrame, *, numbered: bool = True) -> str:
    """Return the finding: the rank that waits most, else the range of exposed communication.

    Without ``numbered``, the waiting time is left out. The page then describes the delay by another rank, which is a different
    number.
    """
    wait_ms, step_ms = rows.get("comm_wait_ms"), rows["step_ms"]
    if wait_ms is not None and wait_ms.max() >= MIN_NUMBERED_SHARE * step_ms.max():
        slowest = wait_ms.idxmax()
        label = dict(zip(rows.index, labels_of(rows), strict=True))[slowest].split(",")[0]
        if not numbered:
            labels = [other.split(",")[0] for other in labels_of(rows) if other.split(",")[0] != label]
            return f"{_capitalize(label)} waits {f'for {labels[0]}' if len(labels) == 1 else 'most for other ranks'}"
        return f"{_capitalize(label)} waits most for other ranks: {fmt.duration_ms(float(wait_ms[slowest]))} of each step of {fmt.duration_ms(float(step_ms[slowest]))}"
    if wait_ms is not None:
        return "No rank waits for others for more than 1\u00a0% of a step"
    exposed = rows.get("exposed_comm_ms")
    if exposed is None or not exposed.max():
        return "No rank waits in communication"
    return f"Exposed communication takes {fmt.duration_ms(float(exposed.min()))} to {fmt.duration_ms(float(exposed.max()))} of a step"


def side_by_side(rows: pd.DataFrame, finding: str, unit: str, *, dark: bool) -> BarChart:
    """Return one bar per device from the ledger's ms (columns ``{part}_ms``, see PARTS).

    ``unit`` is the unit of the times. The columns of EXTRA_COLUMNS appear in the table if ``rows`` has them.
    """
    rows = _small_together(rows.assign(label=labels_of(rows)))
    parts = [part for part in PARTS if f"{part}_ms" in rows and rows[f"{part}_ms"].sum() > 0]
    bars_of_ranks = [(str(row["label"]), {part: float(row[f"{part}_ms"]) for part in parts}) for row in rows.to_dict("records")]
    columns = {
        "label": "Rank",
        "step_ms": "Step, ms",
        **{f"{part}_ms": f"{PARTS[part].label}, {unit.partition(',')[0]}" for part in parts},
    }
    columns |= {column: heading for column, heading in EXTRA_COLUMNS.items() if column in rows}
    alt = "; ".join(
        f"{label}: " + ", ".join(f"{PARTS[part].label} {fmt.duration_ms(ms)}" for part, ms in of.items())
        for label, of in bars_of_ranks
    )
    return BarChart(
        title=finding,
        bars=bars_of(
            [(label.split(",")[0], [(PARTS[part], ms) for part, ms in of.items()]) for label, of in bars_of_ranks], dark=dark
        ),
        legend=tuple(
            entry_of(PARTS[part], dark) for part in parts if rows[f"{part}_ms"].max() >= NAMED_FROM * rows["step_ms"].max()
        ),
        unit=unit,
        alt=f"{finding}. {alt}",
        table=rows,
        columns=columns,
        metrics=("exposed_comm_share", "gpu_busy_share"),
        method="Each bar is the ledger of one device over its own steady window. A collective ends for all ranks together, so a rank that joins early "
        "spends more time in it. Its time beyond the shortest on any rank is waiting, where nothing is computed at the same time. Without the "
        "profiler, all ranks have the job's step time. The part of it that a rank does not need for itself is waiting.",
    )


def _small_together(rows: pd.DataFrame) -> pd.DataFrame:
    """Return ``rows`` with the small causes of idle time added up as ``idle_ms``.

    A cause is small if no device loses MIN_NUMBERED_SHARE of a step to it. Nobody reads a legend with a dozen names.
    """
    small = [
        column
        for column in rows
        if str(column).startswith("idle")
        and str(column).endswith("_ms")
        and rows[column].max() < MIN_NUMBERED_SHARE * rows["step_ms"].max()
    ]
    return rows.drop(columns=small).assign(idle_ms=rows[small].sum(axis=1)) if small else rows


MEASURES = {"own_ms": "Own time", "wait_ms": "Waiting for others"}
NUMBERED, NUMBERED_STEPS = 96, 12  # Squares, and steps beside each other, up to which each square contains its number.
SCALED_ROWS = 5  # Rows: with fewer, the colour scale would be higher than the picture.
MIN_RANGE = 0.1  # Share of the largest value: a smaller range gets no strong colour difference.
MARGIN_BELOW = 0.15  # Share of the range: added below the smallest value, so that it is not white.
LONG_STEP_RATIO = 1.5  # Times the usual step: the text mentions a longer longest step.
UNDER_TEXT = 0.45  # Share of a colour mixed with the page's colour. Black and white text remain readable on the mixture.
EQUAL_ROWS_SPREAD = 0.03  # Share of the median: rows that differ by less count as equal.


def heat(rows: pd.DataFrame, measure: str, *, dark: bool) -> Chart:
    """Draw ranks (or hosts, or stages) × steps from ``rows`` of ``analysis.ranks.heatmap.pooled_heat``.

    A selected point has the rank in ``customdata``.
    """
    labels, steps = list(dict.fromkeys(rows["label"])), list(dict.fromkeys(rows["step"]))
    values = rows.pivot(index="label", columns="step", values=measure).reindex(index=labels, columns=steps)
    colour = (CAUSES["comm_wait"] if measure == "wait_ms" else ACCENT).on(dark)
    is_small = values.size <= NUMBERED and len(steps) <= NUMBERED_STEPS
    texts = values.map(lambda ms: "" if pd.isna(ms) else fmt.duration_ms(ms)) if is_small else None
    figure = _heat_map(values, colour, _ends(values), dark=dark, texts=texts, hoverinfo="skip")
    # A heat map has no selectable points, so each square gets an invisible one.
    carried = rows[["rank", "own_ms", "wait_ms"]].astype(float).round(3)
    figure.add_scatter(
        x=rows["step"],
        y=rows["label"],
        mode="markers",
        marker={"opacity": 0, "size": 14, "symbol": "square"},
        customdata=carried.to_numpy().tolist(),  # The browser does not return an array as a list.
        hovertemplate="%{y}, %{x}<br>%{customdata[1]:.3~g} ms by itself, %{customdata[2]:.3~g} ms waiting<extra></extra>",
    )
    with_layout(figure, min(90 + (34 if is_small else 22) * len(labels), 560))
    figure.update_layout(hovermode="closest", hoverdistance=-1)  # A click anywhere in a square selects its point.
    figure.update_yaxes(nticks=24)
    figure.update_xaxes(title={"text": "step"})
    finding = _heat_finding(rows, measure)
    return Chart(
        figure=figure,
        title=finding,
        alt=finding,
        table=rows[["label", "step", "own_ms", "wait_ms"]],
        columns={"label": "Rank, host or stage", "step": "Step", "own_ms": "Own time, ms", "wait_ms": "Waiting for others, ms"},
        method="As profiled. Waiting is time in collectives before their last rank joins, in which the GPU computes nothing. Own time is the rest of "
        "the device step. A row of several ranks shows the largest value of them.",
    )


def _ends(values: pd.DataFrame) -> tuple[float, float]:
    """Return the values of the palest and the darkest colour.

    With few rows, the colour shows the size of a value. With many rows, it shows which row differs.
    """
    high = float(values.max(axis=None))
    if len(values) < SCALED_ROWS:
        return 0.0, high
    low = min(float(values.min(axis=None)), (1 - MIN_RANGE) * high)
    return max(low - MARGIN_BELOW * (high - low), 0.0), high


def _heat_map(
    values: pd.DataFrame, colour: str, ends: tuple[float, float], *, dark: bool, texts: pd.DataFrame | None, **options: Any
) -> go.Figure:
    """Draw ``values`` (ms) as a heat map with the first row on top, and ``texts`` in its squares.

    The first of ``ends`` has the page's colour and the second has ``colour``. ``options`` is passed to Plotly.
    """
    if texts is not None:
        colour = mix(PAGE.on(dark), colour, UNDER_TEXT)  # The texts must be readable in the page's text colour.
        options |= {
            "text": texts.to_numpy(),
            "texttemplate": "%{text}",
            "textfont": {"color": ink_on(PAGE.on(dark))},
            "xgap": 2,
            "ygap": 2,
        }
    figure = go.Figure(
        go.Heatmap(
            x=list(values.columns),
            y=list(values.index),
            z=values.to_numpy(),
            zmin=ends[0],
            zmax=ends[1],
            colorscale=[[0, PAGE.on(dark)], [1, colour]],
            colorbar={"title": {"text": "ms"}, "thickness": 12},
            showscale=texts is None and len(values) >= SCALED_ROWS,
            **options,
        )
    )
    figure.update_yaxes(autorange="reversed", showgrid=False, automargin=True, type="category")
    figure.update_xaxes(showgrid=False, type="category")
    return figure


def _heat_finding(rows: pd.DataFrame, measure: str) -> str:
    means = rows.groupby("label", sort=False)[measure].mean()
    median = float(means.median())
    what = "waits" if measure == "wait_ms" else "takes by itself"
    if means.max() - means.min() <= EQUAL_ROWS_SPREAD * float((rows["own_ms"] + rows["wait_ms"]).mean()):
        return f"In the profile all {what.replace('waits', 'wait').replace('takes', 'take')} about equally long: {fmt.duration_ms(median)} of a step"
    if measure == "wait_ms" and len(means) > 2:
        shortest_row = means.idxmin()
        return f"In the profile {shortest_row} waits least: {fmt.duration_ms(float(means[shortest_row]))} of a step, where {fmt.duration_ms(median)} are usual"
    longest_row = means.idxmax()
    steps = rows.loc[rows["label"] == longest_row, measure]
    comparison = (
        f"; {means.idxmin()}: {fmt.duration_ms(float(means.min()))}"
        if len(means) == 2
        else f", where {fmt.duration_ms(median)} are usual"
    )
    if len(means) == 2 and means.min() < MIN_NUMBERED_SHARE * means.max():
        comparison = f"; {means.idxmin()}: hardly"
    longest = (
        f", {fmt.duration_ms(float(steps.max()))} in its longest" if steps.max() > LONG_STEP_RATIO * steps.median() else ""
    )
    what = "waits" if measure == "wait_ms" else "takes longest by itself"
    return f"In the profile {longest_row} {what}: {fmt.duration_ms(float(means[longest_row]))} of a step{longest}{comparison}"


def _capitalize(label: object) -> str:
    text = str(label)
    return f"{text[0].upper()}{text[1:]}" if text.startswith(("rank ", "stage ", "trace ", "device ")) else text


def who_waits(rows: pd.DataFrame, level: str, *, dark: bool) -> Chart:
    """Draw who waits for whom, from ``rows`` of ``analysis.ranks.heatmap.waits_between``."""
    sides = sorted({*rows["waiter"], *rows["late"]}, key=_by_numbers)
    values = rows.pivot(index="waiter", columns="late", values="wait_ms").reindex(index=sides, columns=sides)
    is_small, colour = len(sides) <= NUMBERED_STEPS, CAUSES["comm_wait"].on(dark)
    max_ms = float(rows["wait_ms"].max())
    texts = values.map(lambda ms: "" if pd.isna(ms) or ms < MIN_NUMBERED_SHARE * max_ms else fmt.number(ms))
    hover = "%{y} waits %{z:.3~g} ms of a step for %{x}<extra></extra>"
    figure = _heat_map(values, colour, (0.0, max_ms), dark=dark, texts=texts if is_small else None, hovertemplate=hover)
    with_layout(figure, min(130 + 34 * len(sides), 560))
    figure.update_yaxes(title={"text": "waits"})
    figure.update_xaxes(title={"text": "for"})
    wait_ms = rows.groupby("late")["wait_ms"].mean()
    finding = f"The others wait longest for {wait_ms.idxmax()}: {fmt.duration_ms(float(wait_ms.max()))} of a step by each {level}, as profiled"
    return Chart(
        figure=figure,
        title=finding,
        alt=finding,
        table=rows,
        columns={"waiter": "Waits", "late": "For", "wait_ms": "ms per step"},
        method="For each collective, the rank that joins it last is the one that the others wait for. Only waiting without computation counts; where "
        "several ranks share a row, it is their mean. The profiler slows some hosts more than others, and these waits include that.",
    )


def _by_numbers(text: str) -> list[tuple[int, str]]:
    """Return a sort key that puts rank 2 before rank 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]


def schedule(pipeline: Pipeline, labels: list[str], *, dark: bool) -> BarChart:
    """Return how long each stage of a pipeline works and waits in a step, as one bar per stage."""
    idle = [max(pipeline.step_ms - ms, 0.0) for ms in pipeline.stage_ms]
    works, bubble = replace(OWNERS["tensor_core_compute"], label="works"), replace(CAUSES["comm_wait"], label="bubble")
    finding = (
        f"The pipeline's bubble is {fmt.share(pipeline.bubble_share)} of a step; with {pipeline.microbatches} microbatches on "
        f"{len(labels)} equal stages it would be {fmt.share(pipeline.ideal_share)}"
    )
    segments = [
        (label, [(works, work_ms), (bubble, idle_ms)])
        for label, work_ms, idle_ms in zip(labels, pipeline.stage_ms, idle, strict=True)
    ]
    return BarChart(
        title=finding,
        bars=bars_of(segments, dark=dark),
        legend=(entry_of(works, dark), entry_of(bubble, dark)),
        unit="ms per step, ≈ without the profiler",
        alt=finding,
        table=pd.DataFrame({"stage": labels, "work_ms": pipeline.stage_ms, "bubble_ms": idle}),
        columns={"stage": "Stage", "work_ms": "Works, ms per step", "bubble_ms": "Bubble, ms per step"},
        metrics=(),
        method="The bubble is the time in which a stage's GPU does not work. With p equal stages and m microbatches it is (p − 1) ÷ (m + p − 1) of a step, while the pipeline fills and drains. A slower stage "
        "delays the others once for each microbatch. The rest is launches, transfers and stragglers.",
    )
