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

BETTER = {"higher": "higher is better", "lower": "lower is better", "neither": ""}
METRIC, OWNER, RULE, COLUMN = "Metrics", "Owners and causes", "Rules", "Columns"
Rows = list[tuple[str, str, str, str]]


def main() -> None:
    """Show the page."""
    head = st.container()
    wanted = st.text_input(
        "Search", placeholder="for example MFU, exposed, launch, gpu_ops", key="q", bind="query-params", width=480
    )
    metrics, owners, causes, of_columns = (matching(rows, wanted) for rows in (_metrics(), _owners(), _causes(), _columns()))
    of_rules = [rule for rule in rules() if matching([(rule.slug, rule.text)], wanted)]
    counts = {METRIC: len(metrics), OWNER: len(owners) + len(causes), RULE: len(of_rules), COLUMN: len(of_columns)}
    with head, st.container(key="reference_head"):
        _head(wanted, counts)
    first = next((name for name, count in counts.items() if count), METRIC)
    metric_tab, owner_tab, rule_tab, column_tab = st.tabs(list(counts), default=first)
    with metric_tab:
        _entries(metrics)
    with owner_tab:
        if owners:
            cards.title("Owners of a GPU's time")
            cards.small("Every nanosecond of a device has one owner: the first one whose condition is true.")
            cards.entries(owners)
        if causes or not owners:
            cards.title("Causes of lost time")
            cards.small("Time of an owner that does not compute has exactly one cause.")
            _entries(causes)
    with rule_tab:
        _rules(of_rules)
    with column_tab:
        cards.small(
            "A recording is a DuckDB file that any client can open. The derived file contains what the analysis computed from it."
        )
        _entries(of_columns)


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
        (m.label, " · ".join(filter(None, (f"`{m.key}`", m.unit, BETTER[m.better]))), m.definition, f"Source: {m.source}")
        for m in METRICS.values()
    ]


def _owners() -> Rows:
    return [(owner.label, f"`{owner.key}`", owner.meaning, "") for owner in OWNERS]


def _causes() -> Rows:
    return [(c.label, f"`{c.key}`", c.proof, f"What to do: {c.to_do} Who can change it: {c.who}.") for c in CAUSES]


def _columns() -> Rows:
    return [(f"{c.table}.{c.column}", f"{c.type.lower()} · {c.file}", c.comment, "") for c in columns()]


def _rules(shown: Sequence[RuleDocumentation]) -> None:
    for rule in shown:
        with st.expander(rule.title):
            for heading, text in rule.sections:
                cards.title(heading)
                st.text(text)
    if not shown:
        cards.small("No rule matches.")


def _entries(rows: Rows) -> None:
    if rows:
        cards.entries(rows)
    else:
        cards.small("No text matches.")


main()
