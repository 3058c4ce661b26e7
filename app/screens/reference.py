"""Reference: every metric, rule and column, printed from the code that uses them."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from sawtooth.analysis.knowledge.causes import CAUSES
from sawtooth.analysis.knowledge.owners import OWNERS
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.app.page import cards
from sawtooth.app.page.reference import columns, matching, rules

WAYS = {"higher": "higher is better", "lower": "lower is better", "neither": ""}


def main() -> None:
    """Show the page."""
    cards.headline(
        f"{len(METRICS)} metrics, {len(rules())} rules and {len(columns())} columns, as the code defines them",
        "Every number of the app, the command line and the JSON report is one of these.",
    )
    wanted = st.text_input("Search", placeholder="for example MFU, exposed, launch, gpu_ops", key="q", bind="query-params")
    metrics, lost_time, rule_tab, column_tab = st.tabs(["Metrics", "Owners and causes", "Rules", "Columns"])
    with metrics:
        _metrics(wanted)
    with lost_time:
        _lost_time(wanted)
    with rule_tab:
        _rules(wanted)
    with column_tab:
        _columns(wanted)


def _metrics(wanted: str) -> None:
    rows = [
        (m.label, f"{m.definition} Source: {m.source} {_unit(m.unit, WAYS[m.better])}", f"`{m.key}`") for m in METRICS.values()
    ]
    _table(("Metric", "Definition", "Key in the report"), rows, wanted, "Metrics")


def _unit(unit: str, better: str) -> str:
    return f"Unit: {unit}{f', {better}' if better else ''}."


def _lost_time(wanted: str) -> None:
    cards.small("Every nanosecond of a device has one owner, the first of these that runs.")
    _table(("Owner", "It owns an instant where", "Key"), [(o.label, o.meaning, f"`{o.key}`") for o in OWNERS], wanted, "Owners")
    cards.small("Time of an owner that does not compute has one cause.")
    rows = [(c.label, c.proof, f"{c.to_do} Who can change it: {c.who}.", f"`{c.key}`") for c in CAUSES]
    _table(("Cause", "What proves it", "What to do", "Key"), rows, wanted, "Causes of lost time")


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
        cards.small("No rule matches." if rules() else "This version has no rules yet.")


def _columns(wanted: str) -> None:
    cards.small("A recording is a DuckDB file that any client can open; the derived file is what analysis made of it.")
    rows = [(f"{c.table}.{c.column}", c.comment, c.type.lower(), c.file) for c in columns()]
    _table(("Column", "Meaning", "Type", "File"), rows, wanted, "Columns of recordings and derived files")


def _table(headers: tuple[str, ...], rows: Sequence[tuple[str, ...]], wanted: str, caption: str) -> None:
    matches = matching(rows, wanted)
    if matches:
        cards.table(headers, matches, caption)
    else:
        cards.small("No text matches.")


main()
