"""Find the header line of a table, and the column that has its times."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from sawtooth.ingest.telemetry.headers import HEADER_SEARCH_LINES, Header, parse_header
from sawtooth.ingest.telemetry.timestamps import are_times
from sawtooth.ingest.telemetry.values import cells

DECIDING_ROWS = 64  # A column of times is found from this many rows.


def text_of(lines: Iterator[bytes]) -> Iterator[str]:
    """Yield the lines as text."""
    return (line.decode("utf-8", errors="replace").lstrip("\ufeff").replace("\r", " ") for line in lines)


def find_header(text: Iterator[str]) -> tuple[Header | None, Header | None]:
    """Return (header, None) for the first header with a known quantity.

    If there is none, return (None, header) for the first line that looks like a table's header, else (None, None). At most
    HEADER_SEARCH_LINES lines are read.
    """
    table: Header | None = None
    for line in itertools.islice(text, HEADER_SEARCH_LINES):
        header = parse_header(line) if line.strip() else None
        if header is None:
            continue
        if header.has_quantity or header.is_long:
            return header, None
        titles_with_letters = sum(any(map(str.isalpha, title)) for title in header.titles)
        if table is None and len(header.titles) > 1 and titles_with_letters > len(header.titles) / 2:
            table = header
    return None, table


def rows_below(header: Header, lines: Iterable[bytes]) -> list[list[str]]:
    """Return the first rows after the header that have the header's number of cells."""
    rows = [cells(line, header.delimiter) for line in itertools.islice(text_of(iter(lines)), 1, DECIDING_ROWS)]
    return [row for row in rows if len(row) == len(header.titles) and [cell.strip() for cell in row] != header.titles]


def time_position(header: Header, rows: Sequence[Sequence[str]]) -> int | None:
    """Return the position of the first unused column in which all cells are absolute times; else None."""
    used = {column.position for column in header.columns}
    unused = (position for position in range(len(header.titles)) if position not in used)
    return next((position for position in unused if are_times([row[position] for row in rows])), None)
