"""Tests of a finding's link to the timeline: it shows a whole step with the pattern."""

from __future__ import annotations

from typing import Any

import pytest

from sawtooth.analysis.run.model import Finding
from sawtooth.analysis.tables.timeline import TimelineSpan
from sawtooth.app.page.parts.findings import whole_step
from tests.support.actions import act
from tests.support.run_results import run_of

# three steps of 1 ms each
RANK = run_of(ledger=[("other_compute", None, 3_000_000, 1.0)], counted=3).lead


def at(*starts_ns: int) -> list[dict[str, Any]]:
    return [{"start_ns": start, "end_ns": start + 5_000} for start in starts_ns]


@pytest.mark.parametrize(
    ("evidence", "span"),
    [
        (at(100_000, 1_200_000, 1_500_000), TimelineSpan(1_000_000, 2_000_000)),  # Two of three lie in the second step.
        (at(4_000_000, 4_100_000), TimelineSpan(4_000_000, 4_105_000)),  # All places are outside the counted steps.
        ([{"calls": 3}], None),
    ],
)
def test_the_step_with_most_of_the_evidence_is_shown(evidence: list[dict[str, Any]], span: TimelineSpan | None) -> None:
    assert RANK is not None
    finding = Finding("a", "warning", "a", act("Do it."), "high", evidence=tuple(evidence))
    assert whole_step(RANK, finding) == span
