"""Check whether telemetry fits a trace: the same time, host and GPU model."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import duckdb

from sawtooth.ingest.database import first_row, rows_of
from sawtooth.ingest.manifest import SAME_TIME_NS, Manifest, RecordingRef
from sawtooth.ingest.schema import DataFolder

ANOTHER_JOB = "it may be of another job, and is not used for the profiled steps."


@dataclass(frozen=True)
class _Taken:
    """The time, host and GPUs of a recording.

    ``span`` (Unix ns) and ``host`` are None, and ``gpus`` empty, where not known.
    """

    span: tuple[int, int] | None
    host: str | None
    gpus: frozenset[str]


def misfits(folder: DataFolder, run: Manifest, came: Collection[str]) -> list[str]:
    """Return a sentence for each telemetry recording that does not fit any trace of ``run``.

    Only recordings among ``came`` (ids) are checked. They do not fit if their time, host or GPU differs from those of every
    trace.
    """
    came_too = [ref for ref in run.telemetry if ref.kind == "telemetry" and ref.id in came]
    traces = [taken for ref in run.traces if came_too and (taken := _taken(folder, ref)) is not None]
    if not traces:
        return []
    sampled = [(ref, _taken(folder, ref)) for ref in came_too]
    reasons = [(ref, _reason(taken, traces)) for ref, taken in sampled if taken is not None]
    return [f"{ref.source_name}: {reason}: {ANOTHER_JOB}" for ref, reason in reasons if reason is not None]


def _reason(telemetry: _Taken, traces: list[_Taken]) -> str | None:
    spans = [trace.span for trace in traces]
    if telemetry.span is not None and None not in spans:
        first, last = telemetry.span
        before, after = min(((span[0] - last, first - span[1]) for span in spans if span is not None), key=max)
        if max(before, after) >= SAME_TIME_NS:
            way = "end more than a minute before" if before > after else "begin more than a minute after"
            return f"its samples {way} the trace"
    hosts = {trace.host for trace in traces}
    if telemetry.host is not None and None not in hosts and telemetry.host not in hosts:
        return f"it was sampled on {telemetry.host}, and the trace recorded on {', '.join(sorted(filter(None, hosts)))}"
    gpus = frozenset().union(*(trace.gpus for trace in traces))
    if telemetry.gpus and all(trace.gpus for trace in traces) and not telemetry.gpus & gpus:
        return f"it is of {', '.join(sorted(telemetry.gpus))}, and the trace of {', '.join(sorted(gpus))}"
    return None


def _taken(folder: DataFolder, ref: RecordingRef) -> _Taken | None:
    """Return the facts of a recording, on its corrected clock; None where it cannot be read."""
    file = folder.recording_file(ref.id)
    try:
        row = first_row(file, "SELECT clock, first_ns, last_ns, host FROM recording")
        names = rows_of(file, "SELECT DISTINCT name FROM devices WHERE name IS NOT NULL")
    except duckdb.Error:
        return None
    if row is None:
        return None
    clock, first, last, host = row
    absolute = clock == "unix" or ref.offset_ns is not None
    shift = ref.offset_ns or 0
    span = (first + shift, last + shift) if absolute and first is not None and last is not None else None
    return _Taken(span, ref.host or host, frozenset(name for (name,) in names))
