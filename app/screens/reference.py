"""The Reference screen: definitions of all metrics, owners, causes, rules and columns, from the code."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence

import streamlit as st

from sawtooth.analysis.knowledge.causes import CAUSES
from sawtooth.analysis.knowledge.owners import OWNERS
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.app.format import clean
from sawtooth.app.page import cards
from sawtooth.app.page.cards import Definition
from sawtooth.app.page.reference import Column, RuleDocumentation, columns, found_in, matching, rules

BETTER = {"higher": "↑", "lower": "↓", "neither": ""}
METRIC, OWNER, RULE, COLUMN = "Metrics", "Parts of a step", "Rules", "Columns"
MAX_COMPLETE_HITS = 5  # Hits. So few are shown with their complete text.
_FIRST_SENTENCE = re.compile(r"(?<=\.) ")


def main() -> None:
    """Show the page."""
    head = st.container()
    searched = st.text_input(
        "Search", placeholder="Search, for example MFU, exposed, launch", key="q", bind="query-params", width=480,
        label_visibility="collapsed",
    )  # fmt: skip
    metrics, owners, causes, of_rules = (_with_text(rows, searched) for rows in (_metrics(), _owners(), _causes(), _rules()))
    of_columns = [
        column for column in columns() if matching([(column.table, column.column, column.type, column.comment)], searched)
    ]
    counts = {METRIC: len(metrics), OWNER: len(owners) + len(causes), RULE: len(of_rules), COLUMN: len(of_columns)}
    with head, st.container(key="reference_head"):
        _head(searched, counts)
    names = {name: f"{name} {count}" for name, count in counts.items()}
    first = next((name for name, count in counts.items() if count), METRIC)
    metric_tab, owner_tab, rule_tab, column_tab = st.tabs(list(names.values()), default=names[first])
    with metric_tab:
        if metrics:
            cards.small("↑ higher is better, ↓ lower is better. Click a line for the complete definition and its source.")
        _entries(metrics)
    with owner_tab:
        if owners:
            cards.title("Owners: every nanosecond of a GPU has one, the first whose condition is true")
            _entries(owners)
        if causes or not owners:
            cards.title("Causes: time in which the GPU does not compute has exactly one")
            _entries(causes)
    with rule_tab:
        _entries(of_rules)
    with column_tab:
        _tables(of_columns, is_open=bool(searched.strip()))


def _head(searched: str, counts: Mapping[str, int]) -> None:
    if searched.strip():
        cards.headline(found_in(clean(searched.strip(), 40), counts.values()))
        return
    cards.headline("What each number means", "The same in the app, the command line and the JSON report.")


def _with_text(rows: Sequence[Definition], searched: str) -> list[Definition]:
    return [row for row in rows if matching([(row.name, row.detail, *(text for _, text in row.paragraphs))], searched)]


def _metrics() -> list[Definition]:
    return [
        _definition(m.label, [("", m.definition), ("Source", m.source), ("Key", f"`{m.key}`")], " ".join(filter(None, (m.unit, BETTER[m.better]))))
        for m in METRICS.values()
    ]  # fmt: skip


def _owners() -> list[Definition]:
    return [_definition(owner.label, [("", owner.meaning), ("Key", f"`{owner.key}`")]) for owner in OWNERS]


def _causes() -> list[Definition]:
    return [
        _definition(
            c.label, [("", c.proof), ("What to do", c.to_do), ("Who can change it", f"{c.changed_by}."), ("Key", f"`{c.key}`")]
        )
        for c in CAUSES
    ]


def _rules() -> list[Definition]:
    return [_rule(rule) for rule in rules()]


def _rule(rule: RuleDocumentation) -> Definition:
    paragraphs = [(heading, " ".join(textwrap.dedent(text).split())) for heading, text in rule.sections]
    return Definition(rule.title, "", paragraphs[0][1], [*paragraphs, ("Key", f"`{rule.slug}`")])


def _definition(label: str, paragraphs: list[tuple[str, str]], detail: str = "") -> Definition:
    return Definition(
        f"{label[0].upper()}{label[1:]}", detail, _FIRST_SENTENCE.split(paragraphs[0][1], maxsplit=1)[0], paragraphs
    )


def _tables(shown: Sequence[Column], *, is_open: bool) -> None:
    """Show columns by table; a table opens to its columns."""
    if not shown:
        cards.small("No text matches.")
        return
    cards.small("A recording is a DuckDB file that any client can open. A derived file has what the analysis computed from it.")
    by_table: dict[str, list[tuple[str, str, str]]] = {}
    for column in shown:
        by_table.setdefault(f"{column.table} ({column.file})", []).append((column.column, column.type.lower(), column.comment))
    cards.tables([(name, rows, is_open) for name, rows in by_table.items()])


def _entries(rows: Sequence[Definition]) -> None:
    if rows:
        cards.entries(rows, is_open=len(rows) <= MAX_COMPLETE_HITS)
    else:
        cards.small("No text matches.")


main()
