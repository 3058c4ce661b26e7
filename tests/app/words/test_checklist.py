"""Tests of the Audit's text: the Verdict's changes come first, in its order and with its numbers.

Then come techniques that are in use, that gain nothing, or that cannot be seen.
"""

from __future__ import annotations

from dataclasses import replace

from sawtooth.analysis import reading_order
from sawtooth.analysis.findings.checklist import TECHNIQUES, Checked, checklist
from sawtooth.analysis.run.model import Finding
from sawtooth.app.words import advice, headline, predicted_gain
from sawtooth.app.words import checklist as words
from tests.support.actions import act
from tests.support.findings_of import library, result_of

CHECKED = [
    Checked(TECHNIQUES[1], "not checked", "no samples of the host: `sawtooth sample`", "host-swaps"),
    Checked(TECHNIQUES[2], "done", "the trace has a pinned copy"),
    Checked(TECHNIQUES[3], "nothing", "looked for small copies and found none"),
]


def checked_of(result):
    with library().open(result.lead.recording_id) as recording:
        return checklist(result, recording)


def test_unknown_techniques_are_not_reported_as_fine():
    assert words.without_finding(CHECKED) == [
        (TECHNIQUES[2].title, "in use", "The trace has a pinned copy."),
        (TECHNIQUES[3].title, "nothing to gain", "Looked for small copies and found none."),
        (TECHNIQUES[1].title, "cannot be seen", "No samples of the host: `sawtooth sample`."),
    ]
    assert words.states(CHECKED) == "1 technique in use, 1 with nothing to gain, 1 cannot be seen"
    without = replace(CHECKED[2], status="not applicable")
    assert words.states([*CHECKED, without]).endswith("1 with nothing to gain, 1 not applicable, 1 cannot be seen")


def test_the_headline_counts_the_rows_of_the_table():
    """The headline counts changes, not techniques: two rows are two changes."""
    at_most = Finding("a", "warning", "a", act("Do it."), "medium", ceiling_ms_per_step=17.6)
    gains = Finding("b", "warning", "b", act("Do that."), "high", predicted_step_ms=50.0, predicted_speedup=2.0)
    for findings, answer in (
        ([at_most], "1 change may shorten the step"),
        ([gains, replace(gains, rule="d")], "2 changes would shorten the step"),
        ([gains, at_most], "2 changes: 1 would shorten the step, 1 may"),
    ):
        result = replace(result_of("gpt_reads"), findings=findings, plan=())
        rows = [row for row in words.to_do(result, CHECKED) if not row.is_remark]
        assert words.effect(result) == answer and len(rows) == len(findings)


def test_the_audit_lists_the_changes_like_the_verdict():
    result = result_of("gpt_reads")
    checked = checked_of(result)
    rows = words.to_do(result, checked)
    findings = advice.numbered(result)
    assert [(row.number, row.action) for row in rows] == [(number, headline.action(finding)) for number, finding in findings]
    claimed = [(row, finding) for row, (_, finding) in zip(rows, findings, strict=True) if reading_order.is_advice(finding)]
    assert len({row.technique for row, _ in claimed}) < len(claimed), "two changes of one technique, and neither is left out"
    for row, finding in claimed:
        assert (row.gain_text, row.detail) == (advice.gain_text(result, finding), predicted_gain.detail(finding))
    assert words.title(result, checked).startswith(f"{sum(not row.is_remark for row in rows)} changes")
    assert [row[1].partition(".")[0] for row in words.rows(result, checked)[: len(rows)]] == [str(row.number) for row in rows]


def test_advice_about_the_largest_loss_counts_as_a_change():
    result = replace(result_of("gpt_reads"), findings=[], plan=())
    loss = advice.advice_on_loss(result)  # The first change of the Verdict in that case.
    assert loss is not None and words.effect(result) == "1 change would shorten the step"
    assert [(row.number, row.action, row.gain_text) for row in words.to_do(result, checked_of(result))] == [
        (1, loss[0], f"saves {loss[1]}")
    ]
