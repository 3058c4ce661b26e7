"""Output of ``gpustat --json``, once or in a loop: JSON objects with local times."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sawtooth.ingest.quantities.registry import names_in
from sawtooth.ingest.telemetry.json_stream import documents
from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables
from sawtooth.ingest.telemetry.table import SampleTable
from sawtooth.ingest.telemetry.timestamps import Timestamps
from sawtooth.ingest.telemetry.values import MIB

FIELDS = names_in("gpustat")
SIGNATURE = re.compile(rb'"query_time"\s*:')


def sniff(head: bytes) -> bool:
    """Return whether ``head`` is the beginning of gpustat's JSON."""
    return SIGNATURE.search(head) is not None and b'"gpus"' in head


def read(lines: Iterator[bytes]) -> TelemetryTables:
    """Read every query; memory is in MiB."""
    table = SampleTable()
    times = Timestamps(table)
    for document in documents(lines, table):
        for query in document if isinstance(document, list) else [document]:
            if not isinstance(query, dict) or not isinstance(query.get("gpus"), list):
                continue
            time_ns = times.ns(str(query.get("query_time")))
            if time_ns is None:
                table.note("line_unreadable", "data_loss", "Queries without a time were left out.")
                continue
            table.host = str(query["hostname"]) if query.get("hostname") else table.host
            table.driver_version = str(query["driver_version"]) if query.get("driver_version") else table.driver_version
            for gpu in query["gpus"]:
                if isinstance(gpu, dict):
                    _add(table, time_ns, gpu)
    return table.telemetry()


def _add(table: SampleTable, time_ns: int, gpu: dict[str, Any]) -> None:
    device = gpu.get("index")
    if not isinstance(device, int):
        return
    values: dict[str, float | None] = {
        column: value * factor for name, (column, factor) in FIELDS.items() if isinstance(value := gpu.get(name), int | float)
    }
    processes = gpu.get("processes")
    if isinstance(processes, list):
        values["process_count"] = len(processes)
    total = gpu.get("memory.total")
    table.devices.setdefault(
        device,
        {
            "name": str(gpu["name"]) if gpu.get("name") else None,
            "uuid": str(gpu["uuid"]) if gpu.get("uuid") else None,
            "memory_bytes": int(total * MIB) if isinstance(total, int | float) else None,
        },
    )
    table.add(device, time_ns, values)


READER = Reader("gpustat JSON", sniff, read)
