"""Output of ``dcgmi dmon``, with or without date lines. Profiling fields are ratios from 0 to 1."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sawtooth.ingest.quantities.registry import names_in
from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables
from sawtooth.ingest.telemetry.rows import PrintoutTimes
from sawtooth.ingest.telemetry.table import SampleTable
from sawtooth.ingest.telemetry.values import number

FIELDS = names_in("dcgmi")  # By DCGM's short name, as in the header: the column and the factor.
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
    printout, seen = -1, set[int]()  # the number of the current printout of all GPUs, and its GPUs so far
    for raw in lines:
        line = raw.decode("utf-8", errors="replace").strip()
        if header := _HEADER.match(line):
            names = header.group(1).upper().split()
            continue
        match = _ROW.match(line)
        if match is None:
            times.take_if_date(line)  # Other lines, such as the ``ID`` line, blank lines and messages, are ignored.
            continue
        if match.group(1) != "GPU":
            table.note(
                "instances_left_out",
                "data_loss",
                "Rows of MIG instances were left out; those of whole GPUs were read.",
                example=line,
            )
            continue
        cells = match.group(3).split()
        if len(cells) != len(names):
            table.note("line_unreadable", "data_loss", "Lines that are not whole samples were left out.", example=line)
            continue
        device = int(match.group(2))
        if device in seen:
            seen.clear()
        if not seen:
            printout += 1
        seen.add(device)
        row = dict(zip(names, cells, strict=True))
        table.devices.setdefault(device, {})
        table.add(device, times.ns(printout), {FIELDS[n][0]: number(c, FIELDS[n][1]) for n, c in row.items() if n in FIELDS})
    return table.telemetry()


READER = Reader("dcgmi dmon", sniff, read, takes_dates=True)
