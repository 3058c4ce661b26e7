"""Tests that every metric, column and rule is documented."""

from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.app.page.reference import HEADINGS, columns, rules


def test_every_metric_is_defined_in_words() -> None:
    for metric in METRICS.values():
        assert metric.definition.endswith("."), metric.key
        assert metric.source.endswith("."), metric.key
        assert metric.better in ("lower", "higher", "neither")


def test_every_column_of_the_store_has_a_comment() -> None:
    assert len(columns()) > 150
    assert [f"{c.table}.{c.column}" for c in columns() if not c.comment.strip()] == []


def test_every_rule_says_what_why_what_to_do_and_when_it_is_wrong() -> None:
    for rule in rules():
        headings = [heading for heading, _ in rule.sections]
        assert headings == list(HEADINGS), rule.slug
        assert all(text for _, text in rule.sections), rule.slug
