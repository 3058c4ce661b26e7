"""Text output of ``gpustat`` in a loop: a line with the host and the date, then a line per GPU."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables
from sawtooth.ingest.telemetry.rows import Printouts
from sawtooth.ingest.telemetry.values import MIB

NAME = "gpustat"
COLUMNS = ["temp_c", "util_pct", "power_w", "power_limit_w", "mem_used_bytes", "mem_total_bytes"]
FACTORS = (1.0, 1.0, 1.0, 1.0, float(MIB), float(MIB))
_COLOUR = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z]|\(B)")
_HOST = re.compile(r"(\S+)\s{2,}(\D.*\d\d:\d\d:\d\d.*?\d{4})(?:\s+([\d.]+))?")
# The groups are the number and the name of the GPU, then COLUMNS in their order.
_GPU = re.compile(
    r"\[(\d+)\]\s+(\S.*?)\s*\|\s*(\d+|\?+)\s*['°]+C,(?:\s*\d+ %,)?\s*(\d+|\?+) %"
    r"(?:.*?,\s*(\d+|\?+)(?: /\s*(\d+|\?+))? W)?\s*\|\s*(\d+|\?+) /\s*(\d+|\?+) MB"
)


def sniff(head: bytes) -> bool:
    """Return whether one of the first lines describes a GPU."""
    return any(_GPU.match(line) for line in _text(iter(head.split(b"\n")[:40])))


def read(lines: Iterator[bytes]) -> TelemetryTables:
    """Read every query. Without dated lines, a repeated GPU begins the next query."""
    printouts = Printouts(COLUMNS, NAME)
    printed_devices: set[int] = set()
    for line in _text(lines):
        if (host := _HOST.fullmatch(line)) is not None:
            printouts.table.host, printouts.table.driver_version = host[1], host[3] or printouts.table.driver_version
            printouts.set_if_date(host[2])
            printed_devices.clear()
        elif (gpu := _GPU.match(line)) is not None:
            device = int(gpu[1])
            if not printed_devices or device in printed_devices:
                printouts.begin()
                printed_devices.clear()
            printed_devices.add(device)
            printouts.table.devices.setdefault(device, {"name": gpu[2]})
            values = gpu.groups()[2:]
            cells = zip(values, FACTORS, strict=True)
            numbers = [float(text) * factor if text and text.isdigit() else math.nan for text, factor in cells]
            printouts.add(device, numbers)
    return printouts.telemetry()


def _text(lines: Iterator[bytes]) -> Iterator[str]:
    """Yield the lines without colours."""
    return (_COLOUR.sub("", raw.decode("utf-8", errors="replace")).strip() for raw in lines)


READER = Reader(NAME, sniff, read)
