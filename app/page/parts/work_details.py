"""Details of one row of the Work screen: its parts, and the changes that affect it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from sawtooth.analysis.findings.gpu_work import GpuWork, Grouping, grouped_rows, key_columns
from sawtooth.analysis.run.model import Finding, RankResult, RunResult
from sawtooth.app import format as fmt
from sawtooth.app.charts import rankings
from sawtooth.app.page import cards, frame, panel
from sawtooth.app.page.parts import breakdown, first_change, kernel_drawer, source_lines
from sawtooth.app.words import categories
from sawtooth.app.words import run as words

# The groupings by which the details of a row are divided, if they are recorded.
PARTS: Mapping[Grouping, tuple[Grouping, ...]] = {
    "kernel": ("module", "phase"),
    "operator": ("kernel", "shape", "module"),
    "shape": ("kernel", "module"),
    "module": ("operator", "phase"),
    "class": ("module", "operator"),
    "phase": ("operator", "category"),
    "category": ("kernel", "operator"),
}
PART_SHOWN = 8  # Rows of a table of parts. The others add up to a few percent.
TITLES: Mapping[Grouping, str] = {
    "kernel": "Kernels", "operator": "Operators", "shape": "Operators and shapes", "module": "Modules", "phase": "Phases", "category": "Categories",
}  # fmt: skip

NOUNS: Mapping[Grouping, str] = {
    "kernel": "Kernel", "operator": "Operator", "shape": "Operator", "module": "Module", "phase": "Phase", "category": "Category",
}  # fmt: skip


def show(
    row: pd.Series, work: GpuWork, by: Grouping, rank: RankResult, result: RunResult, changes: Sequence[tuple[int, Finding]]
) -> None:
    """Show one row of ``grouped``, the numbered findings about it (``changes``), and its parts."""
    chosen = work.rows
    for column in key_columns(by):
        chosen = chosen[chosen[column] == row[column]]
    name = _named(by, str(row["name"]))
    cards.title(f"What to do about {name}")
    first_change.link_changes(changes, result)
    if by == "kernel":
        kernel_drawer.show(row, rank, result, named=bool(changes))
    elif not changes:
        cards.text(show_other_work(float(row["ms"]), rank.metrics["step_time_ms"].value))
        if row["category"] == "communication":
            frame.link("communication", "Which collectives are exposed", run=result.manifest.id, icon=":material/lan:")
        elif row["ms"]:
            frame.link("efficiency", "How close operators come to the peak", run=result.manifest.id, icon=":material/speed:")
        else:
            frame.link("idle", "What the GPU waits for", run=result.manifest.id, icon=":material/hourglass_empty:")
    if by in ("operator", "shape"):
        source_lines.show(rank, str(row["name"]), words.unit_of(rank))
    parts = [part for part in PARTS[by] if work.knows(part)]
    if len(chosen) and parts:
        with st.grid(min_column_width=440, gap="medium"):
            for part in parts:
                with st.container():
                    _part(grouped_rows(work, part, chosen), part, rank)


def _named(by: Grouping, name: str) -> str:
    if by == "category":
        return categories.in_words(name)
    return rankings.short_name(name, kernel_drawer.TITLE_SHOWN) if by == "kernel" else fmt.clean(name.rsplit(" / ", 1)[-1], 60)


def show_other_work(ms: float, step_ms: float | None) -> str:
    """Describe work without a finding, which takes ``ms`` per profiled step."""
    if not ms:
        return "It launches no GPU work itself. Its host time matters only where the GPU waits for the host."
    share = f", {fmt.share(ms / step_ms)} of a profiled step" if step_ms else ""
    if step_ms and ms < kernel_drawer.MIN_NAMED_SHARE * step_ms:
        return f"Nothing to gain here: it takes {fmt.duration_ms(ms)}{share}."
    return f"It takes {fmt.duration_ms(ms)}{share}. There is no finding about it."


def _part(rows: pd.DataFrame, part: Grouping, rank: RankResult) -> None:
    if len(rows) == 1:  # A table with one row of 100 % is not needed.
        heading, column = ("Input shapes", "shapes") if part == "shape" else (NOUNS[part], "name")
        if text := fmt.clean(str(rows[column].iloc[0]), 120):
            cards.small(f"{heading}: {text}")
        return
    only_shapes = part == "shape" and rows["name"].nunique() == 1  # the title above names the operator
    heading, title = ("Input shapes", "Shapes") if only_shapes else (NOUNS[part], TITLES[part])
    cards.title(f"{title}: {fmt.count(len(rows))}")
    total_ms = float(rows["ms"].sum())
    shown = rows.head(PART_SHOWN)
    names = shown["shapes"] if only_shapes else _names(shown, part)
    cells = [
        (
            fmt.clean(str(name), 100) or fmt.MISSING,
            fmt.duration_ms(row["ms"]),
            fmt.share(row["ms"] / total_ms) if total_ms else fmt.MISSING,
            fmt.count(row["launches_per_step"]),
        )
        for name, row in zip(names, shown.to_dict("records"), strict=True)
    ]
    unit = words.unit_of(rank).removeprefix("ms ")
    cards.table((heading, f"Time {unit}", "Share", "Launches"), cells, title, figures=True)
    if len(rows) > PART_SHOWN:
        cards.small(f"The {PART_SHOWN} longest of {fmt.count(len(rows))}; the CSV has all.")
    panel.csv_button(rows.drop(columns=["changes"]), f"work-part-{part}")


def _names(rows: pd.DataFrame, part: Grouping) -> list[str]:
    shapes = rows["shapes"].astype(str) if part == "shape" else [""] * len(rows)
    return [f"{name} {of}".strip() for name, of in zip(breakdown.short_names(rows, part), shapes, strict=True)]
