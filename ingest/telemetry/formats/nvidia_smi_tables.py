"""The boxed tables that ``nvidia-smi -l``, or a loop of ``nvidia-smi`` and ``date``, prints."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables
from sawtooth.ingest.telemetry.rows import SampleRows
from sawtooth.ingest.telemetry.table import SampleTable
from sawtooth.ingest.telemetry.timestamps import Timestamps
from sawtooth.ingest.telemetry.values import MIB, Clockless

NAME = "nvidia-smi tables"
COLUMNS = ["util_pct", "mem_used_bytes", "mem_total_bytes", "power_w", "power_limit_w", "temp_c"]
DEFAULT_INTERVAL_NS = 1_000_000_000
LEAST_TABLES = 2  # a single table is not a series
_BANNER = re.compile(rb"\| NVIDIA-SMI \d+")
_GPU = re.compile(r"\|\s+(\d+)\s+(\S.*?)\s+(?:On|Off|N/A)\s+\|\s+([0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+)\s")
_MEMORY = re.compile(r"(\d+)MiB\s*/\s*(\d+)MiB")
_POWER = re.compile(r"(\d+)W\s*/\s*(\d+)W")
_TEMPERATURE = re.compile(r"\s(\d+)C\s")
_LOAD = re.compile(r"\|\s+(\d+)%\s+\S+\s*\|\s*$")


def sniff(head: bytes) -> bool:
    """Return whether ``head`` has at least two of nvidia-smi's boxed tables."""
    return len(_BANNER.findall(head)) >= LEAST_TABLES


def read(lines: Iterator[bytes]) -> TelemetryTables:
    """Read every table; its time is the dated line before it.

    Without dates, the tables are counted from 0.
    """
    table = SampleTable()
    times, rows = Timestamps(table), SampleRows(COLUMNS)
    clockless: Clockless | None = None
    stamp: int | None = None
    device: int | None = None
    number = -1
    for raw in lines:
        line = raw.decode("utf-8", errors="replace").rstrip()
        if _BANNER.match(raw.strip()):
            number += 1
            device = None
            if stamp is None:
                clockless = clockless or Clockless(DEFAULT_INTERVAL_NS, table, "nvidia-smi")
        elif not line.startswith(("|", "+")):
            stamp = _time(times, line) if clockless is None else None
        elif (gpu := _GPU.match(line)) is not None:
            device = int(gpu.group(1))
            table.devices.setdefault(device, {"name": gpu.group(2)})
        elif device is not None and (memory := _MEMORY.search(line)) is not None:
            time_ns = stamp if clockless is None else clockless.ns(number)
            if time_ns is not None:
                rows.add(device, time_ns, _values(line, memory))
            device = None
    rows.store(table, times.finish())
    return table.telemetry()


def _time(times: Timestamps, line: str) -> int | None:
    return times.ns(line) if any(map(str.isdigit, line)) and ":" in line else None


def _values(line: str, memory: re.Match[str]) -> list[float]:
    """Return the values of COLUMNS in a GPU's second line; NaN where it says N/A."""
    load, power, temperature = _LOAD.search(line), _POWER.search(line), _TEMPERATURE.search(line)
    draw, limit = (float(watts) for watts in power.groups()) if power is not None else (math.nan, math.nan)
    used, total = (float(mib) * MIB for mib in memory.groups())
    return [
        float(load.group(1)) if load is not None else math.nan,
        used,
        total,
        draw,
        limit,
        float(temperature.group(1)) if temperature is not None else math.nan,
    ]


READER = Reader(NAME, sniff, read)
