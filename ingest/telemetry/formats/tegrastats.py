"""Output of ``tegrastats`` on NVIDIA Jetson, with dates (JetPack 5 and later) or without."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables
from sawtooth.ingest.telemetry.rows import PrintoutTimes, SampleRows
from sawtooth.ingest.telemetry.table import UNREADABLE, SampleTable
from sawtooth.ingest.telemetry.timestamps import Timestamps
from sawtooth.ingest.telemetry.values import MIB

COLUMNS = [
    "util_pct",
    "mem_busy_pct",
    "mem_used_bytes",
    "mem_total_bytes",
    "clock_sm_mhz",
    "clock_mem_mhz",
    "temp_c",
    "power_w",
]
SIGNATURE = re.compile(rb"\bRAM \d+/\d+MB .*(?:GR3D(?:_FREQ)? \d+%|CPU \[)", re.IGNORECASE)
_STAMP = re.compile(r"^(\d{1,2}-\d{1,2}-\d{4} \d{1,2}:\d\d:\d\d(?:\.\d+)?)\s")
_RAM = re.compile(r"\bRAM (\d+)/(\d+)MB", re.IGNORECASE)
_LOAD = re.compile(r"\b(GR3D(?:_FREQ)?|EMC(?:_FREQ)?) (\d+)%(?:@\[?(\d+)(?:,\d+)*\]?)?", re.IGNORECASE)
_TEMPERATURE = re.compile(r"\bgpu@(-?\d+(?:\.\d+)?)C", re.IGNORECASE)
_RAIL = re.compile(r"\b((?:VDD|POM|VIN)_\w+) (\d+)(?:mW)?/\d+(?:mW)?", re.IGNORECASE)
# Power rails, in order of preference. The first rail that a board has measures the fewest parts besides the GPU.
GPU_RAILS = ("VDD_GPU_SOC", "VDD_CPU_GPU_CV", "POM_5V_GPU", "VDD_GPU", "VDD_SYS_GPU")


def sniff(head: bytes) -> bool:
    """Return whether one of the first lines was written by tegrastats."""
    return any(SIGNATURE.search(line) for line in head.split(b"\n")[:20])


def read(lines: Iterator[bytes]) -> TelemetryTables:
    """Read every line. GPU and CPU share the memory."""
    table = SampleTable()
    times, rows = Timestamps(table), SampleRows(COLUMNS)
    dated = PrintoutTimes(table, "tegrastats")
    table.devices[0] = {"name": "NVIDIA Jetson"}
    for index, raw in enumerate(line for line in lines if line.strip()):
        line = raw.decode("utf-8", errors="replace").strip().lstrip("\ufeff")
        ram = _RAM.search(line)
        stamp = _STAMP.match(line)
        time_ns = times.ns(stamp.group(1)) if stamp else None
        if ram is None and dated.set_if_date(line):
            continue
        if ram is None or (stamp is not None and time_ns is None):
            table.note("line_unreadable", "data_loss", UNREADABLE, example=line)
            continue
        if time_ns is None:
            time_ns = dated.ns(index)
        values = dict.fromkeys(COLUMNS, math.nan)
        values["mem_used_bytes"], values["mem_total_bytes"] = (float(mb) * MIB for mb in ram.groups())
        for name, load, clock in _LOAD.findall(line):
            gpu = name.upper().startswith("GR3D")
            values["util_pct" if gpu else "mem_busy_pct"] = float(load)
            if clock:
                values["clock_sm_mhz" if gpu else "clock_mem_mhz"] = float(clock)
        if (temperature := _TEMPERATURE.search(line)) is not None:
            values["temp_c"] = max(float(temperature.group(1)), 0.0)
        rails = {name.upper(): float(mw) / 1000 for name, mw in _RAIL.findall(line)}
        values["power_w"] = next((rails[rail] for rail in GPU_RAILS if rail in rails), math.nan)
        rows.add(0, time_ns, list(values.values()))
    rows.store(table, times.finish())
    return table.telemetry()


READER = Reader("tegrastats", sniff, read, takes_dates=True)
