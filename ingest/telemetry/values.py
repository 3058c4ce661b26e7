"""Values in the tables of other tools: numbers with units, blanks, and local times."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sawtooth.ingest.telemetry.table import SampleTable

MIB = 1 << 20
MAX_CHARACTERS = 1 << 16  # Only this much of a line is read. The widest W&B tables have some thousand columns.
EPOCH = datetime(1970, 1, 1)
HOUR = timedelta(hours=1)  # The end of summer time sets a clock back by an hour, except on Lord Howe Island.
# A step back is the end of summer time if it differs from an hour by less than this, because time passes between two samples.
SET_BACK_SLACK = timedelta(minutes=5)
# The factors from the unit in a header or a cell to the unit of the store's column.
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


def finite_number(value: Any) -> float | None:
    """Return a JSON value as a number; None if it is not a finite number."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and not isinstance(value, bool) else None


def number(cell: str, factor: float = 1.0) -> float | None:
    """Return a cell as a number in the store's unit; None for blanks such as ``[N/A]`` or ``-``.

    ``factor`` comes from the unit in the header. A unit in the cell has precedence.
    """
    text = cell.strip()
    if text.startswith("(") and text.endswith(")"):  # rocm-smi writes clocks in parentheses.
        text = text[1:-1].strip()
    if text[:2].lower() == "0x":
        try:
            return float(int(text, 16))
        except (ValueError, OverflowError):
            return None
    if _DECIMAL_COMMA.fullmatch(text.split(" ")[0]):
        text = text.replace(",", ".", 1)
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    unit = match.group(2).lower()
    if unit and unit not in UNITS:
        return None
    value = float(match.group(1)) * (UNITS[unit] if unit else factor)
    return value if math.isfinite(value) else None


def cells(line: str, delimiter: str = ",") -> list[str]:
    """Return the cells of one line of CSV; an unclosed quote affects only this line."""
    return next(csv.reader([line[:MAX_CHARACTERS]], delimiter=delimiter, skipinitialspace=True), [])


def rows_of(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    """Return the cells of each line, like ``cells``, but faster."""
    if any('"' in line or len(line) > MAX_CHARACTERS for line in lines):
        return [cells(line, delimiter) for line in lines]
    return list(csv.reader(lines, delimiter=delimiter, skipinitialspace=True))


class LocalTimes:
    """Conversion of the local times of one file into nanoseconds, as if they were UTC.

    The recording's clock is ``local`` until a user enters the zone. If the clock is set back by an hour (the end of summer time), the
    converted times continue to rise.
    """

    def __init__(self, table: SampleTable) -> None:
        self._table = table
        self._last: datetime | None = None
        self._set_back = timedelta(0)  # The sum of the hours by which the clock was set back.

    def ns(self, text: str, patterns: Sequence[str]) -> int | None:
        """Return the time of ``text`` by the first of ``patterns`` (strptime) that matches; else None."""
        for pattern in patterns:
            try:
                local = datetime.strptime(text, pattern)
            except ValueError:
                continue
            return self._to_ns(local)
        return None

    def _to_ns(self, local: datetime) -> int:
        self._table.clock = "local"
        if "zone_unknown" not in self._table.diagnostics:
            note = "The file's times are local and have no time zone. Enter the zone to show them with a trace."
            self._table.note("zone_unknown", "info", note)
        if self._last is not None and abs(self._last - local - HOUR) < SET_BACK_SLACK:
            self._set_back += HOUR
        self._last = local
        elapsed = local + self._set_back - EPOCH
        return (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000_000 + elapsed.microseconds * 1000


class CountedTimes:
    """Assumed times for samples without times: multiples of ``default_ns`` from 0, on an unknown clock.

    A user can enter the true start and interval later.
    """

    def __init__(self, default_ns: int, table: SampleTable, tool: str) -> None:
        self._interval = default_ns
        table.clock = "unknown"
        table.metadata["assumed_interval_ns"] = default_ns
        note = f"{tool} wrote no times. Samples are assumed to be {default_ns / 1e9:g} s apart and to begin at 0. Enter the start to show them with a trace."
        table.note("no_times", "info", note)

    def ns(self, index: int) -> int:
        """Return the time of sample ``index``."""
        return index * self._interval
