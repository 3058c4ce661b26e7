"""The table of the Work screen: its search, headline and columns, and its short form for a phone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from sawtooth.analysis.findings.gpu_work import Grouping
from sawtooth.app import format as fmt
from sawtooth.app import places
from sawtooth.app.charts import rankings
from sawtooth.app.page import cards, frame, panel
from sawtooth.app.page.parts import work_map
from sawtooth.app.theme import MUTED, OWNERS
from sawtooth.app.words import categories

# A name of up to NAME_SHOWN characters fits into a column of NAME_WIDTH pixels, even on a narrow page.
NAME_SHOWN, NAME_WIDTH = 40, 290
ON_A_PHONE = 12  # Rows that a phone shows; a search finds the others.
ROW = "row"  # Address parameter: the row whose details are open.
BAR_WIDTH = 84  # Pixels of the column of bars.
_BAR = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' width='{0}' height='24' viewBox='0 0 {0} 24'%3E"
    "%3Crect y='7' width='{0}' height='10' rx='2' fill='%23{1}' fill-opacity='.16'/%3E"
    "%3Crect y='7' width='{3:.1f}' height='10' rx='2' fill='%23{2}'/%3E%3C/svg%3E"
)
TEN_ROWS = 392  # Pixels. With this height, the details of the chosen row begin on the first screen.


def all_columns() -> bool:
    """Return whether to show all columns; the viewer's choice is stored in the address.

    By default only the most important columns are shown, which fit on a laptop's page.
    """
    return st.toggle("All columns", key="columns", bind="query-params")


def matching(rows: pd.DataFrame, searched: str | None, columns: Sequence[str]) -> pd.DataFrame:
    """Return the rows that contain every word of the search in one of ``columns`` that exist."""
    for word in (searched or "").split():
        matches = pd.Series(False, index=rows.index)
        for column in columns:
            if column in rows:
                matches |= rows[column].str.contains(word, case=False, regex=False)
        rows = rows[matches]
    return rows.reset_index(drop=True)


def short_names(rows: pd.DataFrame, by: Grouping) -> list[str]:
    """Return short names of a grouping's rows, which fit into a narrow column."""
    names = rows["name"].astype(str).tolist()
    if by == "category":
        return list(map(categories.in_words, names))
    if by == "module":
        return [fmt.clean(name.rsplit(" / ", 1)[-1], 60) for name in names]
    return rankings.distinct_names(names, NAME_SHOWN)


def bars(rows: pd.DataFrame) -> list[str]:
    """Return a bar for the share of each row, in the colour of its owner, as the address of a picture.

    Streamlit's own bars have one colour, which elsewhere means tensor-core compute.
    """
    largest, dark = float(rows["share"].max()) or 1.0, frame.is_dark()
    track, length = MUTED.on(dark)[1:], BAR_WIDTH - 20  # 20 is the cell's padding.
    return [
        _BAR.format(length, track, OWNERS[owner].on(dark)[1:], max(length * share / largest, 1.0))
        for owner, share in zip(rows["owner"], rows["share"], strict=True)
    ]


def head(sentence: str, under: str, metrics: tuple[str, ...], method: str, key: str) -> None:
    """Show a headline, a line of small print, and the explanation of the method."""
    cards.headline(sentence)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        cards.small(under)
        panel.explain(metrics, method, key)


def table(rows: pd.DataFrame, columns: Mapping[str, Any], order: Sequence[str], key: str, alt: str) -> int | None:
    """Show ``rows`` with the non-empty columns of ``order``; return the position of the chosen row.

    A button offers the CSV.
    """
    event: Any = st.dataframe(
        panel.in_percent(rows),
        hide_index=True,
        column_order=[c for c in order if c in rows and rows[c].notna().any()],
        column_config=dict(columns),
        on_select="rerun",
        selection_mode="single-row",
        key=key,
        height=TEN_ROWS if len(rows) > 8 else "auto",
        placeholder="",
        alt=alt,
    )
    panel.csv_button(rows, key)
    chosen = event.selection.rows
    return int(chosen[0]) if chosen and chosen[0] < len(rows) else None


def show_for_phone(rows: pd.DataFrame, by: Grouping, run: str, caption: str) -> None:
    """Show the first rows, each in two lines, for a phone."""
    largest, first = float(rows["share"].max()) or 1.0, rows.head(ON_A_PHONE)
    parameters = {**st.query_params.to_dict(), "run": run}
    keys = [work_map.key_of(by, row) for row in first.to_dict("records")]
    lines = [
        cards.NarrowRow(
            name=name,
            address=places.address("work", {**parameters, ROW: key}),
            chosen=key == (st.query_params.get(ROW) or keys[0]),
            value=f"{fmt.duration_ms(row['ms'])} · {fmt.share(row['share'])}",
            bar=f"{row['share'] / largest:.1%}",
            colour=OWNERS[row["owner"]].on(frame.is_dark()),
            kind=categories.in_words(row["category"]) if by != "category" and isinstance(row["category"], str) else "",
        )
        for name, key, row in zip(short_names(first, by), keys, first.to_dict("records"), strict=True)
    ]
    with st.container(key="work_narrow"):
        cards.narrow_rows(lines, caption)
        if (further_count := len(rows) - len(lines)) > 0:
            cards.small(f"{fmt.count(further_count)} smaller rows are not shown. Search for a name, or use the CSV.")
