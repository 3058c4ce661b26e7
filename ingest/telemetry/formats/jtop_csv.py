"""CSV tables of jetson-stats (``jtop``), in which the column "GPU" is the load of a Jetson's GPU."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from sawtooth.ingest.telemetry.delimited import read_delimited
from sawtooth.ingest.telemetry.find_header import text_of
from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables
from sawtooth.ingest.telemetry.values import cells

NAME = "table of jtop"
# Titles that parse_header knows, by jtop's title.
TITLES = {"time": "timestamp", "GPU": "gpu_utilization (%)", "EMC": "memory_utilization (%)", "Temp GPU": "temperature (C)"}
# Power rails, in order of preference. The first rail that exists measures the fewest parts besides the GPU.
RAILS = ("Power GPU", "Power VDD_GPU_SOC", "Power VDD_CPU_GPU_CV", "Power VDD_GPU")


def sniff(head: bytes) -> bool:
    """Return whether the first line is jtop's header."""
    titles = cells(next(text_of(iter([head.split(b"\n", 1)[0]]))).strip())
    return {"time", "uptime", "GPU"} <= set(titles) and bool({"jetson_clocks", "nvp model"} & set(titles))


def read(lines: Iterator[bytes]) -> TelemetryTables:
    """Read the rows; columns of the host are left out."""
    titles = cells(next(text_of(lines)).strip())
    rail = next((rail for rail in RAILS if rail in titles), None)
    known_titles = TITLES | ({rail: "power.draw [mW]"} if rail else {})
    header = io.StringIO()
    csv.writer(header).writerow([known_titles.get(title, f"other {position}") for position, title in enumerate(titles)])
    telemetry = read_delimited(_with_header(header.getvalue().strip().encode(), lines), NAME)
    telemetry.devices = [device | {"name": "NVIDIA Jetson"} for device in telemetry.devices]
    return telemetry


def _with_header(header: bytes, lines: Iterator[bytes]) -> Iterator[bytes]:
    yield header
    yield from lines


READER = Reader(NAME, sniff, read)
