"""Boxed tables, as ``nvidia-smi -l`` or a loop of ``nvidia-smi`` or ``nvitop --once`` prints them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables
from sawtooth.ingest.telemetry.rows import Printouts
from sawtooth.ingest.telemetry.values import UNITS

NAME = "nvidia-smi tables"
COLUMNS = ["util_pct", "mem_used_bytes", "mem_total_bytes", "power_w", "power_limit_w", "temp_c"]
MIN_TABLES = 2  # A single table is not a series.
_BANNER = re.compile(rb"(?:\||\xe2\x94\x82) (?:NVIDIA-SMI|NVITOP) \d+")  # Nvitop draws boxes with U+2502.
_GPU = re.compile(r"\|\s+(\d+)\s+(\S.*?)\s+(?:On|Off|N/A)\s*\|\s+([0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+)\s")
_MEMORY = re.compile(r"([\d.]+)([KMG])iB\s*/\s*([\d.]+)([KMG])iB")
_POWER = re.compile(r"(\d+|N/A)W?\s*/\s*(\d+|N/A)W?\s*\|")
_TEMPERATURE = re.compile(r"\s(\d+)C\s")
_LOAD = re.compile(r"\|\s+(\d+)%\s+[A-Z][^|]*\|")


def sniff(head: bytes) -> bool:
    """Return whether ``head`` has at least MIN_TABLES boxed tables of nvidia-smi or nvitop."""
    return len(_BANNER.findall(head)) >= MIN_TABLES


def read(lines: Iterator[bytes]) -> TelemetryTables:
    """Read every table. The dated line before a table is the table's time."""
    printouts = Printouts(COLUMNS, "nvidia-smi")
    device: int | None = None
    for raw in lines:
        line = raw.decode("utf-8", errors="replace").rstrip().replace("\u2502", "|")
        if _BANNER.match(raw.strip()):
            printouts.begin()
            device = None
        elif not line.startswith(("|", "+")):
            printouts.set_if_date(line)
        elif (gpu := _GPU.match(line)) is not None:
            device = int(gpu.group(1))
            printouts.table.devices.setdefault(device, {"name": gpu.group(2)})
        elif device is not None and (memory := _MEMORY.search(line)) is not None:
            printouts.add(device, _values(line, memory))
            device = None
    return printouts.telemetry()


def _values(line: str, memory: re.Match[str]) -> list[float]:
    """Return the values of COLUMNS from a GPU's second line; NaN for N/A."""
    load, power, temperature = _LOAD.search(line), _POWER.search(line), _TEMPERATURE.search(line)
    draw, limit = (math.nan if watts == "N/A" else float(watts) for watts in power.groups()) if power else (math.nan, math.nan)
    used, total = (float(memory[i]) * UNITS[f"{memory[i + 1]}iB".lower()] for i in (1, 3))
    return [
        float(load.group(1)) if load is not None else math.nan,
        used,
        total,
        draw,
        limit,
        float(temperature.group(1)) if temperature is not None else math.nan,
    ]


READER = Reader(NAME, sniff, read)
