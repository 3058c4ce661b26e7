"""Check whether telemetry fits a trace: the same time, host and GPU model."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import duckdb

from sawtooth.ingest.database import first_row, read_rows
from sawtooth.ingest.manifest import SAME_TIME_NS, Manifest, RecordingRef
from sawtooth.ingest.schema import DataFolder

GENERIC_HOSTS = ("localhost", "127.0.0.1")  # Names that identify no host.
MIN_OVERLAP_SHARE = 0.5  # Telemetry that covers a smaller share of the trace may be from another session.
ANOTHER_JOB = "So it may be of another job, and is not used for the profiled steps."


@dataclass(frozen=True)
class _Origin:
    """The time, host and GPUs of a recording.

    ``span`` is in Unix ns. Unknown values are None. Unknown ``gpus`` (model names) are an empty set.
    """

    span: tuple[int, int] | None
    host: str | None
    gpus: frozenset[str]


def misfits(folder: DataFolder, run: Manifest, new_ids: Collection[str]) -> list[str]:
    """Return a sentence for each telemetry recording that does not fit any trace of ``run``.

    Only recordings in ``new_ids`` are checked. A recording does not fit if its time, host or GPU model differs from every
    trace.
    """
    telemetry = [ref for ref in run.telemetry if ref.kind == "telemetry" and ref.id in new_ids]
    traces = [origin for ref in run.traces if telemetry and (origin := _origin(folder, ref)) is not None]
    if not traces:
        return []
    origins = [(ref, _origin(folder, ref)) for ref in telemetry]
    reasons = [(ref, _reason(origin, traces)) for ref, origin in origins if origin is not None]
    return [f"{ref.source_name}: {reason}. {ANOTHER_JOB}" for ref, reason in reasons if reason is not None]


def sampled_during(folder: DataFolder, run: Manifest, ref: RecordingRef) -> str | None:
    """Return the host on which ``ref`` was sampled during a trace of ``run``; None if that is not certain.

    ``ref`` and the trace must have a host and absolute times, and must not have different GPU models.
    """
    sampled = _origin(folder, ref)
    if sampled is None or sampled.host is None or sampled.span is None or _without_domain(sampled.host) in GENERIC_HOSTS:
        return None
    for trace in (_origin(folder, trace_ref) for trace_ref in run.traces):
        if trace is None or trace.host is None or trace.span is None:
            continue
        if _without_domain(trace.host) != _without_domain(sampled.host):
            continue
        overlap = min(sampled.span[1], trace.span[1]) - max(sampled.span[0], trace.span[0])
        may_be_same_gpus = not (sampled.gpus and trace.gpus) or bool(sampled.gpus & trace.gpus)
        if may_be_same_gpus and overlap >= MIN_OVERLAP_SHARE * (trace.span[1] - trace.span[0]):
            return _without_domain(sampled.host)
    return None


def _without_domain(host: str) -> str:
    """Return a host's name without the domain, which only some tools write. An IP address stays unchanged."""
    return host.lower() if re.fullmatch(r"[0-9.]+|.*:.*", host) else host.lower().split(".")[0]


def _reason(telemetry: _Origin, traces: list[_Origin]) -> str | None:
    spans = [trace.span for trace in traces]
    if telemetry.span is not None and None not in spans:
        first, last = telemetry.span
        before, after = min(((span[0] - last, first - span[1]) for span in spans if span is not None), key=max)
        if max(before, after) >= SAME_TIME_NS:
            relation = "end more than a minute before" if before > after else "begin more than a minute after"
            return f"its samples {relation} the trace"
    hosts = {trace.host for trace in traces}
    if telemetry.host is not None and None not in hosts and telemetry.host not in hosts:
        return f"it was sampled on {telemetry.host}, and the trace was recorded on {', '.join(sorted(filter(None, hosts)))}"
    gpus = frozenset().union(*(trace.gpus for trace in traces))
    if telemetry.gpus and all(trace.gpus for trace in traces) and not telemetry.gpus & gpus:
        return f"it is of {', '.join(sorted(telemetry.gpus))}, and the trace of {', '.join(sorted(gpus))}"
    return None


def _origin(folder: DataFolder, ref: RecordingRef) -> _Origin | None:
    """Return the origin of a recording, on its corrected clock; None if it cannot be read."""
    if (row := _stored_origin(folder.recording_file(ref.id))) is None:
        return None
    clock, origin = row
    shift = ref.offset_ns or 0
    is_absolute = origin.span is not None and (clock == "unix" or ref.offset_ns is not None)
    span = (origin.span[0] + shift, origin.span[1] + shift) if origin.span is not None and is_absolute else None
    return replace(origin, span=span, host=ref.host or origin.host)


@lru_cache(maxsize=4096)
def _stored_origin(file: Path) -> tuple[str, _Origin] | None:
    """Return the clock and the origin of a recording as stored in its file, which never changes."""
    try:
        row = first_row(file, "SELECT clock, first_ns, last_ns, host FROM recording")
        names = read_rows(file, "SELECT DISTINCT name FROM devices WHERE name IS NOT NULL")
    except duckdb.Error:
        return None
    if row is None:
        return None
    clock, first, last, host = row
    span = (first, last) if first is not None and last is not None else None
    return str(clock), _Origin(span, host, frozenset(name for (name,) in names))
