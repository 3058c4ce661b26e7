"""``nvidia-smi dmon`` and ``pmon``, also with dates, ``--gpm-metrics`` or ``--format csv``."""

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
MOST = {"util_pct": 100.0, "mem_busy_pct": 100.0}  # the shares of several processes overlap


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
    rounds = _MonitorRounds(table)
    for raw in lines:
        line = raw.decode("utf-8", errors="replace")
        if header := _header(line):
            names = header if "gpu" in header else names  # the second # line has the units
            continue
        cells = _cells(line)
        if not cells or not names:
            continue
        if "pid" in names and len(cells) > len(names):
            cells = [*cells[: len(names) - 1], " ".join(cells[len(names) - 1 :])]  # a command with spaces
        row = dict(zip(names, cells, strict=False))
        number_of = number(row.get("gpu", ""))
        if len(cells) != len(names) or number_of is None:
            table.note("line_unreadable", "data_loss", "Lines that are not whole samples were left out.", example=line)
            continue
        values = {FIELDS[n][0]: number(cell, FIELDS[n][1]) for n, cell in row.items() if n in FIELDS}
        rounds.add(int(number_of), row.get("pid"), _time(row, local), values)
    rounds.end()
    if not names:
        raise SourceError(
            "E-TYPE", "This looks like nvidia-smi dmon, but its header line is missing, so its columns have no names."
        )
    return table.telemetry()


class _MonitorRounds:
    """Adds rows round by round over the GPUs; of pmon, the sum over a GPU's processes."""

    def __init__(self, table: SampleTable) -> None:
        self._table = table
        self._clockless: Clockless | None = None
        self._index = -1
        self._seen: set[tuple[int, str | None]] = set()
        self._time: int | None = None
        self._of_gpu: dict[int, dict[str, float | None]] = {}

    def add(self, device: int, pid: str | None, time_ns: int | None, values: dict[str, float | None]) -> None:
        """Add a row; ``pid`` is None in dmon, and "-" in pmon for a GPU without a process."""
        again = (device, pid) in self._seen or (pid is not None and device < max(self._of_gpu, default=0))
        if not self._seen or again or time_ns != self._time:
            self.end()
            self._index += 1  # a new round over the GPUs
            self._time = time_ns
        self._seen.add((device, pid))
        if pid is None:
            self._of_gpu[device] = values
            return
        sums = self._of_gpu.setdefault(device, {"process_count": 0.0})
        sums["process_count"] = (sums["process_count"] or 0.0) + (pid != "-")
        for column, value in values.items():  # pmon writes "-" for a process that did nothing
            sums[column] = (sums.get(column) or 0.0) + (value or 0.0)

    def end(self) -> None:
        """Store the round that is being read."""
        if self._of_gpu and self._time is None:
            self._clockless = self._clockless or Clockless(DEFAULT_INTERVAL_NS, self._table, "nvidia-smi dmon")
        time_ns = self._time if self._time is not None or self._clockless is None else self._clockless.ns(self._index)
        for device, values in self._of_gpu.items():
            self._table.devices.setdefault(device, {})
            if time_ns is not None:
                self._table.add(
                    device, time_ns, {c: min(v, MOST[c]) if v is not None and c in MOST else v for c, v in values.items()}
                )
        self._of_gpu, self._seen = {}, set()


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
