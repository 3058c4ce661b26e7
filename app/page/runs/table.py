"""The runs as a sortable table: step time, possible gain, and last change of each run."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import streamlit as st

from sawtooth.analysis.telemetry.sparkline import SPARKLINE_SECONDS
from sawtooth.app import format as fmt
from sawtooth.app import places
from sawtooth.app.charts import history, rankings
from sawtooth.app.page import cards, frame, panel
from sawtooth.app.runs import listing
from sawtooth.app.runs.card import Card
from sawtooth.app.runs.distinct_names import distinct_names
from sawtooth.app.theme import ACCENT
from sawtooth.ingest.manifest import Manifest

COMPARED_FROM = 3  # Runs. For two, the Compare page shows more than a chart of MFU and busy share.
RUN_CHARACTERS, LETTER_PX = 26, 7.2  # Characters of a run's name in its column, and pixels of a letter.
MIN_SHOWN_GAIN = 0.0005  # Share of the step. A smaller gain would be shown as 0.0 %.
SHARES = ("busy_share", "mfu_share")
AFTER_TAG = "after="  # The tag of a run that applied a change to another one.


def show(manifests: list[Manifest], group: str, known: Mapping[str, Card], bar: Callable[[list[Manifest]], None]) -> None:
    """Show one row per run; a click on a cell opens the run's Verdict.

    ``known`` contains the card of each run by id. ``bar`` shows actions for the selected runs.
    """
    groups = listing.grouped(manifests, group, {run: card.lost_to for run, card in known.items()})
    runs = [(name, manifest) for name, group_manifests in groups for manifest in group_manifests]
    steps = {name: ms for m in manifests if (ms := step_of(known[m.id])) is not None for name in (m.name, m.id)}
    names = distinct_names(frame.data_folder().manifests())
    rows = pd.DataFrame([_row(name, manifest, known[manifest.id], steps, names) for name, manifest in runs])
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    change_px = 230 if rows["last_change"].any() else 305
    # Streamlit cuts a text inside a word; the CSV has the complete texts.
    drawn = rows.assign(
        run=[rankings.middle(name, RUN_CHARACTERS) for name in rows["run"]],
        headline=[textwrap.shorten(line, round(change_px / LETTER_PX), placeholder=" …") for line in rows["headline"]],
    )
    columns = {
        "group": text(listing.GROUPS[group].removeprefix("By ").capitalize(), width=160),
        "run": text("Run", width=185),
        "step_ms": number("Step, ms", width=70),
        "gain_share": panel.share_bar("Sure to save", about="Share of the step that all changes together save at least"),
        "gain": text("All changes", width=95, help="How many times as fast a step is after all changes, as predicted"),
        "headline": text("First change", width=change_px),
        "busy_share": number("GPU busy", width=75),
        "mfu_share": number("MFU", width=75),
        "last_change": text("Last change", width=185),
        "utilization": st.column_config.LineChartColumn(
            "Utilization", help=f"Of the last {SPARKLINE_SECONDS} s", y_min=0, y_max=1, width=90
        ),
        "short_gpu": text("GPU", width=80),
        "tags": st.column_config.ListColumn("Tags"),
    }
    constant = {
        "group": group == "none", "short_gpu": rows["gpu"].nunique() < 2, "tags": not rows["tags"].any(), "last_change": not rows["last_change"].any(),
    }  # fmt: skip
    with st.container(key=f"runs_table_of_{len(rows)}_"):  # This key reserves the height until the table is drawn.
        event: Any = st.dataframe(
            # Digits as on every other screen: one number of decimals for all rows would write 1.07 ms as 1.1.
            panel.in_percent(drawn).style.format({"step_ms": fmt.number, **dict.fromkeys(SHARES, _percent)}, na_rep=""),
            hide_index=True,
            # Columns with the same value for all runs, the id and the day are only in the CSV.
            column_order=[c for c in columns if not constant.get(c)],
            column_config=columns,
            on_select="rerun",
            selection_mode=["multi-row", "single-cell"],
            key="runs-table",
            placeholder="",
            height="auto" if len(rows) <= 14 else panel.TALL_TABLE_PX,
            alt="The runs, one per row.",
        )
    if opened := [row for row, _ in event.selection.cells if row < len(runs)]:
        frame.switch("verdict", run=runs[opened[0]][1].id)
    with st.container(key="compare_bar"):
        bar(list({runs[i][1].id: runs[i][1] for i in event.selection.rows if i < len(runs)}.values()))
    _narrow(rows)
    panel.csv_button(rows.drop(columns=["utilization", "short_gpu"]).assign(tags=rows["tags"].map(", ".join)), "runs")
    _by_busy(rows)


def _narrow(rows: pd.DataFrame) -> None:
    """Show the runs in rows of two lines, which only a phone shows."""
    lines = [
        cards.NarrowRow(
            name=f"{row['run']} · {row['headline']}",
            address=places.address("verdict", {"run": row["id"]}),
            chosen=False,
            value=fmt.duration_ms(row["step_ms"]) if pd.notna(row["step_ms"]) else "no step time",
            bar=f"{row['gain_share']:.1%}" if pd.notna(row["gain_share"]) else "0%",
            colour=ACCENT.on(frame.is_dark()),
            kind=f"all changes {row['gain']}" if row["gain"] else "",
        )
        for row in rows.drop_duplicates("id").to_dict("records")
    ]
    with st.container(key="runs_narrow"):
        cards.small("Bar: the share of the step that all changes together save at least.")
        cards.narrow_rows(lines, "The runs: step time, certain gain, and how many times as fast a step can become")


def _by_busy(rows: pd.DataFrame) -> None:
    placed = rows.drop_duplicates("id").dropna(subset=["busy_share", "mfu_share"])
    placed = placed.reset_index(drop=True).rename(columns={"busy_share": "busy", "mfu_share": "mfu"})
    if len(placed) >= COMPARED_FROM:
        panel.show(history.mfu_by_busy(placed[["run", "busy", "mfu"]], dark=frame.is_dark()), "mfu-by-busy")


def _percent(value: float) -> str:
    return fmt.share(value / 100)


def step_of(card: Card) -> float | None:
    """Return the run's step in ms; None if it is not known."""
    value = card.readings.get("best_step_time_ms")
    return value.value if value is not None else None


def first_change(card: Card) -> str:
    """Return the run's first change; if it has none, return its headline, else what is wrong with the run."""
    return fmt.clean(card.to_do) or listing.to_do(fmt.clean(card.headline or card.problem or ""))


def _row(group: str, manifest: Manifest, card: Card, steps: Mapping[str, float], names: Mapping[str, str]) -> dict[str, Any]:
    step_ms = step_of(card)
    before = next((tag.removeprefix(AFTER_TAG) for tag in manifest.tags if tag.startswith(AFTER_TAG)), "")
    named = fmt.clean(names.get(before, before), 60)
    changed = f"{named}: {listing.change(steps[before], step_ms)}" if step_ms and before in steps else ""
    return {
        "group": group,
        "id": manifest.id,
        "run": names.get(manifest.id) or fmt.clean(manifest.name, 70),
        "step_ms": step_ms,
        "busy_share": fmt.shown_share(card.busy),
        "mfu_share": value.value if (value := card.readings.get("mfu")) else None,
        "gain_share": sure
        if card.after is not None and step_ms and (sure := 1 - card.after[2] / step_ms) > MIN_SHOWN_GAIN
        else None,
        "gain": listing.gain(step_ms, card.after) or "",
        "headline": first_change(card),
        "last_change": changed,
        "utilization": [v for v in card.utilization if v is not None] or None,  # The line of this column type cannot have gaps.
        "gpu": fmt.clean(card.gpu, 40),
        "short_gpu": listing.short_gpu(fmt.clean(card.gpu, 40)),
        "tags": [fmt.clean(tag, 40) for tag in manifest.tags],
        "added": pd.Timestamp(manifest.created_ns, tz="UTC"),
    }
