"""Output of ``nvidia-smi dmon`` and ``pmon``, also with dates, ``--gpm-metrics`` or ``--format csv``."""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.quantities.registry import names_in
from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables
from sawtooth.ingest.telemetry.rows import PrintoutTimes
from sawtooth.ingest.telemetry.table import SampleTable
from sawtooth.ingest.telemetry.timestamps import Timestamps
from sawtooth.ingest.telemetry.values import LocalTimes, number

# The column and the factor, by title. dmon's ``sm`` and ``mem`` are utilization.gpu and utilization.memory.
FIELDS = names_in("nvidia_smi_dmon")
WITHOUT_VALUES = "Rows without any value were left out, because nvidia-smi could not measure at these times."
# The sum over a GPU's processes in pmon is limited to this value, because processes can use the GPU at the same time.
LIMITS = {"util_pct": 100.0, "mem_busy_pct": 100.0}


def sniff(head: bytes) -> bool:
    """Return whether a ``#`` header has ``gpu`` and a known field."""
    for line in head.split(b"\n")[:20]:
        names = _header(line.decode(errors="replace"))
        if names and "gpu" in names and FIELDS.keys() & set(names):
            return True
    return False


def read(lines: Iterator[bytes]) -> TelemetryTables:
    """Read the rows. The header is repeated between rows, and may change."""
    table = SampleTable()
    names: list[str] = []
    local, stamps = LocalTimes(table), Timestamps(table)
    printouts = _MonitorPrintouts(table)
    for raw in lines:
        line = raw.decode("utf-8", errors="replace")
        if header := _header(line):
            names = header if "gpu" in header else names  # The second # line has the units.
            continue
        cells = _cells(line)
        if len(cells) != len(names) and printouts.times.set_if_date(line):
            continue
        if not cells or not names:
            continue
        if "pid" in names and len(cells) > len(names):
            cells = [*cells[: len(names) - 1], " ".join(cells[len(names) - 1 :])]  # The command may contain spaces.
        row = dict(zip(names, cells, strict=False))
        device = number(row.get("gpu", ""))
        if len(cells) != len(names) or device is None:
            table.note("line_unreadable", "data_loss", "Lines that are not whole samples were left out.", example=line)
            continue
        values = {FIELDS[name][0]: number(cell, FIELDS[name][1]) for name, cell in row.items() if name in FIELDS}
        time_ns = stamps.ns(row["time"]) if "time" in row and "date" not in row else _time(row, local)
        printouts.add(int(device), row.get("pid"), time_ns, values)
    printouts.end()
    if not names:
        raise SourceError(
            "E-TYPE", "This nvidia-smi dmon log has no header line, so its columns have no names. Add the header line."
        )
    return table.telemetry()


class _MonitorPrintouts:
    """Grouping of rows into printouts of all GPUs; rows of pmon are summed over a GPU's processes."""

    def __init__(self, table: SampleTable) -> None:
        self._table = table
        self.times = PrintoutTimes(table, "nvidia-smi dmon")
        self._index = -1
        self._rows: set[tuple[int, str | None]] = set()  # Device and process of the printout's rows so far.
        self._row_time: int | None = None  # The time in the row, if there is one.
        self._time = 0  # The printout's time.
        self._values: dict[int, dict[str, float | None]] = {}  # The printout's values by GPU.

    def add(self, device: int, pid: str | None, time_ns: int | None, values: dict[str, float | None]) -> None:
        """Add a row; ``pid`` is None in dmon, and "-" in pmon for a GPU without a process."""
        is_repeated = (device, pid) in self._rows or (pid is not None and device < max(self._values, default=0))
        if not self._rows or is_repeated or time_ns != self._row_time:
            self.end()
            self._index += 1
            self._row_time, self._time = time_ns, time_ns if time_ns is not None else self.times.ns(self._index)
        self._rows.add((device, pid))
        if pid is None:
            self._values[device] = values
            return
        sums = self._values.setdefault(device, {"process_count": 0.0})
        sums["process_count"] = (sums["process_count"] or 0.0) + (pid != "-")
        for column, value in values.items():  # A value is None if pmon wrote "-", because the process did nothing.
            sums[column] = (sums.get(column) or 0.0) + (value or 0.0)

    def end(self) -> None:
        """Store the printout that is being read."""
        for device, values in self._values.items():
            self._table.devices.setdefault(device, {})
            if all(value is None for value in values.values()):
                self._table.note("rows_blank", "data_loss", WITHOUT_VALUES)
            self._table.add(device, self._time, {column: _limited(column, value) for column, value in values.items()})
        self._values, self._rows = {}, set()


def _limited(column: str, value: float | None) -> float | None:
    return min(value, LIMITS[column]) if value is not None and column in LIMITS else value


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


READER = Reader("nvidia-smi dmon", sniff, read, takes_dates=True)
