"""Read the structured log of torch.compile into recordings with the table ``compile_events``.

``TORCH_TRACE=FOLDER python train.py`` writes the log. A line such as ``V1122 04:25:10.720000 20723 torch/_dynamo/x.py:50]
{"artifact": {…}, "frame_id": 0, "has_payload": "…"}`` begins an entry. Lines that begin with a tab are the entry's payload. Most
payloads are graphs and generated code, which are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from sawtooth.ingest.decode import NULL
from sawtooth.ingest.errors import ImportDiagnostic, SourceError
from sawtooth.ingest.source import Source
from sawtooth.ingest.telemetry.registry import lines
from sawtooth.ingest.typed import from_json
from sawtooth.ingest.writer import Writer

ENTRY = re.compile(rb"(?:\[rank(\d{1,6})\]:)?[VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ [^ ]{1,500}\] (\{.*)", re.DOTALL)
# Unix time of an event, in µs. The times at the beginning of lines are not used, because they have no year and no time zone.
CLOCK = re.compile(rb'\t"ts": (\d{16})')
STORED_EVENTS = (b'"dynamo_graph_break_reason"', b'"recompile_reasons"', b'compilation_metrics": {')
PAYLOAD_LINES, TEXT_LENGTH = 200, 500  # Limits of stored lines per payload, and of characters per text.
MAX_ENTRIES = 1_000_000  # Limit of stored entries, so that a hostile file cannot fill the memory.
PLACE = re.compile(r"in user code at (.{1,400}):(\d{1,7})$", re.MULTILINE)
REASON_ENDS = re.compile(r"\n\s*(?:Explanation: |Developer debug context|User code traceback|Traceback )")
REASON_TITLE = re.compile(r"Graph Break Reason:(?: Encountered graph break when attempting to trace [^\n]*)?", re.IGNORECASE)
HINT = re.compile(r"^\s*Hint: (.*)$", re.MULTILINE)


class _Artifact(msgspec.Struct):
    name: str = ""


class _Metrics(msgspec.Struct):
    compile_id: str | None = None
    co_name: str | None = None
    co_filename: str | None = None
    co_firstlineno: int | None = None
    start_time: float | None = None
    entire_frame_compile_time_s: float | None = None
    duration_us: float | None = None
    dynamo_cumulative_compile_time_us: float | None = None
    fail_reason: str | None = None

    @property
    def dur_ns(self) -> int | None:
        """Compile time in ns; each version of PyTorch writes it in another field."""
        frame_s = self.entire_frame_compile_time_s
        frame_us = None if frame_s is None else frame_s * 1e6
        durations_us = (self.duration_us, self.dynamo_cumulative_compile_time_us, frame_us)
        us = next((duration_us for duration_us in durations_us if duration_us is not None), None)
        return round(us * 1000) if us is not None and 0 <= us < 1e12 else None


class _Entry(msgspec.Struct):
    artifact: _Artifact | None = None
    compilation_metrics: _Metrics | None = None
    bwd_compilation_metrics: _Metrics | None = None
    frame_id: int | None = None
    frame_compile_id: int | None = None


@dataclass(frozen=True)
class _Event:
    kind: str  # One of graph_break, recompile, compile and compile_backward.
    compile_id: str | None
    time_ns: int | None
    dur_ns: int | None = None
    function: str | None = None
    file: str | None = None
    line: int | None = None
    reason: str | None = None
    hint: str | None = None


def is_compile_log(head: bytes) -> bool:
    """Return whether a file is a structured log of torch.compile, by its first bytes."""
    return ENTRY.match(head.partition(b"\n")[0]) is not None


def store(source: Source, writer: Writer, about: dict[str, Any]) -> dict[str, Any]:
    """Read ``source``, write its events, and return the recording row.

    Entries that cannot be decoded are skipped and counted. Raises SourceError if the log has no compile event.
    """
    skipped: list[bytes] = []
    rank: list[int] = []
    events = list(_events(lines(source), skipped, rank))
    if not events:
        raise SourceError(
            "E-NOEV",
            "This log of torch.compile has no compilation. Record it again, until after the first step.",
        )
    _write(events, writer)
    if skipped:
        sentence = "Incomplete or unknown entries of the torch.compile log were skipped."
        writer.insert_row("diagnostics", vars(ImportDiagnostic("compile_log_skipped", "info", sentence, len(skipped))))
    times = [event.time_ns for event in events if event.time_ns is not None]
    return {
        **about,
        "kind": "compile",
        "event_count": len(events),
        "clock": "unix" if times else "unknown",
        "first_ns": min(times, default=None),
        "last_ns": max(times, default=None),
        "truncated": bool(source.damage),
        "rank": rank[0] if rank else None,
    }


def _write(events: list[_Event], writer: Writer) -> None:
    texts = ("kind", "compile_id", "function", "file", "reason", "hint")
    numbers = ("time_ns", "dur_ns")
    columns: dict[str, Any] = {name: [getattr(event, name) for event in events] for name in texts}
    for name in numbers:
        columns[name] = np.array([NULL if (v := getattr(event, name)) is None else v for event in events], np.int64)
    columns["line"] = np.array([-1 if event.line is None else event.line for event in events], np.int32)
    writer.insert("compile_events", columns)


def _events(log_lines: Iterable[bytes], skipped: list[bytes], rank: list[int]) -> Iterator[_Event]:
    """Yield the stored events; add unknown entries to ``skipped``, and the log's first rank to ``rank``."""
    entry: _Entry | None = None
    payload: list[bytes] = []
    now: int | None = None
    count = 0
    for line in chain(log_lines, [b"V"]):  # The added line ends the last entry.
        if line.startswith(b"\t"):
            if clock := CLOCK.match(line):
                now = int(clock[1]) * 1000
            if entry is not None and len(payload) < PAYLOAD_LINES:
                payload.append(line[1:])
            continue
        if entry is not None:
            yield from _entry_events(entry, b"\n".join(payload), now)
            count += 1
        if count > MAX_ENTRIES:
            raise SourceError(
                "E-LIMIT",
                f"The log of torch.compile has more than {MAX_ENTRIES:,} compilations, recompilations and graph breaks. Record fewer steps.",
            )
        entry, payload = None, []
        match = ENTRY.match(line)
        if match and match[1] and not rank:
            rank.append(int(match[1]))
        if match and any(word in line for word in STORED_EVENTS):
            try:
                entry = from_json(match[2], _Entry)
            except msgspec.MsgspecError:
                skipped.append(line[:80])


def _entry_events(entry: _Entry, payload: bytes, now: int | None) -> Iterator[_Event]:
    frame, compilation = entry.frame_id, entry.frame_compile_id
    compile_id = None if frame is None or compilation is None else f"{frame}/{compilation}"
    text = payload.decode("utf-8", "replace")
    if entry.artifact is not None and entry.artifact.name == "dynamo_graph_break_reason":
        place = PLACE.search(text)
        rest = text[place.end() :] if place else text
        hint = HINT.search(text)
        yield _Event(
            "graph_break",
            compile_id,
            now,
            file=place[1] if place else None,
            line=int(place[2]) if place else None,
            reason=_reason(rest),
            hint=hint[1].strip()[:TEXT_LENGTH] if hint else None,
        )
    elif entry.artifact is not None and entry.artifact.name == "recompile_reasons":
        yield _Event("recompile", compile_id, now, reason=_first_guard(payload))
    for kind, metrics in (("compile", entry.compilation_metrics), ("compile_backward", entry.bwd_compilation_metrics)):
        if metrics is not None:
            yield _compile_event(kind, metrics, compile_id, now)


def _compile_event(kind: str, metrics: _Metrics, compile_id: str | None, now: int | None) -> _Event:
    start_s, dur_ns = metrics.start_time, metrics.dur_ns
    start_ns = None if now is None else now - (dur_ns or 0)
    if start_s is not None and 0 < start_s < 4e9:
        start_ns = round(start_s * 1e9)
    line = metrics.co_firstlineno
    return _Event(
        kind,
        (metrics.compile_id or compile_id or "")[:80] or None,
        start_ns,
        dur_ns,
        _cut(metrics.co_name),
        _cut(metrics.co_filename),
        line if line is not None and 0 <= line < 1 << 31 else None,
        _cut(metrics.fail_reason),
    )


def _reason(text: str) -> str | None:
    """Return the reason in a break's payload, without Dynamo's advice and traceback."""
    text = REASON_ENDS.split(REASON_TITLE.sub("", text, count=1), maxsplit=1)[0]
    return " ".join(text.split())[:TEXT_LENGTH] or None


def _first_guard(payload: bytes) -> str | None:
    """Return the first failed guard, because each cached compilation of a function has its own guards."""
    try:
        reasons = from_json(payload, list[str])
    except msgspec.MsgspecError:
        return _cut(payload.decode("utf-8", "replace"))
    return _cut(reasons[0]) if reasons else None


def _cut(text: str | None) -> str | None:
    return " ".join(text.split())[:TEXT_LENGTH] or None if text else None
