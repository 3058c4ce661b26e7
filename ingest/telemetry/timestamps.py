"""Timestamps of telemetry tables in all forms that tools, scripts and spreadsheets write."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from datetime import date

import numpy as np
from numpy.typing import NDArray

from sawtooth.ingest.telemetry.table import SampleTable

EPOCH = date(1970, 1, 1)
SECOND_NS = 1_000_000_000
DAY_NS = 86_400 * SECOND_NS
HALF_DAY = DAY_NS // 2
MIN_CHARACTERS = 10  # A shorter text is no absolute time, because a Unix time in seconds has ten digits.
FIRST_YEAR, LAST_YEAR = 946_684_800 * SECOND_NS, 4_102_444_800 * SECOND_NS  # These are the beginnings of 2000 and 2100.
MIN_UNIX_SECONDS = 1e8  # This time is in 1973. Smaller numbers count from the start of the recording.
_CLOCK = r"(\d{1,2}):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?\s*([AaPp]\.?[Mm]\.?)?"
_ZONE = r"\s*(Z|UTC|GMT|[+-]\d\d:?\d\d|[+-]\d\d)?"
YEAR_FIRST = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?:[T ]+|$)(?:" + _CLOCK + _ZONE + r")?")
YEAR_LAST = re.compile(r"(\d{1,2})([-/.])(\d{1,2})[-/.](\d{4}|\d\d)[T, ]+" + _CLOCK + _ZONE)
COMPACT = re.compile(r"(\d{4})(\d\d)(\d\d)[T ]?\s*" + _CLOCK + _ZONE)
NAMED_MONTH = re.compile(
    r"(?:[A-Za-z]{3,9},?\s+)?([A-Za-z]{3})[a-z]*\.?\s+(\d{1,2})\s+" + _CLOCK + r"(?:\s+[A-Z]{2,5})?\s+(\d{4})"
)
TIME_ONLY = re.compile(_CLOCK)
NUMBER = re.compile(r"\d+(?:[.,]\d+)?(?:[eE]\+?\d+)?")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


class Timestamps:
    """Conversion of the timestamps of one file into nanoseconds.

    Times with a zone, and numbers since 1970, become Unix times. Times without a zone are converted as if they were UTC. The recording's
    clock is then ``local``. Times without a date, and small numbers, count from an unknown start.

    Call ``finish`` after the last time, because only all dates of the file show the order of day and month in 03-11-2026.
    """

    def __init__(self, table: SampleTable, *, utc: bool = False, unit_s: float = 1.0) -> None:
        self._table = table
        self._unit_s = unit_s  # The unit, in seconds, of numbers that count from the start of the recording.
        self._utc = utc  # Whether times without a zone are UTC.
        # The day that ``ns`` assumed, by (first field, second field, year) of a date.
        self._dates: dict[tuple[int, int, int], int] = {}
        self._separator = ""
        self._last = -1
        self._midnights = 0

    def ns(self, text: str) -> int | None:
        """Return the time of ``text``; None if ``text`` is not a timestamp."""
        text = text.strip().strip('"')
        if NUMBER.fullmatch(text):
            return self._number(float(text.replace(",", ".")), text)
        if match := YEAR_FIRST.fullmatch(text):
            year, month, day, *clock, zone = match.groups()
            return self._dated(_day(int(year), int(month), int(day)), clock, zone)
        if match := YEAR_LAST.fullmatch(text):
            first, separator, second, year, *clock, zone = match.groups()
            return self._dated(self._day(int(first), separator, int(second), int(year)), clock, zone)
        if match := COMPACT.fullmatch(text):
            year, month, day, *clock, zone = match.groups()
            return self._dated(_day(int(year), int(month), int(day)), clock, zone)
        if match := NAMED_MONTH.fullmatch(text):
            name, day, *clock, year = match.groups()
            month = MONTHS.index(name.lower()) + 1 if name.lower() in MONTHS else 0
            return self._dated(_day(int(year), month, int(day)), clock, None)
        if match := TIME_ONLY.fullmatch(text):
            return self._undated(_time_of_day_ns(*match.groups()))
        return None

    def _number(self, value: float, text: str) -> int | None:
        if value * self._unit_s < MIN_UNIX_SECONDS:
            self._unknown("The file's times count from the start of the log. Enter its start time to show them with a trace.")
            return round(value * self._unit_s * 1e6) * 1000
        for min_value, ns_per_unit in ((1e17, 1), (1e14, 1_000), (1e11, 1_000_000)):
            if value >= min_value:
                return int(text) * ns_per_unit if text.isdigit() else int(float(text) * ns_per_unit)
        return round(value * 1e6) * 1000

    def _dated(self, day: int | None, clock: list[str | None], zone: str | None) -> int | None:
        day_ns = _time_of_day_ns(*clock) if clock[0] else 0
        if day is None or day_ns is None:
            return None
        if zone or self._utc:
            return day * DAY_NS + day_ns - _zone_ns(zone or "UTC")
        self._table.clock = "local"
        if "zone_unknown" not in self._table.diagnostics:
            note = "The file's times are local and have no time zone. Enter the zone to show them with a trace."
            self._table.note("zone_unknown", "info", note)
        return day * DAY_NS + day_ns

    def _undated(self, day_ns: int | None) -> int | None:
        """Return the time of a row without a date; each midnight between rows adds a day."""
        if day_ns is None:
            return None
        self._unknown("The file has times without dates. Enter the date of the start to show them with a trace.")
        time_ns = self._midnights * DAY_NS + day_ns
        if self._last >= 0 and time_ns < self._last - HALF_DAY:
            self._midnights += 1
            time_ns += DAY_NS
        elif time_ns > self._last + HALF_DAY and self._last >= 0 and self._midnights:
            return time_ns - DAY_NS  # A row from before midnight was written after a row from after midnight.
        self._last = time_ns
        return time_ns

    def _unknown(self, note: str) -> None:
        self._table.clock = "unknown"
        if "no_times" not in self._table.diagnostics:
            self._table.note("no_times", "info", note)

    def _day(self, first: int, separator: str, second: int, year: int) -> int | None:
        """Return the day of a date that ends with the year.

        If the order of day and month is unclear, the day is assumed to be first in a date with dots, else the month.
        """
        key = (first, second, year if year >= 100 else 2000 + year)
        if key not in self._dates:
            self._separator = separator
            orders = ((second, first), (first, second)) if separator == "." else ((first, second), (second, first))
            days = (_day(key[2], month, day_of_month) for month, day_of_month in orders)
            day = next((day for day in days if day is not None), None)
            if day is None:
                return None
            self._dates[key] = day
        return self._dates[key]

    def finish(self) -> dict[int, int]:
        """Return the correct day for each day that ``ns`` assumed wrongly.

        If nothing in the file shows the order of day and month, a note names the assumed order.
        """
        if not self._dates or self._separator == ".":
            return {}
        month_first = {key: _day(key[2], key[0], key[1]) for key in self._dates}
        day_first = {key: _day(key[2], key[1], key[0]) for key in self._dates}
        if None in day_first.values():  # A field above 12 shows that the month is first.
            return {}
        order = day_first
        if None not in month_first.values():
            if len(self._dates) == 1 or (jumps := _jumps(month_first)) == _jumps(day_first):
                first, second, year = next(iter(self._dates))
                if first != second:
                    sign = self._separator
                    example = f"{first:02}{sign}{second:02}{sign}{year}"
                    note = f"The date {example} was read with the month first, because the file does not show the order. If the day is first, enter the start."
                    self._table.note("date_order", "info", note)
                return {}
            order = month_first if jumps < _jumps(day_first) else day_first
        return {assumed: day for key, assumed in self._dates.items() if (day := order[key]) is not None and day != assumed}


def are_times(cells: Sequence[str]) -> bool:
    """Return whether all cells are dated times or Unix times, in order."""
    times = Timestamps(SampleTable())
    read = [times.ns(cell) for cell in cells if len(cell) >= MIN_CHARACTERS]
    valid_times = [time for time in read if time is not None and FIRST_YEAR <= time < LAST_YEAR]
    return len(valid_times) == len(cells) >= 2 and valid_times == sorted(valid_times)


def with_corrected_days(times: NDArray[np.int64], days: dict[int, int]) -> NDArray[np.int64]:
    """Return ``times`` with corrected days (since 1970); ``days`` is the result of ``finish``."""
    if not days:
        return times
    assumed_days, day_ns = np.divmod(times, DAY_NS)
    return np.array([days.get(int(day), int(day)) for day in assumed_days], np.int64) * DAY_NS + day_ns


def _day(year: int, month: int, day: int) -> int | None:
    try:
        return (date(year, month, day) - EPOCH).days
    except ValueError:
        return None


def _time_of_day_ns(
    hour: str | None, minute: str | None, second: str | None, fraction: str | None, am_pm: str | None
) -> int | None:
    """Return the ns since midnight from the groups of _CLOCK; None for an impossible time."""
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    if am_pm:
        hours = hours % 12 + (12 if am_pm[0] in "pP" else 0)
    if hours > 23 or minutes > 59 or seconds > 60:
        return None
    return (hours * 3600 + minutes * 60 + seconds) * SECOND_NS + (int(fraction.ljust(9, "0")) if fraction else 0)


def _zone_ns(zone: str) -> int:
    if zone in ("Z", "UTC", "GMT"):
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return (-seconds if zone[0] == "-" else seconds) * SECOND_NS


def _jumps(days: dict[tuple[int, int, int], int | None]) -> int:
    """Return the total number of days by which the dates of a file differ from consecutive days."""
    known_days = [day for day in days.values() if day is not None]
    return sum(abs(next_day - day - 1) for day, next_day in itertools.pairwise(known_days))
