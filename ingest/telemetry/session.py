"""Read sampler sessions: a growing one incrementally, a finished one as a telemetry recording.

``sawtooth.ingest.sampler`` documents the format. A line that is incomplete or has a wrong checksum is always skipped.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.json_checksum import without_checksum
from sawtooth.ingest.quantities.registry import SAMPLE_COLUMNS, possible_value
from sawtooth.ingest.sampler.segments import decode_line, encode_line, find_segments, is_oversized, join_segments, segment_name
from sawtooth.ingest.telemetry.reader import SampleGap
from sawtooth.ingest.telemetry.table import SampleTable

SESSION_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,79}")
READ_BYTES = 4 << 20  # One read of a segment returns at most this much, so that a read of a long session stays short.
MAX_EVENTS = 1000  # Only this many events are stored in the recording's metadata. A faulty GPU can have thousands.
# The functions of this module raise these errors if JSON has an unexpected structure.
INVALID_RECORD_ERRORS = (ValueError, KeyError, TypeError, AttributeError, OverflowError, IndexError)
MAX_DEVICES = 1024  # Larger device numbers are damage. The largest hosts have 16 GPUs.
# If the difference of wall and monotonic time changes by more than this, the clock was set. NTP slews a clock by at most 0.05 %.
SLEW_NS, SLEW_SHARE = 1_000_000, 0.001


def is_session_id(text: str) -> bool:
    """Return whether ``text`` is a possible name of a session."""
    return SESSION_ID.fullmatch(text) is not None


def is_time(value: object) -> TypeGuard[int]:
    """Return whether ``value`` is a possible time in ns, small enough for sums in 64 bits."""
    return isinstance(value, int) and 0 <= value < 1 << 62


class SessionReader:
    """Reader of a growing session folder, from ``segment`` on.

    ``poll`` returns new records. ``damaged`` counts skipped lines. ``ended`` is the reason in the last record, None until then.
    """

    def __init__(self, folder: Path, segment: int = 1) -> None:
        self.folder = folder
        self.damaged = 0
        self.ended: str | None = None
        self._meta: dict[str, Any] | None = None
        self._segment = segment
        self._offset = 0

    @property
    def meta(self) -> dict[str, Any]:
        """The session's meta.json.

        Raises SourceError while it is missing or incomplete.
        """
        if self._meta is None:
            try:
                content = without_checksum((self.folder / "meta.json").read_bytes())
                value = None if is_oversized(content) else json.loads(content)
            except (OSError, ValueError, RecursionError):
                value = None
            if not isinstance(value, dict) or not isinstance(value.get("columns"), list):
                raise SourceError(
                    "E-TYPE", "The meta.json of this folder is missing or damaged. Give a sampler session's folder."
                )
            self._meta = value
        return self._meta

    @property
    def position(self) -> tuple[int, int]:
        """The segment, and the byte offset up to which it was read."""
        return self._segment, self._offset

    def poll(self, max_bytes: int | None = None) -> list[dict[str, Any]]:
        """Return the complete records that were appended since the last call, in order.

        If the records have more than about ``max_bytes``, the next call returns the rest.
        """
        records: list[dict[str, Any]] = []
        remaining = max_bytes
        while remaining is None or remaining > 0:
            read_bytes = self._read_segment(records)
            if remaining is not None:
                remaining -= read_bytes
            following = self.folder / segment_name(self._segment + 1)
            if read_bytes:
                continue
            if not following.exists() and not self._skip_missing():
                return records
            # A segment is complete once a later segment exists. Bytes left after one more read are an incomplete line.
            if following.exists() and not self._read_segment(records):
                self._go_to_next_segment()
        return records

    def _skip_missing(self) -> bool:
        """Skip segments that were deleted after they were pushed; return whether there were any."""
        later = [number for number in find_segments(self.folder) if number > self._segment]
        if not later or (self.folder / segment_name(self._segment)).exists():
            return False
        self._segment, self._offset = later[0], 0
        return True

    def _go_to_next_segment(self) -> None:
        try:
            size = (self.folder / segment_name(self._segment)).stat().st_size
        except OSError:
            size = self._offset
        self.damaged += size > self._offset
        self._segment, self._offset = self._segment + 1, 0

    def _read_segment(self, records: list[dict[str, Any]]) -> int:
        """Add the next complete records of the segment, and return their size in bytes."""
        try:
            with (self.folder / segment_name(self._segment)).open("rb") as file:
                file.seek(self._offset)
                content = file.read(READ_BYTES)
        except OSError:
            return 0
        complete_bytes = content.rfind(b"\n") + 1
        for line in content[:complete_bytes].split(b"\n")[:-1]:
            record = decode_line(line)
            if record is None:
                self.damaged += 1
                continue
            if record.get("k") == "end":
                self.ended = str(record.get("reason", ""))
            records.append(record)
        self._offset += complete_bytes
        return complete_bytes


class SessionClock:
    """Conversion of monotonic time to wall time, with slews of the wall clock, but without steps."""

    def __init__(self) -> None:
        self.offset_ns: int | None = None
        self.stepped_ns = 0  # The sum of the clock's steps.
        self.steps = 0  # Number of times the clock was set.
        self._last_monotonic_ns = 0

    def time_ns(self, monotonic_ns: int, wall_ns: int) -> int:
        """Return the time of a record in ns."""
        offset_ns = wall_ns - monotonic_ns
        if self.offset_ns is None:
            self.offset_ns, self._last_monotonic_ns = offset_ns, monotonic_ns
        change_ns = offset_ns - self.stepped_ns - self.offset_ns
        if abs(change_ns) <= SLEW_NS + SLEW_SHARE * (monotonic_ns - self._last_monotonic_ns):
            self.offset_ns += change_ns
        else:
            self.stepped_ns += change_ns
            self.steps += 1
        self._last_monotonic_ns = monotonic_ns
        return monotonic_ns + self.offset_ns


@dataclass
class SessionTable:
    """The records of a session as a SampleTable; ``table()`` may be called at any time."""

    samples: SampleTable = field(default_factory=SampleTable)
    clock: SessionClock = field(default_factory=SessionClock)
    columns: list[str] = field(default_factory=list)
    processes: dict[int, list[list[Any]]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    expected: int | None = None  # The next record should have this sequence number.

    def add(self, records: Iterable[dict[str, Any]]) -> None:
        """Add records in order; skip records of unknown kinds, and count invalid ones as damaged."""
        for record in records:
            try:
                self._add(record)
            except INVALID_RECORD_ERRORS:
                note_damage(self.samples, 1)

    def _add(self, record: dict[str, Any]) -> None:
        if record.get("k") == "push":
            self.samples.metadata["pushed"] = {k: record.get(k) for k in ("clock_offset_ns", "host")}
        monotonic_ns, wall_ns, number = record.get("m"), record.get("w"), record.get("q")
        if not is_time(monotonic_ns) or not is_time(wall_ns):
            return
        time_ns = self.clock.time_ns(monotonic_ns, wall_ns)
        if is_time(number):
            if self.expected is not None and number > self.expected:
                self.samples.note("lost_records", "data_loss", "Records of the session are missing or damaged.")
                self.samples.diagnostics["lost_records"].count += number - self.expected - 1
            self.expected = number + 1
        kind = record.get("k")
        if kind == "head":
            self._head(record)
        elif kind == "tick":
            self._tick(record, time_ns)
        elif kind == "event":
            self._event(record, time_ns)

    def table(self) -> SampleTable:
        """Return the collected table."""
        if self.clock.steps:
            note = f"The wall clock was set {self.clock.steps} times while sampling ({self.clock.stepped_ns / 1e9:+.3f} s). The sample times were corrected."
            self.samples.diagnostics.pop("clock_step", None)
            self.samples.note("clock_step", "info", note)
        self.samples.metadata["processes"] = self._by_device()
        self.samples.metadata["events"] = self.events[:MAX_EVENTS]
        return self.samples

    def _by_device(self) -> dict[str, list[int]]:
        """Return the ids of all processes that used each device."""
        processes: dict[str, set[int]] = {}
        for rows in self.processes.values():
            for device, pid, *_ in rows:
                if is_time(device) and is_time(pid):
                    processes.setdefault(str(device), set()).add(pid)
        return {device: sorted(pids) for device, pids in processes.items()}

    def _head(self, record: dict[str, Any]) -> None:
        self.columns = [str(c) for c in record.get("columns", [])]
        self.samples.host = _text(record.get("host")) or self.samples.host
        versions = record.get("versions") or {}
        self.samples.driver_version = _text(versions.get("driver")) or self.samples.driver_version
        self.samples.metadata["recorder"] = _text(versions.get("recorder"))
        self.samples.metadata |= {k: record[k] for k in ("session", "name", "interval_ns") if k in record}
        for gpu in record.get("devices", []):
            device = int(gpu["device"])
            if not 0 <= device < MAX_DEVICES:
                raise ValueError(device)
            major, minor = (gpu.get("compute_capability") or [None, None])[:2]
            memory = possible_value("mem_total_bytes", float(gpu.get("memory_bytes") or 0))
            self.samples.devices[device] = {
                "device": device,
                "name": _text(gpu.get("name")),
                "uuid": _text(gpu.get("uuid")),
                "memory_bytes": int(memory) if memory else None,
                "compute_major": int(major) if major is not None else None,
                "compute_minor": int(minor) if minor is not None else None,
            }
            self.samples.metadata.setdefault("capabilities", {})[str(gpu.get("uuid"))] = gpu.get("capabilities", {})

    def _tick(self, record: dict[str, Any], time_ns: int) -> None:
        for device, row in enumerate(record.get("g", [])):
            if row is None:
                continue
            values = {c: v for c, v in zip(self.columns, row, strict=False) if v is not None and c in SAMPLE_COLUMNS}
            total = self.samples.devices.get(device, {}).get("memory_bytes")
            self.samples.add(device, time_ns, values | ({"mem_total_bytes": total} if total is not None else {}))
        assert self.clock.offset_ns is not None
        # The driver's timestamps are wall times. The shift converts them to the session's time.
        shift = self.clock.offset_ns - (record["w"] - record["m"])
        for device, column, times, values in record.get("s", []):
            if column in SAMPLE_COLUMNS:
                for t_us, value in zip(times, values, strict=False):
                    self.samples.add_buffered(device, t_us * 1000 + shift, column, value)
        if "h" in record:
            self.samples.add_host(time_ns, record["h"])
        if "p" in record:
            self.processes[time_ns] = record["p"]

    def _event(self, record: dict[str, Any], time_ns: int) -> None:
        name = record.get("e")
        self.events.append({"time_ns": time_ns, **{k: v for k, v in record.items() if k not in ("m", "w", "crc", "k", "q")}})
        if name == "gap" and self.clock.offset_ns is not None:
            start, end = (int(record[k]) + self.clock.offset_ns for k in ("from_m", "to_m"))
            self.samples.gaps += [SampleGap(device, start, end, str(record.get("reason"))) for device in self.samples.devices]
        elif name == "gpu_lost":
            note = "A GPU was lost during sampling, so it has no later samples."
            self.samples.note("gpu_lost", "data_loss", note, example=str(record.get("uuid")))


def _text(value: object) -> str | None:
    return str(value) if value else None


def note_damage(table: SampleTable, lines: int) -> None:
    """Note how many lines were skipped."""
    if lines:
        note = "Incomplete or damaged lines of the session were left out."
        table.note("damaged_lines", "data_loss", note, count=lines)


def write_session_file(folder: Path, target: Path, behind_ns: int | None = None) -> int:
    """Join the complete lines of a session's segments into one file for ingest; return its size in bytes.

    ``behind_ns`` is the lag of the sampling host's clock behind this host's clock during the push, and is written into the file. Raises
    SourceError if the folder has no session or no sample.
    """
    assert SessionReader(folder).meta
    if not join_segments(folder, target):
        target.unlink()
        raise SourceError("E-NOEV", "The session has no samples yet. Wait for the first sample, then try again.")
    if behind_ns is not None:
        with target.open("ab") as out:
            out.write(encode_line({"k": "push", "clock_offset_ns": behind_ns, "host": socket.gethostname()}))
    return target.stat().st_size
