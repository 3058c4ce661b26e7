"""Reference: every metric, rule and column, printed from the code that uses them."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from analysis.metrics import METRICS
from app import cards
from app.reference_tables import columns, rules, search

WAYS = {"higher": "higher is better", "lower": "lower is better", "neither": ""}


def main() -> None:
    """Show the page."""
    cards.headline(
        f"{len(METRICS)} metrics, {len(rules())} rules and {len(columns())} columns, as the code defines them",
        "Every number of the app, the command line and the JSON report is one of these.",
    )
    wanted = st.text_input("Search", placeholder="for example MFU, exposed, launch, gpu_ops", key="q", bind="query-params")
    metrics, found_rules, found_columns = st.tabs(["Metrics", "Rules", "Columns"])
    with metrics:
        _metrics(wanted)
    with found_rules:
        _rules(wanted)
    with found_columns:
        _columns(wanted)


def _metrics(wanted: str) -> None:
    table = pd.DataFrame(
        [(m.label, m.key, m.unit, WAYS[m.better], m.definition, m.source) for m in METRICS.values()],
        columns=["metric", "key", "unit", "better", "definition", "source"],
    )
    _table(search(table, wanted), "Metrics with unit, definition and source")


def _rules(wanted: str) -> None:
    shown = 0
    for rule in rules():
        if wanted.lower() in f"{rule.slug} {rule.text}".lower():
            shown += 1
            with st.expander(rule.title):
                for heading, text in rule.sections:
                    cards.title(heading)
                    st.text(text)
    if not shown:
        cards.small("No rule has that in its text." if rules() else "This version has no rules yet.")


def _columns(wanted: str) -> None:
    table = pd.DataFrame(
        [(c.file, c.table, c.column, c.type, c.comment) for c in columns()],
        columns=["file", "table", "column", "type", "meaning"],
    )
    _table(search(table, wanted), "Columns of recordings and derived files")


def _table(table: pd.DataFrame, alt: str) -> None:
    if table.empty:
        cards.small("Nothing here has that in its text.")
        return
    st.dataframe(
        table,
        hide_index=True,
        alt=alt,
        height="content" if len(table) <= 30 else 640,
        row_height=None,
        column_config={
            "definition": st.column_config.TextColumn(width="large"),
            "meaning": st.column_config.TextColumn(width="large"),
        },
    )


main()
