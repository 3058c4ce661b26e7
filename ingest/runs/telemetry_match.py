"""Check whether telemetry fits a trace: the same time, host and GPU model."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import duckdb

from sawtooth.ingest.database import first_row, rows_of
from sawtooth.ingest.manifest import SAME_TIME_NS, Manifest, RecordingRef
from sawtooth.ingest.schema import DataFolder

EVERY_HOST = ("localhost", "127.0.0.1")  # names that identify no host
DURING = 0.5  # of the trace: telemetry that began later or ended earlier is of another session
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


def sampled_during(folder: DataFolder, run: Manifest, ref: RecordingRef) -> str | None:
    """Return the host on which ``ref`` was sampled during a trace of ``run``; None if that is not certain.

    Both recordings must name the host, have absolute times, and name no different GPU models.
    """
    sampled = _taken(folder, ref)
    if sampled is None or sampled.host is None or sampled.span is None or _short(sampled.host) in EVERY_HOST:
        return None
    for trace in (_taken(folder, own) for own in run.traces):
        if trace is None or trace.host is None or trace.span is None or _short(trace.host) != _short(sampled.host):
            continue
        both = min(sampled.span[1], trace.span[1]) - max(sampled.span[0], trace.span[0])
        alike = not (sampled.gpus and trace.gpus) or bool(sampled.gpus & trace.gpus)
        if alike and both >= DURING * (trace.span[1] - trace.span[0]):
            return _short(sampled.host)
    return None


def _short(host: str) -> str:
    """Return a host's name without its domain, which only some tools write; an address stays whole."""
    return host.lower() if re.fullmatch(r"[0-9.]+|.*:.*", host) else host.lower().split(".")[0]


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
    if (row := _facts(folder.recording_file(ref.id))) is None:
        return None
    clock, taken = row
    shift = ref.offset_ns or 0
    absolute = taken.span is not None and (clock == "unix" or ref.offset_ns is not None)
    span = (taken.span[0] + shift, taken.span[1] + shift) if taken.span is not None and absolute else None
    return replace(taken, span=span, host=ref.host or taken.host)


@lru_cache(maxsize=4096)
def _facts(file: Path) -> tuple[str, _Taken] | None:
    """Return the clock and the facts of a recording as its file has them; the file never changes."""
    try:
        row = first_row(file, "SELECT clock, first_ns, last_ns, host FROM recording")
        names = rows_of(file, "SELECT DISTINCT name FROM devices WHERE name IS NOT NULL")
    except duckdb.Error:
        return None
    if row is None:
        return None
    clock, first, last, host = row
    span = (first, last) if first is not None and last is not None else None
    return str(clock), _Taken(span, host, frozenset(name for (name,) in names))
