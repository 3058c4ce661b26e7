"""JSON of ``amd-smi metric``, ``amd-smi monitor`` and ``rocm-smi --json``, with one or more samples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sawtooth.ingest.quantities.registry import names_in
from sawtooth.ingest.telemetry.headers import BRACKET_UNITS, plain
from sawtooth.ingest.telemetry.json_stream import documents
from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables
from sawtooth.ingest.telemetry.table import MAX_DEVICES, SampleTable
from sawtooth.ingest.telemetry.timestamps import Timestamps
from sawtooth.ingest.telemetry.values import CountedTimes, number

ASSUMED_INTERVAL_NS = 1_000_000_000  # Samples without times are assumed to have this distance, which is usual for these tools.
FIELDS = names_in("table")
NAME_RANKS = {name: rank for rank, name in enumerate(FIELDS)}  # Of several names of one quantity, the lowest rank is used.
CARD = re.compile(r"card(\d+)")
ROCM_SMI_SIGNATURE = re.compile(rb'"card\d+"\s*:\s*\{')
AMD_SMI_SIGNATURE = re.compile(rb'"gpu"\s*:\s*\d+')
AMD_SMI_VALUES = (
    b'"gfx_activity"',
    b'"socket_power"',
    b'"power_usage"',
    b'"mem_usage"',
    b'"gfx"',
    b'"gfx_clk"',
    b'"gfx_clock"',
)
RUNNING_COUNTERS = ("gfx_activity", "memory_activity")  # In rocm-smi's JSON, these are running counters, not percentages.


def sniff(head: bytes) -> bool:
    """Return whether ``head`` is JSON of one of these tools."""
    if b'"traceEvents"' in head or b"{" not in head[:4096]:
        return False
    amd = AMD_SMI_SIGNATURE.search(head) is not None and any(name in head for name in AMD_SMI_VALUES)
    return amd or ROCM_SMI_SIGNATURE.search(head) is not None


def read(lines: Iterator[bytes]) -> TelemetryTables:
    """Read every sample. Samples without times are counted from 0."""
    table = SampleTable()
    times, printouts = Timestamps(table), _CountedPrintouts(table)
    for document in documents(lines, table):
        for device, gpu in _gpus(document):
            values = _values(gpu)
            if device >= MAX_DEVICES or not values:
                continue
            stamp = gpu.get("timestamp")
            time_ns = times.ns(str(stamp)) if stamp is not None else printouts.ns(device)
            if time_ns is None:
                table.note("line_unreadable", "data_loss", "Samples with an unreadable time were left out.", example=str(stamp))
                continue
            name = gpu.get("market_name") or gpu.get("Card Series") or gpu.get("Card series")
            table.devices.setdefault(device, {"name": str(name) if name else "AMD GPU"})
            table.add(device, time_ns, values)
    return table.telemetry()


class _CountedPrintouts:
    """Times for samples without times, by counting printouts. A repeated GPU begins the next printout."""

    def __init__(self, table: SampleTable) -> None:
        self._table = table
        self._counted_times: CountedTimes | None = None
        self._printed_devices: set[int] = set()
        self._printout = -1

    def ns(self, device: int) -> int:
        """Return the time of a device's next sample."""
        if device in self._printed_devices:
            self._printed_devices.clear()
        self._printout += not self._printed_devices
        self._printed_devices.add(device)
        self._counted_times = self._counted_times or CountedTimes(ASSUMED_INTERVAL_NS, self._table, "The tool")
        return self._counted_times.ns(self._printout)


def _gpus(document: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield number and values of each GPU of a document."""
    if isinstance(document, list):
        for entry in document:
            yield from _gpus(entry)
    elif isinstance(document, dict):
        if isinstance(inner := document.get("gpu_data"), list):
            stamp = {"timestamp": document["timestamp"]} if "timestamp" in document else {}
            for entry in inner:
                if isinstance(entry, dict):
                    yield from _gpus(stamp | entry)
        elif isinstance(number_in_file := document.get("gpu"), int) and number_in_file >= 0:
            yield number_in_file, document
        else:
            for key, entry in document.items():
                if (card := CARD.fullmatch(key)) is not None and isinstance(entry, dict):
                    percentages = {name: cell for name, cell in entry.items() if plain(name)[0] not in RUNNING_COUNTERS}
                    yield int(card.group(1)), percentages


def _values(gpu: dict[str, Any]) -> dict[str, float | None]:
    """Return the known quantities in a GPU's nested values; the name with the lowest NAME_RANKS is used."""
    chosen: dict[str, tuple[int, float]] = {}
    for path, cell, unit in _leaves(gpu, ()):
        for depth in range(len(path)):
            name, bracket = plain("_".join(path[depth:]))
            if name not in FIELDS:
                continue
            column, factor = FIELDS[name]
            value = number(str(cell), BRACKET_UNITS.get((unit or bracket).lower(), factor))
            if value is not None and (column not in chosen or NAME_RANKS[name] < chosen[column][0]):
                chosen[column] = NAME_RANKS[name], value
            break
    return {column: value for column, (_, value) in chosen.items()}


def _leaves(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    """Yield path, value and unit of every value in nested objects."""
    if isinstance(node, dict):
        if "value" in node and not isinstance(node["value"], dict):
            yield path, node["value"], str(node.get("unit") or "")
            return
        for key, inner in node.items():
            yield from _leaves(inner, (*path, str(key)))
    elif not isinstance(node, list):
        yield path, node, ""


READER = Reader("amd-smi or rocm-smi JSON", sniff, read)
