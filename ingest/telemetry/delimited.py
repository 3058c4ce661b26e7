"""Read tables of samples with a header and delimiters (CSV), of any tool, into the common table."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sawtooth.ingest.errors import SourceError, as_shown
from sawtooth.ingest.quantities.registry import BY_COLUMN, possible_value
from sawtooth.ingest.telemetry.device_numbers import DeviceNumbers
from sawtooth.ingest.telemetry.find_header import DECIDING_ROWS, find_header, text_of, time_position
from sawtooth.ingest.telemetry.headers import Header, SourceColumn
from sawtooth.ingest.telemetry.reader import TelemetryTables
from sawtooth.ingest.telemetry.rows import SampleRows
from sawtooth.ingest.telemetry.table import BLANK_NOTE, UNREADABLE, SampleTable
from sawtooth.ingest.telemetry.timestamps import TIME_ONLY, Timestamps
from sawtooth.ingest.telemetry.values import CountedTimes, cells, number, rows_of

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
# Samples without times are assumed to have this distance, because most tools print once a second.
ASSUMED_INTERVAL_NS = 1_000_000_000
MAX_CACHED_CELLS = 100_000  # So many cells of a column are cached with their numbers, because most values of a log recur.
MAX_RATIO = 1.0  # If no value of a column without a unit is larger, the values are ratios from 0 to 1, not percent.
BATCH_LINES = 8192  # Lines that are read at once, because whole columns are converted faster than single rows.
MAX_LINES_OF_ROW = 4  # A row with line breaks inside its cells has at most this many lines.
_WHOLE_SECONDS = re.compile(r"\d:\d\d:\d\d\s*$")
_FRACTION = re.compile(r"\d{1,9}(?:Z|[+-]\d\d:?\d\d)?")
EXAMPLE_CHARACTERS = 200  # An error shows at most this much of a row that cannot be read.
MAX_BLANKS_SHOWN = 6  # A note lists at most this many columns without values.
WHOLE_GPU = ("", "0", "N/A", "-", "[N/A]")  # The column of the partition has one of these values in the row of the whole GPU.


def read_delimited(lines: Iterator[bytes], tool: str) -> TelemetryTables:
    """Read the rows of a table with a known header.

    Raises SourceError if the header is missing, or if the table has rows and none can be read.
    """
    text = text_of(lines)
    header, _ = find_header(text)
    if header is None:
        raise SourceError("E-TYPE", "This table has no header line, so its columns have no names. Add the header line.")
    reader = _RowReader(header, tool)
    rows = _joined_rows(text)
    while lines_of_batch := list(itertools.islice(rows, BATCH_LINES)):
        reader.add(lines_of_batch)
    return reader.telemetry()


def _joined_rows(text: Iterator[str]) -> Iterator[str]:
    """Yield the rows, and join the lines of a row if a quoted cell contains line breaks.

    If a quote is not closed within MAX_LINES_OF_ROW lines, these lines are yielded separately.
    """
    open_row: list[str] = []  # Lines of a row with an open quote.
    for line in text:
        if not open_row and '"' not in line:
            yield line
            continue
        open_row.append(line)
        if sum(part.count('"') for part in open_row) % 2 == 0:
            yield "\n".join(open_row)
            open_row = []
        elif len(open_row) == MAX_LINES_OF_ROW:
            yield from open_row
            open_row = []
    yield from open_row


def _with_joined_time(row: list[str], header: Header) -> list[str]:
    """Return the row with its time in one cell, if a decimal comma split it into two cells.

    ``date --iso-8601=ns`` and Python's logging write such times.
    """
    position = header.time
    if position is None or header.delimiter != "," or len(row) != len(header.titles) + 1 or position + 1 >= len(row):
        return row
    seconds, fraction = row[position].strip(), row[position + 1].strip()
    if not (_WHOLE_SECONDS.search(row[position]) and _FRACTION.fullmatch(fraction)):
        return row
    return [*row[:position], f"{seconds}.{fraction}", *row[position + 2 :]]


class _CellNumbers(dict[str, float]):
    """The number of each text of one column, computed once; NaN for blanks and impossible values."""

    def __init__(self, column: SourceColumn, table: SampleTable) -> None:
        super().__init__()
        self.column, self.table = column, table

    def __missing__(self, cell: str) -> float:
        """Return the cell as a number in the column's unit."""
        if len(self) >= MAX_CACHED_CELLS:
            self.clear()
        column = self.column.column
        value = number(cell.split("\n")[0], self.column.factor)
        valid = None if value is None else possible_value(column, value)
        if value is not None and valid is None:
            self.table.note(*BLANK_NOTE, example=f"{column} = {value!r}")
        self[cell] = math.nan if valid is None else valid
        return self[cell]


class _RowReader:
    """Reader of the rows below one header, in batches of lines."""

    def __init__(self, header: Header, tool: str) -> None:
        self.header, self.tool = header, tool
        self.table = SampleTable()
        self.times = Timestamps(self.table, utc=header.utc, unit_s=header.unit_s)
        self.counted_times: CountedTimes | None = None
        names = list(dict.fromkeys(column.column for column in header.columns))
        self.names = names + (["clock_event_mask"] if header.reasons and "clock_event_mask" not in names else [])
        self.rows = SampleRows(self.names)
        self.numbers = {column.position: _CellNumbers(column, self.table) for column in header.columns}
        self.devices: DeviceNumbers | None = None
        self.count, self.unreadable, self.example = 0, 0, ""
        # For a table without times, the number of the current printout of all GPUs, and its GPUs so far.
        self.printout, self.printed_devices = -1, set[int]()
        # The last date and time as text, and as ns.
        self.last_time: tuple[tuple[str, str], int | None] = ("", ""), None

    def add(self, lines: list[str]) -> None:
        """Read lines."""
        rows = self._complete(lines, rows_of(lines, self.header.delimiter))
        if not rows:
            return
        if self.devices is None:
            self._find_time(rows[:DECIDING_ROWS])
            self.devices = DeviceNumbers(self.header, self.table, rows)
        cells_of = list(zip(*rows, strict=True))
        devices = self.devices.numbers(rows, cells_of)
        times = [time if time is not None and 0 <= time < 1 << 62 else None for time in self._times(cells_of, devices)]
        unreadable = [row for row, pair in enumerate(zip(times, devices, strict=True)) if None in pair]
        example = f"{self.header.delimiter} ".join(map(str.strip, rows[unreadable[0]])) if unreadable else ""
        self._count_unreadable(len(unreadable), example)
        skipped = set(unreadable)
        if self.header.partition is not None:
            partition_cells = enumerate(cells_of[self.header.partition])
            partitions = {row for row, cell in partition_cells if cell.strip() not in WHOLE_GPU} - skipped
            if partitions:
                note = "Rows of further partitions of a GPU were left out."
                self.table.note("instances_left_out", "info", note, count=len(partitions))
            skipped |= partitions
        if skipped:
            used = [row for row in range(len(rows)) if row not in skipped]
            cells_of = [tuple(column[row] for row in used) for column in cells_of]
            times, devices = [times[row] for row in used], [devices[row] for row in used]
        if times:
            self._store(cells_of, np.array(times, np.int64), np.array(devices, np.int64))

    def _find_time(self, rows: list[list[str]]) -> None:
        """Find the column of times by its cells if no title is known; without such a column, count printouts."""
        header = self.header
        if header.time is None:
            header.time = time_position(header, rows)
        if header.time is None:
            self.counted_times = CountedTimes(ASSUMED_INTERVAL_NS, self.table, self.tool)

    def _complete(self, lines: list[str], rows: list[list[str]]) -> list[list[str]]:
        """Return the rows that have as many cells as the header; count other rows as unreadable."""
        titles = self.header.titles
        whole = []
        for line, row in zip(lines, rows, strict=True):
            if len(row) != len(titles):
                if not line.strip():
                    continue
                row = _with_joined_time(row, self.header)
                if len(row) != len(titles):
                    self.count += 1
                    self._count_unreadable(1, line)
                    continue
            elif row[-1].strip() == titles[-1] and [row[0].strip("# "), *map(str.strip, row[1:])] == titles:
                continue  # The header is repeated in an appended log, or between samples of rocm-smi.
            whole.append(row)
        self.count += len(whole)
        return whole

    def _count_unreadable(self, count: int, line: str) -> None:
        self.unreadable += count
        self.example = self.example or line[:EXAMPLE_CHARACTERS]

    def _store(self, cells_of: list[tuple[str, ...]], times: I64, devices: I64) -> None:
        """Store the values. In a table with columns per GPU, each row of the file becomes one row per GPU."""
        in_titles = {column.device for column in self.header.columns if column.device is not None}
        for device in sorted(in_titles) if in_titles else (None,):
            values = self._values(cells_of, device, len(times))
            self.rows.extend(devices if device is None else np.full(len(times), device), times, values)

    def _values(self, cells_of: list[tuple[str, ...]], device: int | None, count: int) -> list[F64]:
        """Return an array for each of ``names``. If the table has columns per GPU, only GPU ``device`` counts."""
        values = {name: np.full(count, np.nan) for name in self.names}
        clocks = []
        for column in self.header.columns:
            if column.device != device:
                continue
            numbers = self.numbers[column.position]
            values[column.column] = np.array([numbers[cell] for cell in cells_of[column.position]], np.float64)
            if column.column == "clock_sm_mhz":
                clocks.append(values[column.column])
        if len(clocks) > 1:  # The GPU has several dies.
            dies = np.array(clocks)
            working = (dies > 0).sum(axis=0)
            mean = np.where(dies > 0, dies, 0).sum(axis=0) / np.maximum(working, 1)
            values["clock_sm_mhz"] = np.where(working > 0, mean, clocks[-1])
        if self.header.reasons:
            flags = {
                bit: [cell.strip().lower() for cell in cells_of[position]] for position, bit in self.header.reasons.items()
            }
            mask = sum(bit * np.array([flag == "active" for flag in of_bit], float) for bit, of_bit in flags.items())
            has_flag = np.any([[flag in ("active", "not active") for flag in of_bit] for of_bit in flags.values()], axis=0)
            values["clock_event_mask"] = np.where(has_flag, mask, values["clock_event_mask"])
        return list(values.values())

    def _times(self, cells_of: list[tuple[str, ...]], devices: list[int | None]) -> Iterator[int | None]:
        """Yield the time of each row; None for a row of an unknown device."""
        header = self.header
        if header.time is None:
            yield from (None if device is None else self._printout_ns(device) for device in devices)
            return
        dates = cells_of[header.date] if header.date is not None else itertools.repeat("")
        for text, date, device in zip(cells_of[header.time], dates, devices, strict=False):
            if device is None:
                yield None
                continue
            if (date, text) != self.last_time[0]:  # Usually the rows of all GPUs have the same time.
                dated = date and TIME_ONLY.fullmatch(text.strip())
                self.last_time = (date, text), self.times.ns(f"{date.strip()} {text.strip()}" if dated else text)
            yield self.last_time[1]

    def _printout_ns(self, device: int) -> int | None:
        """Return the time of a row from the number of its printout. A repeated GPU begins a printout."""
        if device in self.printed_devices:
            self.printed_devices.clear()
        if not self.printed_devices:
            self.printout += 1
        self.printed_devices.add(device)
        return self.counted_times.ns(self.printout) if self.counted_times is not None else None

    def telemetry(self) -> TelemetryTables:
        """Return the table of all rows.

        Raises SourceError if there are rows, and none can be read.
        """
        if self.unreadable:
            self.table.note("line_unreadable", "data_loss", UNREADABLE, example=self.example, count=self.unreadable)
        if self.count and self.count == self.unreadable:
            titles, filled = len(self.header.titles), len(cells(self.example, self.header.delimiter))
            advice = "A row needs a time such as 2026-09-27 08:00:00 and as many cells as the header."
            if filled != titles and len(self.example) < EXAMPLE_CHARACTERS:
                advice = f"The header has {titles} titles, but this row has {filled} cells. Give each cell its title."
            raise SourceError(
                "E-TYPE",
                f"None of the {self.count:,} rows below the header can be read. The first is {as_shown(self.example)}. {advice}",
            )
        self.rows.store(self.table, self.times.finish())
        self._scale_ratios()
        self._note_blanks()
        return self.table.telemetry()

    def _note_blanks(self) -> None:
        """Note the columns without a value in any row."""
        columns = {column for _, column in self.table.polled}
        blank = [self.header.titles[column.position] for column in self.header.columns if column.column not in columns]
        if blank and columns:
            note = f"No row has a value of {', '.join(map(as_shown, blank[:MAX_BLANKS_SHOWN]))}."
            if "util_pct" not in columns and any(column.column == "util_pct" for column in self.header.columns):
                note += " nvidia-smi shows no utilization for a GPU with MIG. Record it with dcgmi dmon -e 1001."
            self.table.note("column_blank", "info", note)

    def _scale_ratios(self) -> None:
        """Turn columns into percent if their title has no unit and no value is above MAX_RATIO."""
        without_unit = {
            c.column for c in self.header.columns if not any(sign in self.header.titles[c.position] for sign in "%[(")
        }
        for column in without_unit:
            if BY_COLUMN[column].unit != "percent":
                continue
            per_device = [series for (_, name), series in self.table.polled.items() if name == column]
            values = np.concatenate([np.array(series.values) for series in per_device]) if per_device else np.empty(0)
            if len(values) and values.max() <= MAX_RATIO and (values % 1).any():
                for series in per_device:
                    series.values = type(series.values)("d", (np.array(series.values) * 100).tolist())
                note = (
                    f"{BY_COLUMN[column].label} was read as ratios from 0 to 1, because its largest value is {values.max():g}."
                )
                self.table.note("scale_inferred", "info", note)
