"""The Reference screen: definitions of all metrics, owners, causes, rules and columns, from the code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from sawtooth.analysis.knowledge.causes import CAUSES
from sawtooth.analysis.knowledge.owners import OWNERS
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.app.format import clean
from sawtooth.app.page import cards
from sawtooth.app.page.reference import RuleDocumentation, columns, found_in, matching, rules

WAYS = {"higher": "↑", "lower": "↓", "neither": ""}  # which way is better
METRIC, OWNER, RULE, COLUMN = "Metrics", "Owners and causes", "Rules", "Columns"
Rows = list[tuple[str, ...]]


def main() -> None:
    """Show the page."""
    head = st.container()
    wanted = st.text_input("Search", placeholder="for example MFU, exposed, launch, gpu_ops", key="q", bind="query-params")
    metrics, owners, causes, of_columns = (matching(rows, wanted) for rows in (_metrics(), _owners(), _causes(), _columns()))
    of_rules = [rule for rule in rules() if matching([(rule.slug, rule.text)], wanted)]
    counts = {METRIC: len(metrics), OWNER: len(owners) + len(causes), RULE: len(of_rules), COLUMN: len(of_columns)}
    with head, st.container(key="reference_head"):
        _head(wanted, counts)
    first = next((name for name, count in counts.items() if count), METRIC)
    metric_tab, owner_tab, rule_tab, column_tab = st.tabs(list(counts), default=first)
    with metric_tab:
        _table(
            ("Metric", "What it is", "Where it comes from", "Unit, ↑ or ↓ is better", "Key in the report"), metrics, "Metrics"
        )
    with owner_tab:
        cards.small("Every nanosecond of a device has one owner: the first row whose condition is true.")
        _table(("Owner", "Condition", "Key"), owners, "Owners")
        cards.small("Time of an owner that does not compute has exactly one cause.")
        _table(("Cause", "What proves it", "What to do", "Key"), causes, "Causes of lost time")
    with rule_tab:
        _rules(of_rules)
    with column_tab:
        cards.small(
            "A recording is a DuckDB file that any client can open. The derived file contains what the analysis computed from it."
        )
        _table(("Column", "Meaning", "Type", "File"), of_columns, "Columns of recordings and derived files")


def _head(wanted: str, counts: Mapping[str, int]) -> None:
    if wanted.strip():
        cards.headline(found_in(clean(wanted.strip(), 40), counts.values()))
        return
    cards.headline(
        "What each number means",
        "These definitions come from the code. They hold for the app, the command line and the JSON report.",
    )


def _metrics() -> Rows:
    return [
        (m.label, m.definition, m.source, "\u00a0".join(filter(None, (m.unit, WAYS[m.better]))), f"`{m.key}`")
        for m in METRICS.values()
    ]


def _owners() -> Rows:
    return [(owner.label, owner.meaning, f"`{owner.key}`") for owner in OWNERS]


def _causes() -> Rows:
    return [(c.label, c.proof, f"{c.to_do} Who can change it: {c.who}.", f"`{c.key}`") for c in CAUSES]


def _columns() -> Rows:
    return [(f"{c.table}.{c.column}", c.comment, c.type.lower(), c.file) for c in columns()]


def _rules(shown: Sequence[RuleDocumentation]) -> None:
    for rule in shown:
        with st.expander(rule.title):
            for heading, text in rule.sections:
                cards.title(heading)
                st.text(text)
    if not shown:
        cards.small("No rule matches.")


def _table(headers: tuple[str, ...], rows: Rows, caption: str) -> None:
    if rows:
        with st.container(key=f"reference_rows_{headers[0]}"):  # a phone shows the cells of a row below each other
            cards.table(headers, rows, caption)
    else:
        cards.small("No text matches.")


main()
