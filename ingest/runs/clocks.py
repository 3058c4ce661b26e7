"""Users' corrections of a telemetry file's clock: time zone of local times, start and offset.

A recording keeps the times of its source. The run's manifest stores the correction (``RecordingRef.offset_ns``).
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

NS_PER_SECOND = 1_000_000_000
MAX_OFFSET_S = 200 * 366 * 86_400  # An offset of more than 200 years is a mistake.
_UNIX = re.compile(r"\d{9,11}(?:\.\d+)?")
_OFFSET = re.compile(r"([+-])(\d{1,2}):?(\d{2})?")


@dataclass(frozen=True)
class ClockCorrection:
    """A user's statement about the times of telemetry.

    * ``time_zone``: an IANA name, or an offset such as ``+02:00``.
    * ``start``: the start of a file without times, in Unix seconds, or as a date and time with or without a zone.
    * ``interval_s``: the time between samples.
    * ``shift_s``: the time that is added to all times.
    """

    time_zone: str | None = None
    start: str | None = None
    interval_s: float | None = None
    shift_s: float | None = None

    def __bool__(self) -> bool:
        return self != ClockCorrection()

    def check(self) -> None:
        """Raise UsageError if the zone, start, interval or shift is invalid for every file."""
        zone = parse_zone(self.time_zone) if self.time_zone else None
        _nanoseconds(self.shift_s or 0.0)
        if self.interval_s is not None and not 0 < self.interval_s < 86_400:
            raise UsageError(
                f"The interval between samples is {self.interval_s:g} s. Give one above 0 s and below a day (86,400 s)."
            )
        if self.start is not None:
            start_ns(self.start, zone)


def apply(ref: RecordingRef, clock: str, first_ns: int, correction: ClockCorrection) -> RecordingRef:
    """Return ``ref`` with the offset that follows from ``correction``.

    ``clock`` and ``first_ns`` are of the recording. A correction that the file does not need (such as a zone for absolute times) changes
    nothing. Raises UsageError for an invalid zone, time or interval.
    """
    correction.check()
    shift = _nanoseconds(correction.shift_s or 0.0)
    zone = parse_zone(correction.time_zone) if correction.time_zone else None
    offset: int | None = None
    if clock == "local" and zone is not None:
        offset = shift - _utc_offset(datetime(1970, 1, 1) + timedelta(microseconds=first_ns // 1000), zone)
    elif clock == "unknown" and correction.start is not None:
        offset = shift + start_ns(correction.start, zone)
    elif correction.shift_s is not None:
        offset = shift
    interval = (
        round(correction.interval_s * NS_PER_SECOND)
        if correction.interval_s is not None and clock == "unknown"
        else ref.interval_ns
    )
    return msgspec.structs.replace(ref, offset_ns=ref.offset_ns if offset is None else offset, interval_ns=interval)


def clock_advice(ref: RecordingRef, clock: str) -> str | None:
    """Return advice if telemetry cannot be aligned with a trace yet, else None.

    The text continues a sentence that begins with the file's name.
    """
    if ref.kind != "telemetry" or ref.offset_ns is not None:
        return None
    if clock == "local":
        return "its times are local and have no time zone, so it cannot be aligned with a trace. Choose the zone under Timeline › Telemetry, or set --time-zone of sawtooth ingest."
    if clock == "unknown":
        return "it does not show when it was recorded, so it cannot be aligned with a trace. Enter the start under Timeline › Telemetry, or set --start of sawtooth ingest."
    return None


def read_clock(folder: DataFolder, ref: RecordingRef) -> tuple[str, int]:
    """Return the clock of a recording and its first time.

    Raises NotFoundError if the recording is missing or damaged.
    """
    try:
        row = first_row(folder.recording_file(ref.id), "SELECT clock, first_ns FROM recording")
    except duckdb.Error:
        row = None
    if row is None:
        raise NotFoundError(f"Recording {ref.id} is missing or damaged. Ingest its file again.")
    return str(row[0]), int(row[1] or 0)


def parse_zone(name: str) -> tzinfo:
    """Return the zone of an IANA name or of an offset such as ``+02:00``.

    Raises UsageError for any other text.
    """
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
    """Convert Unix seconds, or a date and time, into Unix nanoseconds.

    Raises UsageError for other texts, and for a local time without a zone.
    """
    trimmed = text.strip()
    if _UNIX.fullmatch(trimmed):
        return int(Decimal(trimmed) * NS_PER_SECOND)
    try:
        when = datetime.fromisoformat(trimmed)
    except ValueError:
        raise UsageError(f"{text!r} is not a time. Write it as 2026-11-21T09:30:00+01:00, or as Unix seconds.") from None
    if when.tzinfo is None:
        if zone is None:
            raise UsageError(f"{text!r} has no zone. Add a zone (2026-11-21T09:30:00+01:00), or give the time zone too.")
        when = when.replace(tzinfo=zone)
    elapsed = when - datetime(1970, 1, 1, tzinfo=UTC)
    return (elapsed.days * 86_400 + elapsed.seconds) * NS_PER_SECOND + elapsed.microseconds * 1000


def _utc_offset(local: datetime, zone: tzinfo) -> int:
    offset = zone.utcoffset(local) or timedelta(0)
    return (offset.days * 86_400 + offset.seconds) * NS_PER_SECOND


def _nanoseconds(seconds: float) -> int:
    if not abs(seconds) < MAX_OFFSET_S:
        raise UsageError(f"The shift is {seconds:g} s. Give less than 200 years ({MAX_OFFSET_S:.3g} s).")
    return round(seconds * NS_PER_SECOND)
