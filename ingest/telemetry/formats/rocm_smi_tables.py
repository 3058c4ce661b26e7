"""The overview table of ``rocm-smi`` (ROCm 3 to 6), printed repeatedly."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables
from sawtooth.ingest.telemetry.rows import Printouts

NAME = "rocm-smi tables"
COLUMNS = ["temp_c", "power_w", "clock_sm_mhz", "clock_mem_mhz", "power_limit_w", "util_pct"]
MIN_TABLES = 2  # A single table is not a series.
_BANNER = re.compile(rb"=\s*(?:ROCm|AMD ROCm) System Management Interface\s*=")
# The groups are the device, then COLUMNS in their order. Other columns differ by version and are skipped.
_ROW = re.compile(
    r"(\d+)\s.*?([\d.]+|N/A)°?[cC]?\s+([\d.]+W|N/A)\s+(?:.*?\s)?([\d.]+|N/A)(?:[Mm]hz)?\s+([\d.]+|N/A)(?:[Mm]hz)?\s+"
    r"[\d.]+%\s+\w+\s+([\d.]+W|N/A)\s+\S+\s+(\d+|N/A)%?$"
)


def sniff(head: bytes) -> bool:
    """Return whether ``head`` has at least two of rocm-smi's banners and a row of its overview table."""
    return len(_BANNER.findall(head)) >= MIN_TABLES and any(_ROW.match(line) for line in _text(iter(head.split(b"\n"))))


def read(lines: Iterator[bytes]) -> TelemetryTables:
    """Read every table. The dated line before a table is the table's time."""
    printouts = Printouts(COLUMNS, "rocm-smi")
    for line in _text(lines):
        if _BANNER.search(line.encode()):
            printouts.begin()
        elif (row := _ROW.match(line)) is not None:
            device = int(row[1])
            printouts.table.devices.setdefault(device, {"name": "AMD GPU"})
            printouts.add(device, [math.nan if cell == "N/A" else float(cell.rstrip("W")) for cell in row.groups()[1:]])
        elif not line.startswith("="):
            printouts.set_if_date(line)
    return printouts.telemetry()


def _text(lines: Iterator[bytes]) -> Iterator[str]:
    return (raw.decode("utf-8", errors="replace").strip() for raw in lines)


READER = Reader(NAME, sniff, read)
