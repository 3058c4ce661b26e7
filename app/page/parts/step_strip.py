"""The step strip: one column per step, coloured by the owners of its time.

A click on a column opens the step on the timeline.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pandas as pd
import streamlit as st

from sawtooth.analysis.knowledge.owners import OWNER_KEYS
from sawtooth.analysis.run.model import RankResult
from sawtooth.analysis.tables import steps
from sawtooth.analysis.tables.timeline import TimelineSpan
from sawtooth.app import format as fmt
from sawtooth.app import templates
from sawtooth.app.page import current_result, frame
from sawtooth.app.page.timeline import views
from sawtooth.app.theme import colour_of

TIMELINE_SPAN_RATIO = 1.1  # Time span that the timeline shows, relative to the step's length.
MAX_LABELLED_COLUMNS = 8  # Columns. With more of them, a column is too narrow for text.
MIN_VISIBLE_SHARE = 0.01  # Share of the full scale. A smaller part is less than half a pixel high and is not drawn.
SLOW_STEP_RATIO = 1.5  # Times the median. The sentence counts the steps that take longer than this.
_HTML = templates.pieces("step_strip.html")


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs={RankResult: current_result.key_of})
def _owners(rank: RankResult) -> pd.DataFrame:
    with current_result.opened(rank) as view:
        return steps.owners(view)


def show(run: str, rank: RankResult, *, name: str = "profiled steps", longest_ms: float | None = None) -> None:
    """Show the strip of one device; shows nothing if there are fewer than two steps.

    A step of ``longest_ms`` has the full height. Give two strips the same value to make them comparable.
    """
    top = longest_ms or longest_step_ms(rank)
    if _owners(rank)["step"].nunique() > 1:
        st.html(_html(run, rank, top, frame.is_dark(), name))


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs={RankResult: current_result.key_of})
def _html(run: str, rank: RankResult, top: float, dark: bool, name: str) -> str:
    """Return the strip's HTML; it is cached, because hundreds of steps take 0.3 s."""
    table = _owners(rank)
    extent, is_crowded = views.extent(rank.recording_id), table["step"].nunique() > MAX_LABELLED_COLUMNS
    columns = [_column(run, rows, top, extent, is_crowded=is_crowded, dark=dark) for _, rows in table.groupby("step")]
    counted = table[table["counted"].astype(bool)]
    lengths = (counted if len(counted) else table).groupby("step")["ms"].sum()
    between = fmt.span_ms(float(lengths.min()), float(lengths.max()))
    length = rank.steps["end_ns"] - rank.steps["start_ns"]
    if (every := steps.stride(int((length > 0).sum()))) > 1:
        name += f", the longest of every {every}"
    return str(_HTML.strip(name, columns, f"{name}: {sentence(table)}", between))


def longest_step_ms(rank: RankResult) -> float:
    """Return the longest step of the strip in ms, or 0 without steps."""
    table = _owners(rank)
    return float(table.groupby("step")["ms"].sum().max()) if len(table) else 0.0


def sentence(table: pd.DataFrame) -> str:
    """Return the text of the strip, such as "4 profiled steps, 753 to 795 ms"."""
    lengths = table.groupby("step")["ms"].sum()
    low, high, middle = float(lengths.min()), float(lengths.max()), float(lengths.median())
    steps = f"{fmt.many(len(lengths), 'profiled step')}, {fmt.span_ms(low, high)}"
    slow = int((lengths > SLOW_STEP_RATIO * middle).sum())
    stands_out = f"; {slow} take{'s' if slow == 1 else ''} more than {SLOW_STEP_RATIO:g}\u2009× the median" if slow else ""
    return f"{steps}{stands_out}. Select one to see it on the timeline."


def _column(run: str, rows: pd.DataFrame, top: float, extent: TimelineSpan, *, is_crowded: bool, dark: bool) -> dict[str, Any]:
    first = rows.iloc[0]
    span = TimelineSpan(int(first["start_ns"]), int(first["end_ns"]))
    t0, t1 = span.zoomed(TIMELINE_SPAN_RATIO, extent).relative_ms(extent.start_ns)
    ms = float(rows["ms"].sum())
    ordered = sorted(rows.to_dict("records"), key=lambda row: (-OWNER_KEYS.index(str(row["owner"])), str(row["cause"])))
    parts = [
        (colour_of(str(row["owner"]), row["cause"] if pd.notna(row["cause"]) else None), float(row["ms"])) for row in ordered
    ]
    longest_part, most_ms = max(parts, key=lambda part: part[1])
    left_out = "" if first["counted"] else ", not counted"
    return {
        "address": f"timeline?{urlencode({'run': run, 't0': f'{t0:.6f}', 't1': f'{t1:.6f}'})}",
        "counted": bool(first["counted"]),
        "label": "" if first["counted"] or is_crowded else "not counted",
        "words": f"step {int(first['step'])}: {fmt.duration_ms(ms)}, most of it {longest_part.label} ({fmt.duration_ms(most_ms)}){left_out}",
        "height": f"{max(ms / top, 0.04):.1%}" if top else "4%",
        "parts": [
            {"texture": colour.texture, "weight": round(1000 * part / ms, 1), "colour": colour.on(dark)}
            for colour, part in parts
            if part >= MIN_VISIBLE_SHARE * top or part == most_ms
        ],
    }
