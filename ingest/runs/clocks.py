"""What only people know about the clock of a telemetry file: the zone of its local times, when it began, how far it is off.

A recording keeps its times as its source has them; the run's manifest keeps what was said about them (``RecordingRef.offset_ns``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import duckdb
import msgspec

from sawtooth.ingest.database import first_row
from sawtooth.ingest.errors import NotFoundError, UsageError
from sawtooth.ingest.manifest import RecordingRef
from sawtooth.ingest.schema import DataFolder

NS = 1_000_000_000
LONGEST_OFFSET_S = 200 * 366 * 86_400  # of a file counted from 0: the year 2170; more is a slip
_UNIX = re.compile(r"\d{9,11}(?:\.\d+)?")
_OFFSET = re.compile(r"([+-])(\d{1,2}):?(\d{2})?")


@dataclass(frozen=True)
class ClockCorrection:
    """What somebody states of telemetry's times. ``time_zone``: an IANA name or ``+02:00``; ``start``: when a file without times began (Unix
    seconds, or a date and time with or without a zone); ``interval_s``: between its samples; ``shift_s``: added to all of it."""

    time_zone: str | None = None
    start: str | None = None
    interval_s: float | None = None
    shift_s: float | None = None

    def __bool__(self) -> bool:
        return self != ClockCorrection()

    def check(self) -> None:
        """Raise UsageError for what is no zone, no time or no interval, whatever file it is meant for."""
        zone = zone_of(self.time_zone) if self.time_zone else None
        _nanoseconds(self.shift_s or 0.0, "shift")
        if self.interval_s is not None and not 0 < self.interval_s < 86_400:
            raise UsageError("The interval between samples is in seconds, above 0 and below a day.")
        if self.start is not None:
            start_ns(self.start, zone)


def apply(ref: RecordingRef, clock: str, first_ns: int, correction: ClockCorrection) -> RecordingRef:
    """Return ``ref`` with the offset that follows from ``correction``; ``clock`` and ``first_ns`` are its recording's.

    What does not fit the file (a zone for times that are absolute) changes nothing; ``needs`` says what is missing then. Raises UsageError
    for what is no zone, no time or no interval.
    """
    correction.check()
    shift = _nanoseconds(correction.shift_s or 0.0, "shift")
    zone = zone_of(correction.time_zone) if correction.time_zone else None
    offset: int | None = None
    if clock == "local" and zone is not None:
        offset = shift - _utc_offset(datetime(1970, 1, 1) + timedelta(microseconds=first_ns // 1000), zone)
    elif clock == "unknown" and correction.start is not None:
        offset = shift + start_ns(correction.start, zone)
    elif correction.shift_s is not None:
        offset = shift
    interval = (
        round(correction.interval_s * NS) if correction.interval_s is not None and clock == "unknown" else ref.interval_ns
    )
    return msgspec.structs.replace(ref, offset_ns=ref.offset_ns if offset is None else offset, interval_ns=interval)


def needs(ref: RecordingRef, clock: str) -> str | None:
    """Return what telemetry still needs to be laid over a trace, as the end of a sentence about the file; None where nothing."""
    if ref.kind != "telemetry" or ref.offset_ns is not None:
        return None
    if clock == "local":
        return "its times are local and have no time zone, so it cannot be aligned with a trace. Set --time-zone of sawtooth ingest, or choose the zone on the Telemetry page."
    if clock == "unknown":
        return "it has no times, so it cannot be aligned with a trace. Set --start of sawtooth ingest, or enter the start on the Telemetry page."
    return None


def clock_of(folder: DataFolder, ref: RecordingRef) -> tuple[str, int]:
    """Return the clock of a recording and its first time. Raises NotFoundError."""
    try:
        row = first_row(folder.recording_file(ref.id), "SELECT clock, first_ns FROM recording")
    except duckdb.Error:
        row = None
    if row is None:
        raise NotFoundError(f"Recording {ref.id} is missing or damaged. Ingest its file again.")
    return str(row[0]), int(row[1] or 0)


def zone_of(name: str) -> tzinfo:
    """Return the zone of an IANA name or an offset such as ``+02:00``. Raises UsageError for what is neither."""
    if offset := _OFFSET.fullmatch(name.strip()):
        minutes = int(offset.group(2)) * 60 + int(offset.group(3) or 0)
        if minutes < 24 * 60:
            return timezone(timedelta(minutes=minutes if offset.group(1) == "+" else -minutes))
    try:
        return ZoneInfo(name.strip())
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(
            f"{name!r} is not a time zone. Use a name such as Europe/Berlin, or an offset such as +02:00."
        ) from None


def start_ns(text: str, zone: tzinfo | None) -> int:
    """Return Unix nanoseconds of Unix seconds or of a date and time. Raises UsageError, also for a local time without a zone."""
    trimmed = text.strip()
    if _UNIX.fullmatch(trimmed):
        return int(Decimal(trimmed) * NS)
    try:
        when = datetime.fromisoformat(trimmed)
    except ValueError:
        raise UsageError(f"{text!r} is not a time. Write it as 2026-11-21T09:30:00+01:00, or as Unix seconds.") from None
    if when.tzinfo is None:
        if zone is None:
            raise UsageError(f"{text!r} has no zone. Add one (2026-11-21T09:30:00+01:00), or give the time zone too.")
        when = when.replace(tzinfo=zone)
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * NS + since.microseconds * 1000


def _utc_offset(local: datetime, zone: tzinfo) -> int:
    offset = zone.utcoffset(local) or timedelta(0)
    return (offset.days * 86_400 + offset.seconds) * NS


def _nanoseconds(seconds: float, what: str) -> int:
    if not abs(seconds) < LONGEST_OFFSET_S:
        raise UsageError(f"The {what} is outside the range of a computer's clock.")
    return round(seconds * NS)
