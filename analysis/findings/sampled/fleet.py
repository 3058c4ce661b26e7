"""All sampled GPUs of a run on a common time axis, the worst first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sawtooth.analysis.findings.sampled.from_telemetry import places_of
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.store.library import Library, Recording
from sawtooth.analysis.telemetry.clock import AS_RECORDED, SampleClock
from sawtooth.analysis.telemetry.diagnosis.device_samples import BUSY
from sawtooth.analysis.telemetry.diagnosis.diagnose import SEVERITIES
from sawtooth.analysis.telemetry.summary import DeviceTelemetry

MAX_CELLS = 240  # One cell takes about four pixels of a laptop's page.
MIN_SAMPLES_PER_CELL = 2  # A cell with one sample would often be empty, because samples are not exactly periodic.


@dataclass(frozen=True)
class FleetRow:
    """One GPU with its host, its most severe finding and the percentage of time in use.

    ``node_label`` is its name if one file has several hosts. ``cells`` are means of the activity in percent, None if a cell
    has no samples.
    """

    sampled: DeviceTelemetry
    host: str | None
    node_label: str | None
    finding: Finding | None
    in_use_pct: float | None
    cells: tuple[float | None, ...]

    @property
    def label(self) -> str:
        """The GPU's name in the run."""
        if self.node_label is not None:
            return self.node_label
        return f"{self.host} GPU {self.sampled.device}" if self.host else f"GPU {self.sampled.device}"


@dataclass(frozen=True)
class Fleet:
    """The GPUs, the worst first, and the time from the first to the last sample of any of them."""

    rows: tuple[FleetRow, ...]
    start_ns: int
    end_ns: int


def fleet_of(result: RunResult, library: Library) -> Fleet | None:
    """Return all sampled GPUs of a run side by side; None for a single one."""
    sampled = [device for device in result.telemetry.devices if not device.profiled]
    if len(sampled) < 2:
        return None
    start, end = min(device.first_ns for device in sampled), max(device.last_ns for device in sampled)
    refs = {ref.id: ref for ref in result.manifest.telemetry}
    several = len({device.recording_id for device in sampled}) > 1
    period_s = max((device.period_s[column] for device in sampled for column in BUSY if column in device.period_s), default=1.0)
    count = int(np.clip((end - start) / max(MIN_SAMPLES_PER_CELL * period_s * 1e9, 1.0), 1, MAX_CELLS))
    rows: list[FleetRow] = []
    for recording_id in dict.fromkeys(device.recording_id for device in sampled):
        with library.open(recording_id, derived=False) as recording:
            cells = _cells(recording, start, end, count, result.telemetry.clocks.get(recording_id, AS_RECORDED))
            places = places_of(recording)
        for device in sampled:
            if device.recording_id != recording_id:
                continue
            host = (device.host or refs[recording_id].source_name) if several else None
            values = cells.get(device.device, (None,) * count)
            finding = _finding(result.findings, device.device, recording_id)
            rows.append(FleetRow(device, host, places.get(str(device.device)), finding, device.works_pct, values))
    return Fleet(tuple(sorted(rows, key=_severity_order)), start, end)


def _severity_order(row: FleetRow) -> tuple[int, float]:
    severity = SEVERITIES.index(row.finding.severity) if row.finding is not None else len(SEVERITIES)
    return severity, row.in_use_pct if row.in_use_pct is not None else 0.0


def _finding(findings: Sequence[Finding], device: int, recording_id: str) -> Finding | None:
    """Return the most severe finding about this GPU; of equal ones, the one about the fewest GPUs."""
    candidates = [
        finding
        for finding in findings
        for row in finding.evidence[:1]
        if finding.observed and device in row.get("devices", ()) and row.get("recording") == recording_id
    ]
    return min(
        candidates, key=lambda finding: (SEVERITIES.index(finding.severity), len(finding.evidence[0]["devices"])), default=None
    )


def _cells(recording: Recording, start: int, end: int, count: int, clock: SampleClock) -> dict[int, tuple[float | None, ...]]:
    """Return the mean activity of each GPU in ``count`` equal time spans, by one query."""
    available = recording.columns("samples")
    busy = [column for column in BUSY if column in available]
    first = recording.rows("SELECT min(time_ns) FROM samples")[0][0]
    if not busy or first is None:
        return {}
    # The offset of the clock is taken at the first sample. It is constant within a recording unless the clock is stretched.
    offset = int(clock.times(np.array([first], np.int64))[0]) - int(first)
    activity = f"avg(coalesce({', '.join(busy)}))"
    rows = recording.rows(
        f"SELECT device, least(((time_ns + ? - ?) * {count}) // ?, {count - 1})::INTEGER AS cell, {activity} "
        f"FROM samples GROUP BY 1, 2 HAVING {activity} IS NOT NULL",
        [offset, start, max(end - start, 1)],
    )
    cells: dict[int, list[float | None]] = {}
    for device, cell, mean in rows:
        if cell >= 0:  # Samples before the common start have no cell.
            cells.setdefault(int(device), [None] * count)[int(cell)] = round(float(mean), 1)
    return {device: tuple(values) for device, values in cells.items()}
