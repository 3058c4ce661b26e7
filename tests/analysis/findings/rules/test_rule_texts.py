"""Tests that every rule fires on its problem, not on a near miss, with the committed text.

A message that changed on purpose is committed anew with ``pytest tests/analysis/findings/rules --snapshot-update``. At the end of a run,
syrupy compares each unused text with every test of this module. The other tests of rules are therefore in another module.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from sawtooth.analysis.findings.checking import all_rules
from sawtooth.analysis.findings.model import Rule
from sawtooth.analysis.run.model import Finding
from tests.analysis.findings.rules.cases import CASES
from tests.support.findings_of import finding, result_of

every_rule = pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.slug)


@every_rule
def test_a_rule_fires_only_on_its_own_cases(rule: Rule, snapshot: SnapshotAssertion) -> None:
    assert rule.slug in CASES, f"{rule.slug} has no row in {Path(__file__).with_name('cases.py').name}"
    case = CASES[rule.slug]
    assert case.with_finding, f"{rule.slug} has no recording or hand-made trace that it fires on"
    assert case.without, f"{rule.slug} has no near miss"
    assert messages(rule, case.with_finding[:1]) == snapshot
    check_quiet(rule, case.without[:1])


@pytest.mark.slow
@every_rule
def test_a_rule_fires_on_all_its_cases(rule: Rule, snapshot: SnapshotAssertion) -> None:
    assert messages(rule, CASES[rule.slug].with_finding[1:]) == snapshot
    check_quiet(rule, CASES[rule.slug].without[1:])


def check_complete(found: Finding) -> None:
    assert found.evidence and found.changes and found.risk and found.prediction_note
    words = found.action.short.split()  # a headline
    assert 2 <= len(words) <= 14 and words[0][0].isupper() and words[1] not in ("it", "them", "this", "that", "these"), words
    assert all(row["end_ns"] > row["start_ns"] for row in found.evidence if row.get("start_ns") is not None)


def messages(rule: Rule, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the rule's text for each recording, after checking each finding."""
    answer = {}
    for name in names:
        found = finding(name, rule.slug)
        assert found is not None, f"{rule.slug} is quiet on {name}"
        check_complete(found)
        answer[name] = {"title": found.title, "fix": found.fix, "severity": found.severity}
    return answer


def check_quiet(rule: Rule, names: Sequence[str]) -> None:
    for name in names:
        assert finding(name, rule.slug) is None, f"{rule.slug} fires on {name}"
        unchecked = {n.rule: n.because for n in result_of(name).not_checked}
        assert rule.slug not in unchecked, f"{name} is no near miss: {unchecked[rule.slug]}"
