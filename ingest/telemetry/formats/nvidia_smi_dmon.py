"""``nvidia-smi dmon``, also with ``-o DT`` (date and time), ``--gpm-metrics`` or ``--format csv``."""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.quantities.registry import names_in
from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables
from sawtooth.ingest.telemetry.table import SampleTable
from sawtooth.ingest.telemetry.values import Clockless, LocalTimes, number

DEFAULT_INTERVAL_NS = 1_000_000_000  # dmon's -d
# Header → column and factor. ``sm`` and ``mem`` of dmon are utilization.gpu and utilization.memory. GPM ids: 5 is mmaact, 7
# hmmat.
FIELDS = names_in("nvidia_smi_dmon")


def sniff(head: bytes) -> bool:
    """Return whether a ``#`` header has ``gpu`` and a known field."""
    for line in head.split(b"\n")[:20]:
        names = _header(line.decode(errors="replace"))
        if names and "gpu" in names and FIELDS.keys() & set(names):
            return True
    return False


def read(lines: Iterator[bytes]) -> TelemetryTables:
    """Read the rows by the header above them, which repeats and may change."""
    table = SampleTable()
    names: list[str] = []
    local = LocalTimes(table)
    clockless: Clockless | None = None
    index, seen = -1, set[int]()
    for raw in lines:
        line = raw.decode("utf-8", errors="replace")
        if header := _header(line):
            names = header if "gpu" in header else names  # the second # line has the units
            continue
        cells = _cells(line)
        if not cells or not names:
            continue
        row = dict(zip(names, cells, strict=False))
        number_of = number(row.get("gpu", ""))
        if len(cells) != len(names) or number_of is None:
            table.note("line_unreadable", "data_loss", "Lines that are not whole samples were left out.", example=line)
            continue
        device = int(number_of)
        if device in seen:
            seen.clear()
        if not seen:
            index += 1  # a new round over the GPUs
        seen.add(device)
        time_ns = _time(row, local)
        if time_ns is None:
            clockless = clockless or Clockless(DEFAULT_INTERVAL_NS, table, "nvidia-smi dmon")
            time_ns = clockless.ns(index)
        values = {FIELDS[n][0]: number(cell, FIELDS[n][1]) for n, cell in row.items() if n in FIELDS}
        table.devices.setdefault(device, {})
        table.add(device, time_ns, values)
    if not names:
        raise SourceError(
            "E-TYPE", "This looks like nvidia-smi dmon, but its header line is missing, so its columns have no names."
        )
    return table.telemetry()


def _header(line: str) -> list[str] | None:
    stripped = line.strip()
    if not stripped.startswith("#"):
        return None
    return [word.lower() for word in _cells(stripped.lstrip("#"))]


def _cells(line: str) -> list[str]:
    """Return the cells of a line; ``--format csv`` puts commas between them."""
    return [cell.strip() for cell in line.split(",")] if "," in line else line.split()


def _time(row: dict[str, str], local: LocalTimes) -> int | None:
    if "date" in row and "time" in row:
        return local.ns(f"{row['date']} {row['time']}", ("%Y%m%d %H:%M:%S",))
    return None


READER = Reader("nvidia-smi dmon", sniff, read)
