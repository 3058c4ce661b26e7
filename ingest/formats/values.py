"""Cells of other tools' tables: numbers with units, blanks, and local times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ingest.errors import UsageError
from ingest.formats.table import SampleTable

MIB = 1 << 20
# Unit in a header or a cell → factor to the store's unit of the columns that use it
UNITS = {
    "%": 1.0,
    "w": 1.0,
    "mw": 1e-3,
    "j": 1.0,
    "mj": 1e-3,
    "c": 1.0,
    "mhz": 1.0,
    "b": 1.0,
    "kib": 1024.0,
    "mib": float(MIB),
    "gib": float(1 << 30),
    "mb/s": 1e6,
    "kb/s": 1e3,
    "b/s": 1.0,
    "mib/s": float(MIB),
}
_NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-z%/]*)")
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")


def number(cell: str, factor: float = 1.0) -> float | None:
    """Return a cell as a number in the store's unit; None for blanks such as ``[N/A]``, ``-`` or ``[Not Supported]``.

    A unit in the cell wins over ``factor``, which stands for the header's.
    """
    text = cell.strip()
    if text[:2].lower() == "0x":
        try:
            return float(int(text, 16))
        except ValueError:
            return None
    if _DECIMAL_COMMA.fullmatch(text.split(" ")[0]):
        text = text.replace(",", ".", 1)
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    unit = found.group(2).lower()
    if unit and unit not in UNITS:
        return None
    return float(found.group(1)) * (UNITS[unit] if unit else factor)


def zone(name: str | None) -> tzinfo | None:
    """Return the zone of an IANA name or an offset such as ``+02:00``; None for None. Raises UsageError for what is neither."""
    if name is None:
        return None
    if found := re.fullmatch(r"([+-])(\d{1,2}):?(\d{2})?", name.strip()):
        minutes = int(found.group(2)) * 60 + int(found.group(3) or 0)
        return timezone(timedelta(minutes=minutes if found.group(1) == "+" else -minutes))
    try:
        return ZoneInfo(name.strip())
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(f"{name!r} is no time zone. Give a name such as Europe/Berlin, or an offset such as +02:00.") from None


class LocalTimes:
    """Turns local times of one file into Unix nanoseconds. In an hour that occurs twice, a jump back means the second time."""

    def __init__(self, time_zone: str | None, table: SampleTable) -> None:
        self._zone = zone(time_zone)
        self._table = table
        self._last: datetime | None = None
        self._fold = 0

    def ns(self, text: str, patterns: Sequence[str]) -> int | None:
        """Return the time that ``text`` gives in the first of ``patterns`` (strptime) that fits; None where none does."""
        for pattern in patterns:
            try:
                local = datetime.strptime(text, pattern)
            except ValueError:
                continue
            return self._to_ns(local)
        return None

    def _to_ns(self, local: datetime) -> int:
        if self._zone is None:
            said = (
                "The file's times carry no zone and were taken as UTC. If they are local, give the zone or shift the telemetry."
            )
            if "zone_assumed" not in self._table.diagnostics:
                self._table.note("zone_assumed", "info", said)
        elif self._last is not None and timedelta(minutes=10) < self._last - local:
            self._fold = 1
        self._last = local
        aware = local.replace(tzinfo=self._zone or timezone.utc, fold=self._fold)  # noqa: UP017 - zone is a tzinfo either way
        whole = int(aware.replace(microsecond=0).timestamp())
        return whole * 1_000_000_000 + local.microsecond * 1000


class Clockless:
    """Times of a file that has none: from the start and interval the user gives, else counted from 0 on an unknown clock."""

    def __init__(self, start_ns: int | None, interval_ns: int | None, default_ns: int, table: SampleTable, tool: str) -> None:
        self._start = start_ns
        self._interval = interval_ns or default_ns
        if start_ns is None:
            table.clock = "unknown"
            said = f"{tool} wrote no times: samples are counted from 0, {self._interval / 1e9:g} s apart. Give the start to lay them over a trace."
            table.note("no_times", "info", said)
        elif interval_ns is None:
            table.note(
                "interval_assumed",
                "info",
                f"{tool} wrote no times: its default of {default_ns / 1e9:g} s between samples was taken.",
            )

    def ns(self, index: int) -> int:
        """Return the time of sample ``index``."""
        return (self._start or 0) + index * self._interval
