"""Time spans of the calls or GPU operations that a finding's change names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sawtooth.analysis.replay.edits import WithoutCalls, WithoutHostCause, WithoutWaits
from sawtooth.analysis.run.model import Finding
from sawtooth.analysis.store.library import Recording

_IN_CALLS = """
SELECT min(g.start_ns), max(g.end_ns) FROM gaps g LEFT JOIN gpu_ops n ON n.gpu_op_id = g.next_gpu_op_id
WHERE g.device = $device AND list_contains($causes, g.cause)
    AND (g.call_id IN (SELECT unnest($calls::BIGINT[])) OR n.call_id IN (SELECT unnest($calls::BIGINT[])))
GROUP BY g.gap ORDER BY 1"""
_OPERATIONS = "SELECT gpu_op_id, start_ns, start_ns + dur_ns FROM gpu_ops WHERE device = $device ORDER BY start_ns, gpu_op_id"


def with_change_spans(recording: Recording, device: int, finding: Finding) -> Finding:
    """Return the finding with the spans of the calls or GPU operations that its change names.

    For calls, these are the intervals of lost time in them. For GPU operations, these are the times of consecutive named operations.
    A finding without spans is shown at all lost time of its causes.
    """
    if finding.spans or not finding.explains.causes:
        return finding
    waits = _calls(finding, WithoutWaits, WithoutCalls)
    operations = {op for edit in finding.edits for op in getattr(edit, "ops", ())}
    calls = waits or (() if operations else _calls(finding, WithoutHostCause))
    if calls:
        parameters = {"device": device, "causes": list(finding.explains.causes), "calls": list(calls)}
        return replace(finding, spans=tuple((int(start), int(end)) for start, end in recording.rows(_IN_CALLS, parameters)))
    return replace(finding, spans=_operation_groups(recording, device, operations)) if operations else finding


def _calls(finding: Finding, *kinds: type[WithoutWaits | WithoutCalls | WithoutHostCause]) -> tuple[int, ...]:
    return tuple(call for edit in finding.edits if isinstance(edit, kinds) for call in edit.calls or ())


def _operation_groups(recording: Recording, device: int, operations: set[int]) -> tuple[tuple[int, int], ...]:
    """Return start and end of each group of consecutive ``operations`` on the device."""
    ids, starts, ends = np.array(recording.rows(_OPERATIONS, {"device": device}), np.int64).reshape(-1, 3).T
    is_own = np.isin(ids, np.array(sorted(operations), np.int64))
    first = np.flatnonzero(is_own & ~np.concatenate([[False], is_own[:-1]]))
    return tuple(
        (int(starts[at]), int(ends[at : at + length].max()))
        for at, length in zip(first, np.diff([*np.cumsum(is_own)[first] - 1, int(is_own.sum())]), strict=True)
    )
