"""Tables in long format, with one value per row: time, GPU, name of a quantity, value.

Scripts around DCGM's API, InfluxDB's exports (``_time,_field,_value``) and MLflow's tables of metrics have this form.
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.ingest.errors import SourceError, as_shown
from sawtooth.ingest.quantities.throttling import THROTTLE_REASONS
from sawtooth.ingest.telemetry.device_numbers import DeviceNumbers
from sawtooth.ingest.telemetry.find_header import find_header, text_of
from sawtooth.ingest.telemetry.headers import Header, SourceColumn, find_quantity
from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables
from sawtooth.ingest.telemetry.table import UNREADABLE, SampleTable
from sawtooth.ingest.telemetry.timestamps import Timestamps
from sawtooth.ingest.telemetry.values import cells, number

NAME = "table with one value per row"
NAMES_SHOWN = 6  # An error message lists at most this many unknown names.
DECIDING_ROWS = 512  # The column that identifies the GPU is chosen from this many rows.
# DCGM also writes each reason for lower clocks separately. These values are not needed, because the mask contains them.
_REASONS = tuple(f"throttle_reason_{reason.nvidia_smi}" for reason in THROTTLE_REASONS)


def sniff(head: bytes) -> bool:
    """Return whether one of the first lines is a header with titles for time, quantity's name and value."""
    if head.lstrip()[:1] in (b"{", b"["):
        return False
    header, _ = find_header(text_of(iter(head.split(b"\n"))))
    return header is not None and header.is_long


def read(lines: Iterator[bytes]) -> TelemetryTables:
    """Read the rows. Raises SourceError if none of their names is known."""
    text = text_of(lines)
    header, _ = find_header(text)
    if header is None or header.time is None or header.metric is None or header.value is None:
        raise SourceError("E-TYPE", "This table has no header line, so its columns have no names. Add the header line.")
    table = SampleTable()
    times = Timestamps(table, utc=header.utc, unit_s=header.unit_s)
    known_titles: dict[str, SourceColumn | None] = {}
    unknown: dict[str, None] = {}
    rows = [row for line in text if line.strip() and (row := cells(line, header.delimiter)) != header.titles]
    numbers = DeviceNumbers(header, table, rows[:DECIDING_ROWS])
    whole = [row for row in rows if len(row) == len(header.titles)]
    if len(whole) < len(rows):
        table.note("line_unreadable", "data_loss", UNREADABLE, count=len(rows) - len(whole))
    cells_of = list(zip(*whole, strict=True)) if whole else [()] * len(header.titles)
    for row, row_device in zip(whole, numbers.numbers(whole, cells_of), strict=True):
        title = row[header.metric].strip()
        if title not in known_titles:
            known_titles[title] = _column(title)
        column = known_titles[title]
        if column is None:
            unknown.setdefault(title)
            continue
        time_ns, value = times.ns(row[header.time]), number(row[header.value], column.factor)
        device = column.device if column.device is not None else row_device
        if time_ns is None or device is None:
            table.note("line_unreadable", "data_loss", UNREADABLE, example=header.delimiter.join(row)[:200])
        elif value is not None:
            table.devices.setdefault(device, {})
            table.add(device, time_ns, {column.column: value})
    if table.is_empty():
        raise SourceError("E-TYPE", _no_quantity_message(header, [title for title in unknown if title]))
    skipped = [title for title in unknown if title not in _REASONS]
    if skipped:
        sentence = "Unknown quantities were left out."
        table.note("series_unknown", "info", sentence, example=", ".join(skipped[:NAMES_SHOWN]), count=len(skipped))
    return table.telemetry()


def _column(title: str) -> SourceColumn | None:
    quantity = find_quantity(title.removeprefix("system/")) or find_quantity(title.rsplit("/", 1)[-1])
    return quantity[1] if quantity is not None else None


def _no_quantity_message(header: Header, unknown: list[str]) -> str:
    """Return the error message for a table with ``unknown`` names, and how to change the table."""
    metric, value, time = (
        header.titles[position] for position in (header.metric, header.value, header.time) if position is not None
    )
    if not unknown:
        return (
            f"This table has one value per row, in the column {as_shown(value)}. No row has a number of a known quantity. "
            "Record utilization, power, clocks or memory."
        )
    names = ", ".join(as_shown(title) for title in unknown[:NAMES_SHOWN])
    more = f" and {len(unknown) - NAMES_SHOWN} more" if len(unknown) > NAMES_SHOWN else ""
    index = [time, *(header.titles[position] for position in header.devices[:1])]
    return (
        f"This table has one value per row. The column {as_shown(metric)} names {names}{more}. None of them is a known GPU quantity. "
        f"Rename them to names such as utilization.gpu, memory.used (MiB), power.draw (W) or clocks.sm (MHz). Or give each quantity its own column, "
        f"in pandas: df.pivot_table(index={index}, columns={metric!r}, values={value!r})."
    )


READER = Reader(NAME, sniff, read)
