"""Errors for telemetry that cannot be read: output for people, and tables with unknown columns.

For a table, the error shows the header and how to rename the columns.
"""

from __future__ import annotations

import re

from sawtooth.ingest.errors import SourceError, as_shown
from sawtooth.ingest.source import wrong_type_error
from sawtooth.ingest.telemetry.find_header import find_header, rows_below, text_of
from sawtooth.ingest.telemetry.headers import Header, parse_header
from sawtooth.ingest.telemetry.table import SampleTable
from sawtooth.ingest.telemetry.timestamps import Timestamps, are_times
from sawtooth.ingest.telemetry.values import cells, number

# Output for people contains one of these texts in lower case. nvitop draws boxes with U+2502.
PRINTED_SIGNS = (b"nvidia-smi", b"\xe2\x94\x82 nvitop ")
RECORD_SERIES = (
    "Record with: nvidia-smi --query-gpu=timestamp,index,utilization.gpu,power.draw --format=csv -lms 100 -f smi.csv"
)
XID_ADVICE = "Look them up in NVIDIA's list of Xid errors. Samples of DCGM or nvidia-smi show what the GPUs did before."
_XID = re.compile(rb"NVRM: Xid \([^)]*\): (\d+)")
TITLES_SHOWN = 8  # An error lists at most this many titles.
MIN_ROWS = 2  # A table has at least this many rows.
KNOWN_TITLES = "timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W], temperature.gpu, clocks.sm [MHz]"
NO_SUGGESTION = "?"  # This text replaces a column's title if none can be suggested.
# Matches a title that names a GPU but no quantity. Grafana's titles have the host before the GPU, or all labels of a series.
_ONE_GPU = re.compile(r"(?:[^,]*[^a-z0-9])?(?:gpu|device|card)[ _=\"-]*(\d+)[^a-z0-9]*(?:,.*)?", re.IGNORECASE)
# Titles that are suggested for the first and for further columns with a unit.
SUGGESTED_TITLES = {
    "%": ("utilization.gpu [%]", "utilization.memory [%]"),
    "MiB": ("memory.used [MiB]", "memory.total [MiB]"),
    "MHz": ("clocks.sm [MHz]", "clocks.mem [MHz]"),
    "W": ("power.draw [W]", "power.limit [W]"),
    "mW": ("power.draw [mW]", "power.limit [mW]"),
}
MAX_PCT = 110.0  # Larger values cannot be a utilization.
# Words in an unknown title, and the title that is suggested.
TITLE_WORDS = (
    (re.compile(r"time|date|stamp", re.IGNORECASE), "timestamp"),
    (re.compile(r"util|usage|load|busy|activ", re.IGNORECASE), "utilization.gpu [%]"),
    (re.compile(r"mem|vram|fb", re.IGNORECASE), "memory.used [MiB]"),
    (re.compile(r"pow|watt", re.IGNORECASE), "power.draw [W]"),
    (re.compile(r"temp(?!el|o)|celsius", re.IGNORECASE), "temperature.gpu"),
    (re.compile(r"clock|mhz|freq", re.IGNORECASE), "clocks.sm [MHz]"),
    (re.compile(r"gpu|device|index|card", re.IGNORECASE), "index"),
)


def refuse_printed(head: bytes) -> None:
    """Raise SourceError for one printout of nvidia-smi or nvitop, and for a log of Xid errors."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:512].lower()
    is_series = head.count(b"| NVIDIA-SMI ") + head.count(b" NVITOP ") > 1  # Several printouts are telemetry.
    if not is_series and not start.startswith((b"{", b"[")) and any(sign in start for sign in PRINTED_SIGNS):
        raise wrong_type_error("human-readable output of nvidia-smi or nvitop", RECORD_SERIES)
    if xids := sorted({int(number) for number in _XID.findall(head)}):
        raise wrong_type_error(f"a log of the kernel with the GPU errors Xid {', '.join(map(str, xids))}", XID_ADVICE)


def refuse_unknown_table(head: bytes) -> None:
    """Raise SourceError if ``head`` is a table without any known column."""
    first = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if first in (b"{", b"[", b"<", b"") or b"\x00" in head[:1024]:
        return
    if b"npu-smi" in head[:1024]:
        sentence = "This is the overview of npu-smi info, which shows one moment without times. Record npu-smi info watch."
        raise SourceError("E-TYPE", sentence)
    lines = head.split(b"\n")
    known, unknown = find_header(text_of(iter(lines)))
    header = known or unknown
    if header is None:
        _refuse_without_header(lines)
        return
    if not _has_rows(header, lines):
        return
    titles = ", ".join(as_shown(title) for title in header.titles[:TITLES_SHOWN])
    more = f" and {len(header.titles) - TITLES_SHOWN} more" if len(header.titles) > TITLES_SHOWN else ""
    raise SourceError(
        "E-TYPE",
        f"This is a table with the columns {titles}{more}. {_advice(header, rows_below(header, lines))} Known columns are, for example, {KNOWN_TITLES}.",
    )


def _refuse_without_header(lines: list[bytes]) -> None:
    """Raise SourceError if the lines are rows of samples, without a header that names their columns."""
    rows = [cells(line, ",") for line in list(text_of(iter(lines)))[: MIN_ROWS + 1]]
    times = Timestamps(SampleTable())
    if len(rows) > MIN_ROWS and all(row and all(map(_unit_of, row)) for row in rows[1:]):
        raise SourceError(
            "E-TYPE",
            f"This table has no column of times. A row is {as_shown(', '.join(rows[1]))}. "
            "Record it with nvidia-smi --query-gpu=timestamp,index,utilization.gpu,memory.used --format=csv -l 1.",
        )
    rows = rows[:MIN_ROWS]
    dated = [row for row in rows if len(row) > 1 and sum(times.ns(cell) is not None and ":" in cell for cell in row) == 1]
    if len(dated) < MIN_ROWS:
        return
    if any(not any(number(cell) is not None for cell in row[1:]) for row in dated):
        return  # The lines are a log without numbers.
    names = [_title_by_unit(cell, times, dated[0][:position]) for position, cell in enumerate(dated[0])]
    guess = f" The units suggest the names {', '.join(names)}." if any(name != NO_SUGGESTION for name in names[1:]) else ""
    raise SourceError(
        "E-TYPE",
        f"This table has no header, so its columns have no names. The first row is {as_shown(', '.join(dated[0]))}. "
        f"Add the names from your --query-gpu as the first line, or record without noheader.{guess}",
    )


def _title_by_unit(cell: str, times: Timestamps, earlier_cells: list[str]) -> str:
    """Return the title that a cell's unit suggests; ``earlier_cells`` are to the left of the cell."""
    if ":" in cell and times.ns(cell) is not None:
        return "timestamp"
    unit = _unit_of(cell)
    if unit is None:
        return NO_SUGGESTION
    earlier_with_unit = sum(other.strip().endswith(f" {unit}") for other in earlier_cells)
    return SUGGESTED_TITLES[unit][min(earlier_with_unit, len(SUGGESTED_TITLES[unit]) - 1)]


def _unit_of(cell: str) -> str | None:
    return next((unit for unit in SUGGESTED_TITLES if cell.strip().endswith(f" {unit}")), None)


def _has_rows(header: Header, lines: list[bytes]) -> bool:
    """Return whether MIN_ROWS lines have the header's number of cells and a number or a time."""
    table = SampleTable()
    times = Timestamps(table)
    rows = 0
    for line in list(text_of(iter(lines)))[1:50]:
        row = cells(line, header.delimiter)
        if len(row) == len(header.titles) and any(times.ns(cell) is not None for cell in row):
            rows += parse_header(line).titles != header.titles
    return rows >= MIN_ROWS


def _suggested_title(title: str, values: list[str], used_titles: set[str]) -> str | None:
    """Return a known title that is not ``used_titles``, by the words or else the unit in ``title``."""
    by_unit = next((names[0] for unit, names in SUGGESTED_TITLES.items() if f"[{unit}]" in title or f"({unit})" in title), None)
    for words, name in TITLE_WORDS:
        fits = words.search(title) and name not in used_titles
        if fits and not (name == "index" and by_unit) and not (name == "timestamp" and not _may_be_times(values)):
            return name
    return by_unit if by_unit not in used_titles else None


def _may_be_times(values: list[str]) -> bool:
    """Return whether the cells have no numbers, or numbers that rise, so that they may be times."""
    numbers = [value_read for cell in values if (value_read := number(cell)) is not None]
    return not numbers or (numbers == sorted(numbers) and numbers[0] < numbers[-1])


def _title_with_quantity(gpu: str, values: list[str]) -> str:
    """Return a title for a column of GPU number ``gpu``, with the quantity that ``values`` suggest."""
    highest = max((value_read for cell in values if (value_read := number(cell)) is not None), default=0.0)
    return f"GPU {gpu} utilization.gpu [%]" if highest <= MAX_PCT else f"GPU {gpu} power.draw [W]"


def _advice(header: Header, rows: list[list[str]]) -> str:
    """Return which columns to rename, and how."""
    used_titles: set[str] = set()
    if header.has_quantity:
        used_titles = {"utilization.gpu [%]", "memory.used [MiB]", "power.draw [W]", "temperature.gpu", "clocks.sm [MHz]"}
    renamings = []
    understood = {column.position for column in header.columns} | {
        header.time,
        header.host,
        header.uuid,
        header.name,
        *header.devices,
    }
    for position, title in enumerate(header.titles):
        if position in understood:
            continue
        if (gpu := _ONE_GPU.fullmatch(title)) is not None:
            renamings.append(f"{as_shown(title)} to {_title_with_quantity(gpu[1], [row[position] for row in rows])}")
            continue
        values = [row[position] for row in rows]
        suggested = "timestamp" if are_times(values) else _suggested_title(title, values, used_titles)
        if suggested is not None:
            used_titles.add(suggested)
            renamings.append(f"{as_shown(title)} to {suggested}")
    missing = "" if "timestamp" in used_titles or header.time is not None else " It needs a column timestamp."
    if renamings:
        which = " Use the quantity that the columns contain." if any(map(_ONE_GPU.fullmatch, header.titles)) else ""
        return f"Rename {', '.join(renamings)}.{which}{missing}"
    return f"None of them names a GPU quantity.{missing}"
