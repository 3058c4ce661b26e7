"""Output of ``dcgmi dmon``, with or without date lines. Profiling fields are ratios from 0 to 1."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sawtooth.ingest.quantities.registry import names_in
from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables
from sawtooth.ingest.telemetry.rows import PrintoutTimes
from sawtooth.ingest.telemetry.table import SampleTable
from sawtooth.ingest.telemetry.values import number

FIELDS = names_in("dcgmi")  # The column and the factor, by DCGM's short name in the header.
_HEADER = re.compile(r"#\s*Entity(?:Id)?\s+(.*)", re.IGNORECASE)
_ROW = re.compile(r"(GPU(?:-[A-Z]+)?)\s+(\d+)\s+(.*)")


def sniff(head: bytes) -> bool:
    """Return whether one of the first lines is an ``#Entity`` header."""
    return any(_HEADER.match(line.decode(errors="replace").strip()) for line in head.split(b"\n")[:20])


def read(lines: Iterator[bytes]) -> TelemetryTables:
    """Read rows of whole GPUs.

    Rows of MIG instances (``GPU-I``) are left out and counted, because their values have another meaning.
    """
    table = SampleTable()
    names: list[str] = []
    times = PrintoutTimes(table, "dcgmi dmon")
    printout, printed_devices = -1, set[int]()  # Number of the current printout of all GPUs, and its GPUs so far.
    for raw in lines:
        line = raw.decode("utf-8", errors="replace").strip()
        if header := _HEADER.match(line):
            names = header.group(1).upper().split()
            continue
        match = _ROW.match(line)
        if match is None:
            times.set_if_date(line)  # Other lines, such as the ``ID`` line, blank lines and messages, are ignored.
            continue
        if match.group(1) != "GPU":
            table.note(
                "instances_left_out",
                "data_loss",
                "Rows of MIG instances were left out. Only rows of whole GPUs were read.",
                example=line,
            )
            continue
        cells = match.group(3).split()
        if len(cells) != len(names):
            table.note("line_unreadable", "data_loss", "Lines that are not whole samples were left out.", example=line)
            continue
        device = int(match.group(2))
        if device in printed_devices:
            printed_devices.clear()
        if not printed_devices:
            printout += 1
        printed_devices.add(device)
        row = dict(zip(names, cells, strict=True))
        table.devices.setdefault(device, {})
        table.add(
            device,
            times.ns(printout),
            {FIELDS[name][0]: number(cell, FIELDS[name][1]) for name, cell in row.items() if name in FIELDS},
        )
    return table.telemetry()


READER = Reader("dcgmi dmon", sniff, read, takes_dates=True)
