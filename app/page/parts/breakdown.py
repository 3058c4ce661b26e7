"""What the Kernels, Operators and Modules screens share: all columns or few, a table whose rows can be chosen, bars beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from sawtooth.analysis.run.model import RankResult
from sawtooth.app import format as fmt
from sawtooth.app.charts import rankings
from sawtooth.app.page import cards, panel
from sawtooth.app.words import categories
from sawtooth.app.words import run as words

NAME_SHOWN, NAME_WIDTH = 35, 265  # characters of a kernel's name that its column shows whole, on a narrow page too; pixels
TEN_ROWS = 392  # pixels: under them what is chosen begins on the first screen


def all_columns() -> bool:
    """Let the viewer ask for every column, kept in the address; the first ones answer the question and fit a laptop's page."""
    return st.toggle("All columns", key="columns", bind="query-params")


def matching(rows: pd.DataFrame, searched: str | None, columns: Sequence[str]) -> pd.DataFrame:
    """Return the rows that hold every word of the search in one of ``columns`` (those that are there)."""
    for word in (searched or "").split():
        matches = pd.Series(False, index=rows.index)
        for column in columns:
            if column in rows:
                matches |= rows[column].str.contains(word, case=False, regex=False)
        rows = rows[matches]
    return rows.reset_index(drop=True)


def head(sentence: str, under: str, metrics: tuple[str, ...], method: str, key: str) -> None:
    """Show the finding, a line of small print and how it is computed."""
    cards.headline(sentence)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        cards.small(under)
        panel.explain(metrics, method, key)


def table(
    rows: pd.DataFrame, columns: Mapping[str, Any], order: Sequence[str], key: str, alt: str, *, height: int = TEN_ROWS
) -> int | None:
    """Show ``rows`` with the columns of ``order`` that hold anything, and their CSV; return the position of the chosen row. ``height``: pixels."""
    event: Any = st.dataframe(
        panel.in_percent(rows),
        hide_index=True,
        column_order=[c for c in order if c in rows and rows[c].notna().any()],
        column_config=dict(columns),
        on_select="rerun",
        selection_mode="single-row",
        key=key,
        height=height if len(rows) > 8 else "auto",
        placeholder="",
        alt=alt,
    )
    panel.csv_button(rows, key)
    chosen = event.selection.rows
    return int(chosen[0]) if chosen and chosen[0] < len(rows) else None


def kernels(rows: pd.DataFrame, rank: RankResult, key: str, what: str) -> None:
    """Show which kernels ``what`` launched: kernel, ms, launches_per_step, tensor_cores, category."""
    cards.title(f"{fmt.clean(what, 60)} launches {fmt.count(len(rows))} kernel{'s' if len(rows) > 1 else ''}")
    short = rankings.told_apart(rows["kernel"].astype(str).tolist(), NAME_SHOWN)
    rows = rows.assign(short=short, category=rows["category"].map(categories.named))
    columns = {
        "short": "Kernel",
        "ms": words.unit_of(rank),
        "launches_per_step": "Launches per step",
        "tensor_cores": "Tensor cores",
        "category": "Category",
    }
    panel.table(rows, columns, f"{key}-kernels")
