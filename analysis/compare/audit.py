"""The audit of a pair: each line with the readings of both runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sawtooth.analysis.metrics.reading import Reading, lowest_trust, missing
from sawtooth.analysis.run.audit import AuditRow, audit
from sawtooth.analysis.run.model import RunResult

NOT_COUNTED = "The other side counts its work in another unit."


@dataclass(frozen=True)
class AuditChange:
    """One line of the audit on both sides."""

    row: AuditRow
    a: Reading
    b: Reading

    @property
    def change(self) -> float | None:
        """B − A; None if either reading is missing."""
        return self.b.value - self.a.value if self.a.value is not None and self.b.value is not None else None


def audit_of_pair(a: Sequence[RunResult], b: Sequence[RunResult]) -> tuple[AuditChange, ...]:
    """Return the lines of both audits.

    A side with several runs gets the means of its runs.
    """
    run_a, run_b = _side(a), _side(b)
    not_counted = missing(NOT_COUNTED)
    rows = {**{key: row for key, (row, _) in run_a.items()}, **{key: row for key, (row, _) in run_b.items()}}
    return tuple(
        AuditChange(row, run_a[key][1] if key in run_a else not_counted, run_b[key][1] if key in run_b else not_counted)
        for key, row in rows.items()
    )


def _side(runs: Sequence[RunResult]) -> dict[tuple[str, str], tuple[AuditRow, Reading]]:
    """Return the side's lines by key and unit, each with the mean of its runs' readings."""
    lines: dict[tuple[str, str], list[AuditRow]] = {}
    for run in runs:
        for row in audit(run):
            lines.setdefault((row.key, row.unit), []).append(row)
    return {key: (rows[0], _mean([row.reading for row in rows], len(runs))) for key, rows in lines.items()}


def _mean(readings: Sequence[Reading], runs: int) -> Reading:
    lacking = next((reading.why_missing for reading in readings if reading.value is None), None)
    if lacking or len(readings) < runs:
        return missing(lacking or NOT_COUNTED)
    mean = math.fsum(reading.value for reading in readings if reading.value is not None) / runs
    return Reading(mean, trust=lowest_trust(*(reading.trust for reading in readings)), notes=readings[0].notes)
