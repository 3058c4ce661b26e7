"""Tables of samples with a header and delimiters (CSV), of any tool: rows into the common table."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator

import numpy as np

from sawtooth.ingest.errors import SourceError, as_shown
from sawtooth.ingest.quantities.registry import BY_COLUMN, possible
from sawtooth.ingest.telemetry.headers import SEARCHED, Header, SourceColumn, header_of
from sawtooth.ingest.telemetry.reader import TelemetryTables
from sawtooth.ingest.telemetry.rows import SampleRows
from sawtooth.ingest.telemetry.table import BLANK, MOST_DEVICES, UNREADABLE, SampleTable
from sawtooth.ingest.telemetry.timestamps import Timestamps
from sawtooth.ingest.telemetry.values import Clockless, cells, number

DEFAULT_INTERVAL_NS = 1_000_000_000
KEPT_CELLS = 100_000  # different texts whose numbers are remembered; most values of a log recur
RATIO_MOST = 1.0  # the largest value of a share that is written from 0 to 1
BURST = 0.05  # of the time between two rounds over the GPUs: the rows of one round are written at once
MOST_LINES_OF_ROW = 4
_WHOLE_SECONDS = re.compile(r"\d:\d\d:\d\d\s*$")
_FRACTION = re.compile(r"\d{1,9}(?:Z|[+-]\d\d:?\d\d)?")
_NUMBER_AT_END = re.compile(r"(?:(?:gpu|card|cuda|nvidia|device|npu|renderd?)[ :_#-]*)?(\d+)", re.IGNORECASE)


def text_of(lines: Iterator[bytes]) -> Iterator[str]:
    """Yield the lines as text."""
    return (line.decode("utf-8", errors="replace").lstrip("\ufeff").replace("\r", " ") for line in lines)


def find_header(text: Iterator[str]) -> tuple[Header | None, Header | None]:
    """Return the first header with a known quantity, else the first line that looks like a table's header.

    At most SEARCHED lines are read.
    """
    table: Header | None = None
    for line in itertools.islice(text, SEARCHED):
        header = header_of(line) if line.strip() else None
        if header is None:
            continue
        if header.known:
            return header, None
        if (
            table is None
            and len(header.titles) > 1
            and sum(any(map(str.isalpha, t)) for t in header.titles) > len(header.titles) / 2
        ):
            table = header
    return None, table


def read_delimited(lines: Iterator[bytes], tool: str) -> TelemetryTables:
    """Read the rows of a table with a known header.

    Raises SourceError if the header is missing, or if no row can be read.
    """
    text = text_of(lines)
    header, _ = find_header(text)
    if header is None:
        raise SourceError("E-TYPE", "The header line of this table is missing, so its columns have no names.")
    reader = _Rows(header, tool)
    for line in _whole_rows(text):
        reader.add(line)
    return reader.telemetry()


def _whole_rows(text: Iterator[str]) -> Iterator[str]:
    """Yield the rows; one with a line break inside a quoted cell is put together again.

    A quote that nothing closes within MOST_LINES_OF_ROW lines belongs to its own line only.
    """
    held: list[str] = []
    for line in text:
        held.append(line)
        if sum(part.count('"') for part in held) % 2 == 0:
            yield "\n".join(held)
            held = []
        elif len(held) == MOST_LINES_OF_ROW:
            yield from held
            held = []
    yield from held


def _with_whole_time(row: list[str], header: Header) -> list[str]:
    """Return the row with one cell for its time, where a decimal comma in the seconds made two of it.

    ``date --iso-8601=ns`` and Python's logging write such times.
    """
    at = header.time
    if at is None or header.delimiter != "," or len(row) != len(header.titles) + 1 or at + 1 >= len(row):
        return row
    if not (_WHOLE_SECONDS.search(row[at]) and _FRACTION.fullmatch(row[at + 1].strip())):
        return row
    return [*row[:at], f"{row[at].strip()}.{row[at + 1].strip()}", *row[at + 2 :]]


class _Rows:
    """Reads the rows below one header."""

    def __init__(self, header: Header, tool: str) -> None:
        self.header, self.tool = header, tool
        self.table = SampleTable()
        self.times = Timestamps(self.table)
        self.clockless = Clockless(DEFAULT_INTERVAL_NS, self.table, tool) if header.time is None else None
        names = list(dict.fromkeys(column.column for column in header.columns))
        self.names = names + (["clock_event_mask"] if header.reasons and "clock_event_mask" not in names else [])
        self.rows = SampleRows(self.names)
        self.devices: dict[tuple[str, str], int] = {}
        self.wide = sorted({column.device for column in header.columns if column.device is not None})
        self.numbers: dict[tuple[float, str, str], float] = {}
        self.seen: set[int] = set()
        self.count, self.unreadable, self.round = 0, 0, -1
        self.example = ""

    def add(self, line: str) -> None:
        """Read one line."""
        header = self.header
        if not line.strip() or not (row := cells(line, header.delimiter)):
            return
        if row[0].strip().strip("#") == header.titles[0] and [cell.strip() for cell in row] == header.titles:
            return  # the header again where logs were appended, or rocm-smi's between samples
        self.count += 1
        row = _with_whole_time(row, header)
        whole = len(row) == len(header.titles)
        time_ns = self._time(row) if whole or header.time is None else None  # a torn date reads as another kind of time
        device = self._device(row) if time_ns is not None and whole else None
        if time_ns is None or device is None or not 0 <= time_ns < 1 << 62:
            self.unreadable += 1
            self.example = self.example or line[:200]
            return
        if header.partition is not None and row[header.partition].strip() not in ("", "0", "N/A", "-"):
            self.table.note("instances_left_out", "info", "Rows of further partitions of a GPU were left out.")
            return
        if self.wide:
            for number_of in self.wide:
                self._take(number_of, time_ns, row, [c for c in header.columns if c.device == number_of])
        else:
            self._take(device, time_ns, row, header.columns)

    def _take(self, device: int, time_ns: int, row: list[str], columns: list[SourceColumn]) -> None:
        values = dict.fromkeys(self.names, math.nan)
        clocks = []
        for column in columns:
            value = self._number(row[column.place], column)
            if column.column == "clock_sm_mhz":
                clocks.append(value)
            values[column.column] = value
        working = [clock for clock in clocks if clock > 0]
        if len(clocks) > 1 and working:  # several dies of one GPU
            values["clock_sm_mhz"] = sum(working) / len(working)
        if self.header.reasons:
            known = {bit: row[place].strip().lower() for place, bit in self.header.reasons.items()}
            active = [bit for bit, cell in known.items() if cell == "active"]
            if active or "not active" in known.values():
                values["clock_event_mask"] = float(sum(active))
        self.rows.add(device, time_ns, list(values.values()))

    def _number(self, cell: str, column: SourceColumn) -> float:
        key = (column.factor, column.column, cell)
        if key not in self.numbers:
            if len(self.numbers) >= KEPT_CELLS:
                self.numbers.clear()
            value = number(cell.split("\n")[0], column.factor)
            kept = None if value is None else possible(column.column, value)
            if value is not None and kept is None:
                self.table.note(BLANK["key"], BLANK["severity"], BLANK["sentence"], example=f"{column.column} = {value!r}")
            self.numbers[key] = math.nan if kept is None else kept
        return self.numbers[key]

    def _time(self, row: list[str]) -> int | None:
        header = self.header
        if header.time is None:
            device = self._device(row)
            if device is None:
                return None
            if device in self.seen:
                self.seen.clear()
            if not self.seen:
                self.round += 1  # a new round over the GPUs
            self.seen.add(device)
            return self.clockless.ns(self.round) if self.clockless is not None else None
        if header.time >= len(row):
            return None
        text = row[header.time]
        if header.date is not None and header.date < len(row):
            text = f"{row[header.date].strip()} {text.strip()}"
        return self.times.ns(text)

    def _device(self, row: list[str]) -> int | None:
        """Return the number of the GPU that a row describes; None if it is impossible."""
        header = self.header
        if header.device is not None and header.device >= len(row):
            return None
        host = row[header.host].strip() if header.host is not None and header.host < len(row) else ""
        index = row[header.device].strip() if header.device is not None else ""
        uuid = row[header.uuid].strip() if header.uuid is not None and header.uuid < len(row) else ""
        key = (host, uuid or index)
        if key not in self.devices:
            match = _NUMBER_AT_END.fullmatch(index)
            if match is None and (index[:1] == "-" or not (index or uuid or header.device is None)):
                return None
            wanted = int(match.group(1)) if match else len(self.devices)
            if wanted >= MOST_DEVICES or len(self.devices) >= MOST_DEVICES:
                return None
            taken = set(self.devices.values())
            device = wanted if wanted not in taken else next(n for n in itertools.count() if n not in taken)
            self.devices[key] = device
            self.table.places[device] = (host, index or uuid)
            self._describe(device, host, uuid, row)
        return self.devices[key]

    def _describe(self, device: int, host: str, uuid: str, row: list[str]) -> None:
        header = self.header

        def cell(place: int | None) -> str | None:
            text = row[place].strip() if place is not None and place < len(row) else ""
            return text if text and text[0] not in "[-" else None

        total = next((c for c in header.columns if c.column == "mem_total_bytes"), None)
        memory = self._number(row[total.place], total) if total is not None and total.place < len(row) else math.nan
        self.table.devices[device] = {
            "name": cell(header.name),
            "uuid": uuid if uuid and ":" not in uuid else None,
            "memory_bytes": int(memory) if math.isfinite(memory) else None,
        }
        self.table.driver_version = self.table.driver_version or cell(header.driver)
        hosts = {known for known, _ in self.devices if known}
        self.table.host = host if len(hosts) == 1 else None
        if len(hosts) > 1 and "several_hosts" not in self.table.diagnostics:
            self.table.note(
                "several_hosts", "info", "The file holds several hosts; their GPUs are numbered one after the other."
            )

    def telemetry(self) -> TelemetryTables:
        """Return the table of all rows.

        Raises SourceError if there are rows, and none can be read.
        """
        if self.unreadable:
            self.table.note("line_unreadable", "data_loss", UNREADABLE, example=self.example, count=self.unreadable)
        if self.count and self.count == self.unreadable:
            where = as_shown(self.example)
            raise SourceError(
                "E-TYPE",
                f"None of the {self.count:,} rows below the header can be read: the first is {where}. "
                "Expected are times such as 2026-09-27 08:00:00 and as many cells as the header has.",
            )
        self.rows.store(self.table, self.times.finish())
        self._scale_ratios()
        return self.table.telemetry()

    def _scale_ratios(self) -> None:
        """Turn shares from 0 to 1 into percent, where no value of a quantity without a unit is larger."""
        plain = {c.column for c in self.header.columns if not any(sign in self.header.titles[c.place] for sign in "%[(")}
        for column in plain:
            if BY_COLUMN[column].unit != "percent":
                continue
            of = [series for (_, name), series in self.table.polled.items() if name == column]
            values = np.concatenate([np.array(series.values) for series in of]) if of else np.empty(0)
            if len(values) and values.max() <= RATIO_MOST and (values % 1).any():
                for series in of:
                    series.values = type(series.values)("d", (np.array(series.values) * 100).tolist())
                note = f"{BY_COLUMN[column].label} was taken as ratios from 0 to 1: its largest value is {values.max():g}."
                self.table.note("scale_inferred", "info", note)
