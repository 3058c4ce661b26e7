"""``nvidia-smi --query-gpu=… --format=csv``: any columns in any order, with or without units."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.quantities.registry import QUANTITIES, names_in
from sawtooth.ingest.quantities.throttling import THROTTLE_REASONS
from sawtooth.ingest.telemetry.reader import Reader, Telemetry
from sawtooth.ingest.telemetry.table import MOST_DEVICES, UNREADABLE, SampleTable
from sawtooth.ingest.telemetry.values import MIB, UNITS, LocalTimes, cells, number

TIME_PATTERNS = ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S")
# Query field → column, and the factor if neither header nor cell has a unit (nvidia-smi's own unit).
FIELDS = names_in("nvidia_smi")
# The reasons for lower clocks may also be queried one by one, with "Active" or "Not Active" in one column each.
REASONS = {
    f"{prefix}.{reason.nvidia_smi}": reason.bit
    for reason in THROTTLE_REASONS
    if reason.nvidia_smi
    for prefix in ("clocks_event_reasons", "clocks_throttle_reasons")
}
IDENTITY = ("uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "index")
_NAME = re.compile(r"\s*([\w.]+)\s*(?:\[([^\]]*)\])?\s*")


def sniff(head: bytes) -> bool:
    """Return whether the first line is a header with at least one known field."""
    first = head.lstrip(b"\xef\xbb\xbf\r\n ").split(b"\n", 1)[0]
    names = {name for name, _ in _header(first.decode(errors="replace"))[1]}
    return bool(names & FIELDS.keys()) and not first.lstrip().startswith((b"{", b"[", b"#"))


def read(lines: Iterator[bytes]) -> Telemetry:
    """Read the rows.

    Raises SourceError without a timestamp column.
    """
    table = SampleTable()
    text = (line.decode("utf-8", errors="replace").lstrip("\ufeff").replace("\r", " ") for line in lines)
    first = next((line for line in text if line.strip()), "")
    delimiter, header = _header(first)
    names = [name for name, _ in header]
    if "timestamp" not in names:
        problem = "This nvidia-smi log has no timestamp column, so its samples cannot be placed in time. Record it with --query-gpu=timestamp,…"
        raise SourceError("E-TYPE", problem)
    columns = _columns(header)
    times = LocalTimes(table)
    devices: dict[str, int] = {}
    for line in text:
        if not line.strip() or not (row_cells := cells(line, delimiter)) or _header(line)[1] == header:
            continue  # an empty line, or the header again where logs were appended
        row = dict(zip(names, row_cells, strict=False))
        time_ns = times.ns(row.get("timestamp", "").strip(), TIME_PATTERNS)
        if time_ns is None or len(row_cells) != len(names) or not 0 <= (number(row.get("index", "")) or 0) < MOST_DEVICES:
            table.note("line_unreadable", "data_loss", UNREADABLE, example=line)
            continue
        device = _device(row, devices, table)
        table.add(
            device, time_ns, _mask(row) | {column: number(row[name], factor) for name, (column, factor) in columns.items()}
        )
    return table.telemetry()


def _header(line: str) -> tuple[str, list[tuple[str, str]]]:
    delimiter = max(",;\t", key=line.count)
    cells = [_NAME.fullmatch(cell.strip().strip('"')) for cell in line.split(delimiter)]
    return delimiter, [(c.group(1).lower(), (c.group(2) or "").lower()) if c else ("", "") for c in cells]


def _columns(header: list[tuple[str, str]]) -> dict[str, tuple[str, float]]:
    """Return the used columns of the file with their column of ``samples`` and their factor.

    If several columns have one quantity, the first in the order of its registry row is used.
    """
    units = dict(reversed(header))
    chosen: dict[str, tuple[str, float]] = {}
    for quantity in QUANTITIES:
        name = next((n for n in quantity.names.get("nvidia_smi", {}) if n in units), None)
        if name is not None:
            column, factor = FIELDS[name]
            chosen[name] = (column, UNITS.get(units[name], factor))
    return chosen


def _mask(row: dict[str, str]) -> dict[str, float | None]:
    """Return NVML's mask from the columns of single reasons for lower clocks."""
    cells = {REASONS[name]: cell.strip().lower() for name, cell in row.items() if name in REASONS}
    known = [bit for bit, cell in cells.items() if cell in ("active", "not active")]
    return {"clock_event_mask": sum(bit for bit in known if cells[bit] == "active")} if known else {}


def _device(row: dict[str, str], devices: dict[str, int], table: SampleTable) -> int:
    key = next((row[k].strip() for k in IDENTITY if k in row), "")
    if key not in devices:
        index = number(row.get("index", ""))
        device = int(index) if index is not None and int(index) not in devices.values() else len(devices)
        devices[key] = device
        uuid = row.get("uuid") or row.get("gpu_uuid")
        name = row.get("name") or row.get("gpu_name")
        table.devices[device] = {"name": name.strip() if name else None, "uuid": uuid.strip() if uuid else None}
        total = number(row["memory.total"], MIB) if "memory.total" in row else None
        table.devices[device]["memory_bytes"] = int(total) if total is not None else None
        if row.get("driver_version"):
            table.driver_version = row["driver_version"].strip()
    return devices[key]


READER = Reader("nvidia-smi CSV", sniff, read)
