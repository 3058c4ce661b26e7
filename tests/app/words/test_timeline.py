"""Tests of the Timeline's first sentences: one cause has one number, as on the Verdict.

It covers the steps that have causes.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sawtooth.analysis.tables.timeline import TimelineSpan, ViewSums
from sawtooth.app.words import causes, timeline
from tests.support.run_results import run_of

LOST = (("exposed_memcpy", "host_sync", 70.0), ("idle", "host_sync", 52.0), ("idle", "launch_bound", 1.0))
COUNTED = [TimelineSpan(100, 200), TimelineSpan(200, 300)]


@pytest.mark.parametrize(
    ("view", "where"),
    [
        (TimelineSpan(0, 400), " in 2 counted steps"),
        (TimelineSpan(100, 300), ""),
        (TimelineSpan(50, 150), " in 1 counted step"),
    ],
)
def test_a_cause_includes_copies_during_its_lost_time(view: TimelineSpan, where: str) -> None:
    most = timeline.most_lost(ViewSums(0.65, LOST), view, COUNTED, {})
    assert most is not None
    assert most.sentence.replace("\xa0", " ") == "the host waiting for a result (sync): 122 ms"
    assert most.remark.replace("\xa0", " ") == f"122 ms lost{where}, 70.0 ms of it copying"


def test_unexplained_copies_and_idle_time_are_separate() -> None:
    lost = (("exposed_memcpy", "unattributed", 4.0), ("idle", "unattributed", 3.0), ("idle", "host_sync", 2.0))
    most = timeline.most_lost(ViewSums(0.9, lost), COUNTED[0], COUNTED, {})
    assert most is not None
    assert most.sentence.replace("\xa0", " ") == "copies not overlapped by compute: 4.00 ms"
    assert most.remark.replace("\xa0", " ") == "4.00 ms lost, part of its busy time"


def test_an_unexplained_copy_has_general_advice_on_copies() -> None:
    row = {"owner": "exposed_memcpy", "cause": "unattributed", "start": 0, "dur": 700_000, "next_start": None, "evidence": None}
    answer = timeline.gap(row, replace(run_of(ledger=[("other_compute", None, 1_000_000, 1.0)]), findings=[]), 0)
    assert answer["to_do"] == causes.HELPS["exposed_memcpy"], "more records explain no copy that was recorded"


@pytest.mark.parametrize("phase", ["optimizer", "forward", None])
def test_python_inside_the_optimizer_gets_no_advice_on_logging(phase: str | None) -> None:
    row = {
        "owner": "idle",
        "cause": "python_host",
        "start": 0,
        "dur": 700_000,
        "next_start": None,
        "evidence": None,
        "phase": phase,
    }
    answer = timeline.gap(row, replace(run_of(ledger=[("other_compute", None, 1_000_000, 1.0)]), findings=[]), 0)
    assert ("logging" in answer["to_do"]) == (phase != "optimizer")


def test_without_causes_no_cause_is_named() -> None:
    assert timeline.most_lost(ViewSums(0.9, (("idle", None, 4.0),)), COUNTED[0], COUNTED, {}) is None
    assert timeline.most_lost(ViewSums(1.0, ()), COUNTED[0], COUNTED, {}) is None
