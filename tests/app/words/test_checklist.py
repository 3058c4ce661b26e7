"""The checklist in words: to do, cannot be seen, in use, not there."""

from __future__ import annotations

from dataclasses import replace

from sawtooth.analysis.findings.checklist import TECHNIQUES, Checked
from sawtooth.app.words import checklist as words

CHECKED = [
    Checked(TECHNIQUES[0], "brings", "the GPU waits", "data-loader-starves-gpu", 12.0),
    Checked(TECHNIQUES[1], "not checked", "no samples of the host: `sawtooth sample`", "host-swaps"),
    Checked(TECHNIQUES[2], "done", "the trace has a pinned copy"),
    Checked(TECHNIQUES[3], "nothing", "looked for and not there"),
]


def test_what_cannot_be_seen_is_no_all_clear_and_comes_before_what_is_well():
    to_do, rest = words.groups(CHECKED)
    assert [row[1] for row in to_do] == ["saves ≈\u00a012.0\u00a0ms a step"]
    assert [(group.heading, group.unseen, group.brief) for group in rest] == [
        ("1 cannot be seen from this recording: what to record", True, False),
        ("1 in use already", False, False),
        ("1 looked for and not there: nothing to gain", False, True),
    ]
    assert rest[0].rows == [(TECHNIQUES[1].title, "No samples of the host: `sawtooth sample`.")]
    assert words.finding(CHECKED) == f"{TECHNIQUES[0].title} would save ≈\u00a012.0\u00a0ms a step."
    assert (
        words.finding([replace(CHECKED[0], status="found")]) == "No technique is known to shorten the step; 1 is worth a look."
    )
    assert words.finding(CHECKED[1:]) == "No technique of the tuning guides would shorten the step."
    assert words.title(CHECKED) == "1 technique would shorten the step; 1 in use, 1 not needed, 1 cannot be seen"


def test_the_audit_leads_with_what_the_run_s_advice_begins_with():
    """Two techniques may save the same time; the one that is the cause stands first, whatever the other promises."""
    cause = Checked(TECHNIQUES[4], "brings", "Python collects garbage", "garbage-collection", 11.9, leads=True)
    assert words.finding([*CHECKED, cause]) == f"{TECHNIQUES[4].title} would save ≈\u00a011.9\u00a0ms a step."
    assert [row[0] for row in words.rows([*CHECKED, cause])][:2] == [TECHNIQUES[4].title, TECHNIQUES[0].title]
    ceiling = replace(cause, status="found", gain_ms=None)
    assert words.finding([*CHECKED, ceiling]) == f"{TECHNIQUES[4].title}: Python collects garbage."
