"""Tests of the places that a finding shows on the timeline.

They are the operations that its change names, or the waits within its calls.
"""

from __future__ import annotations

import pytest

from sawtooth.analysis.findings.model import operations_of
from sawtooth.analysis.run.model import Finding
from sawtooth.analysis.store.library import Recording
from tests.support.findings_of import NAMES, library, result_of


def named(finding: Finding) -> set[int]:
    return {call for edit in finding.edits for call in getattr(edit, "calls", ()) or ()}


def foreign(recording: Recording, device: int, finding: Finding) -> list[tuple[int, int]]:
    """Return evidence and places of ``finding`` without its operations and without its waiting calls."""
    rows = {(row["start_ns"], row["end_ns"]) for row in finding.evidence if row.get("start_ns")}
    shown = [(int(start), int(end)) for start, end in rows | set(finding.spans)]
    own = recording.rows(
        "WITH mine AS (SELECT unnest($ops::BIGINT[]) AS gpu_op_id), calls AS (SELECT unnest($calls::BIGINT[]) AS call_id) "
        "SELECT start_ns, start_ns + dur_ns FROM gpu_ops WHERE gpu_op_id IN (SELECT * FROM mine) OR call_id IN (SELECT * FROM calls) UNION ALL "
        "SELECT start_ns, start_ns + dur_ns FROM runtime_calls WHERE call_id IN (SELECT * FROM calls) UNION ALL "
        "SELECT g.start_ns, g.end_ns FROM gaps g LEFT JOIN gpu_ops n ON n.gpu_op_id = g.next_gpu_op_id WHERE g.device = $device "
        "AND (g.call_id IN (SELECT * FROM calls) OR n.call_id IN (SELECT * FROM calls) OR n.gpu_op_id IN (SELECT * FROM mine))",
        {"device": device, "ops": sorted(operations_of(finding)), "calls": sorted(named(finding))},
    )
    return [(start, end) for start, end in shown if not any(a < end and b > start for a, b in own)]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", NAMES)
def test_every_place_is_an_operation_or_wait_of_its_finding(name: str) -> None:
    result = result_of(name)
    if result.lead is None:
        return
    with library().open(result.lead.recording_id) as recording:
        for finding in result.findings:
            if operations_of(finding) or named(finding):
                assert foreign(recording, result.lead.device, finding) == [], finding.rule


def test_a_finding_on_the_optimizer_leads_to_its_steps() -> None:
    result = result_of("adam_single")
    finding = next(f for f in result.findings if f.rule == "optimizer-not-fused")
    with library().open(result.lead.recording_id) as recording:
        launched = recording.rows(
            "SELECT count(DISTINCT o.start_ns), min(g.start_ns), max(g.start_ns + g.dur_ns) FROM gpu_ops g JOIN runtime_calls c USING (call_id) "
            "JOIN named_cpu_ops o ON o.name LIKE 'Optimizer.step#%' AND c.start_ns BETWEEN o.start_ns AND o.start_ns + o.dur_ns AND c.thread_id = o.thread_id"
        )
    ((steps, first, last),) = launched
    assert len(finding.spans) == len(result.lead.counted) == steps - 1  # One place for each counted step.
    assert all(first <= start < end <= last for start, end in finding.spans)
