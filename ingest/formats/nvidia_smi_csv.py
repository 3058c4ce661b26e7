"""``nvidia-smi --query-gpu=… --format=csv``: any columns in any order, with or without units."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ingest.errors import SourceError
from ingest.formats.reader import Reader, Telemetry
from ingest.formats.table import MOST_DEVICES, UNREADABLE, SampleTable
from ingest.formats.values import MIB, UNITS, LocalTimes, cells, number

TIME_PATTERNS = ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S")
# Query field → column, and the factor where neither header nor cell names a unit (nvidia-smi's own unit)
FIELDS: dict[str, tuple[str, float]] = {
    "utilization.gpu": ("util_pct", 1),
    "utilization.memory": ("mem_busy_pct", 1),
    "memory.used": ("mem_used_bytes", MIB),
    "memory.total": ("mem_total_bytes", MIB),
    "power.draw": ("power_w", 1),
    "power.draw.instant": ("power_w", 1),
    "power.draw.average": ("power_w", 1),
    "temperature.gpu": ("temp_c", 1),
    "temperature.memory": ("mem_temp_c", 1),
    "clocks.current.sm": ("clock_sm_mhz", 1),
    "clocks.sm": ("clock_sm_mhz", 1),
    "clocks.current.memory": ("clock_mem_mhz", 1),
    "clocks.mem": ("clock_mem_mhz", 1),
    "clocks_event_reasons.active": ("clock_event_mask", 1),
    "clocks_throttle_reasons.active": ("clock_event_mask", 1),
}
BEST_POWER = ("power.draw.instant", "power.draw", "power.draw.average")  # of several columns of one quantity, the first stands
IDENTITY = ("uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "index")
_NAME = re.compile(r"\s*([\w.]+)\s*(?:\[([^\]]*)\])?\s*")


def sniff(head: bytes) -> bool:
    """Tell whether the first line is a header with at least one field that is read and the fields' dotted names."""
    first = head.lstrip(b"\xef\xbb\xbf\r\n ").split(b"\n", 1)[0]
    names = {name for name, _ in _header(first.decode(errors="replace"))[1]}
    return bool(names & FIELDS.keys()) and not first.lstrip().startswith((b"{", b"[", b"#"))


def read(lines: Iterator[bytes]) -> Telemetry:
    """Read the rows. Raises SourceError without a timestamp column."""
    table = SampleTable()
    text = (line.decode("utf-8", errors="replace").lstrip("\ufeff").replace("\r", " ") for line in lines)
    first = next((line for line in text if line.strip()), "")
    delimiter, header = _header(first)
    names = [name for name, _ in header]
    if "timestamp" not in names:
        said = "This nvidia-smi log has no timestamp column, so its samples cannot be placed in time. Record it with --query-gpu=timestamp,…"
        raise SourceError("E-TYPE", said)
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
        table.add(device, time_ns, {column: number(row[name], factor) for name, (column, factor) in columns.items()})
    return table.telemetry()


def _header(line: str) -> tuple[str, list[tuple[str, str]]]:
    delimiter = max(",;\t", key=line.count)
    cells = [_NAME.fullmatch(cell.strip().strip('"')) for cell in line.split(delimiter)]
    return delimiter, [(c.group(1).lower(), (c.group(2) or "").lower()) if c else ("", "") for c in cells]


def _columns(header: list[tuple[str, str]]) -> dict[str, tuple[str, float]]:
    names = [name for name, _ in header]
    power = next((name for name in BEST_POWER if name in names), None)
    found: dict[str, tuple[str, float]] = {}
    for name, unit in header:
        if name not in FIELDS or (name in BEST_POWER and name != power):
            continue
        column, factor = FIELDS[name]
        if column not in {c for c, _ in found.values()}:
            found[name] = (column, UNITS.get(unit, factor) if unit else factor)
    return found


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
