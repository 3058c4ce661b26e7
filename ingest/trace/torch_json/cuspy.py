"""Convert events of PyTorch's Cuspy profiler to the form that Kineto writes, and read its counters.

Cuspy names every copy "Memcpy" and writes the copy's direction and memory into the arguments. It moves kernels of CUDA graphs to
invented streams and writes the real stream into the arguments. It writes power, clocks, temperature and PM samples (performance
monitor counters) as counters on the trace's clock.
"""

from __future__ import annotations

import re
from collections import Counter

import msgspec
import numpy as np
from msgspec import field
from numpy.typing import NDArray

from sawtooth.ingest.decode import I64, MAX_TIME_NS, NULL, decimal_ns, floats, integers
from sawtooth.ingest.quantities.registry import SAMPLE_COLUMNS, names_in
from sawtooth.ingest.trace.samples import SampleParts, sample_table
from sawtooth.ingest.trace.source import MAX_DEVICES
from sawtooth.ingest.trace.spool import Columns, SpooledTable, slices
from sawtooth.ingest.trace.torch_json.arguments import Number
from sawtooth.ingest.trace.torch_json.decoding import decode_arguments
from sawtooth.ingest.trace.torch_json.text.events import Event

ARGUMENT_KEYS = (b'"copy kind"', b'"memory kind"', b'"original_stream"')
COUNTERS = re.compile(r"GPU (\d{1,3}) Counters")  # The process with the counters of a GPU has this name.
COLUMN_NUMBERS = {name: SAMPLE_COLUMNS.index(column) for name, (column, _) in names_in("cuspy").items()}
MAX_SAMPLES = 1 << 24  # The number of values, as in nsight/samples.py.
# The names of CUpti_ActivityMemoryKind in its order.
MEMORY_KINDS = ("Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")
# Matches the counters that Cuspy reads from NVML. All other counters are PM samples.
NVML_COUNTER = re.compile(r"Power|Temperature|Clock|Fan")


class CopyArgs(msgspec.Struct, gc=False):
    """Arguments of Cuspy's copies, fills and kernels that Kineto writes in another form."""

    direction: Number = field(name="copy kind", default=None)
    source: Number = field(name="src kind", default=None)
    destination: Number = field(name="dst kind", default=None)
    memory: Number = field(name="memory kind", default=None)
    stream: Number = field(name="original_stream", default=NULL)


class CounterArgs(msgspec.Struct, gc=False):
    """The value of a counter, whose argument has an empty name."""

    value: Number = field(name="", default=None)


def kineto_names(kind: str, events: list[Event], text: bytes) -> list[str]:
    """Return the events' names as Kineto writes them; ``text`` is ``text_of(events)``."""
    names = [event.name for event in events]
    if kind == "kernel" or not any(mark in text for mark in ARGUMENT_KEYS[:2]):
        return names
    return [_name(name, args) for name, args in zip(names, decode_arguments(events, CopyArgs, text), strict=True)]


def _name(name: str, args: CopyArgs) -> str:
    if name == "Memcpy" and args.direction:
        return f"Memcpy {args.direction} ({_memory(args.source)} -> {_memory(args.destination)})"
    return f"Memset ({_memory(args.memory)})" if name == "Memset" and args.memory is not None else name


def _memory(kind: Number) -> str:
    number = str(kind)
    if number.isdigit():
        return MEMORY_KINDS[int(number)] if int(number) < len(MEMORY_KINDS) else MEMORY_KINDS[0]
    return str(kind or MEMORY_KINDS[0]).replace("_", " ").title()


def real_streams(streams: I64, events: list[Event], text: bytes) -> I64:
    """Return ``streams`` with the real stream of each operation that Cuspy moved to an invented stream."""
    if ARGUMENT_KEYS[2] not in text:
        return streams
    real = integers([args.stream for args in decode_arguments(events, CopyArgs, text)])
    return np.where(real == NULL, streams, real)


def counters(events: list[Event]) -> tuple[Columns, list[Event], Counter[str]]:
    """Return the columns of the known counters, the other events, and notes."""
    matches = [(event, match) for event in events if (match := COUNTERS.fullmatch(str(event.pid)))]
    counter_events = [
        (event, int(match[1])) for event, match in matches if event.name in COLUMN_NUMBERS and int(match[1]) < MAX_DEVICES
    ]
    known = [event for event, _ in counter_events]
    time, value = decimal_ns([e.ts for e in known]), floats([a.value for a in decode_arguments(known, CounterArgs)])
    usable = (time != NULL) & (np.abs(time) < MAX_TIME_NS) & np.isfinite(value)
    columns: Columns = {
        "start": time[usable],
        "device": np.array([device for _, device in counter_events], np.int64)[usable],
        "column": np.array([COLUMN_NUMBERS[event.name] for event in known], np.int64)[usable],
        "value": value[usable],
    }
    known_ids = set(map(id, known))
    pm_samples = sum(not NVML_COUNTER.search(event.name) for event, _ in matches)
    notes = Counter(pm_sampling=pm_samples) if pm_samples else Counter[str]()
    return columns, [event for event in events if id(event) not in known_ids], notes


def samples(table: SpooledTable) -> dict[str, NDArray[np.float64]] | None:
    """Return the columns of table ``samples``; None if there are no counters or too many."""
    if not table.rows or table.rows > MAX_SAMPLES:
        return None
    parts: SampleParts = {}
    for (rows,) in slices(table):
        for device, column in {*zip(rows["device"].tolist(), rows["column"].tolist(), strict=True)} if rows else ():
            mask = (rows["device"] == device) & (rows["column"] == column)
            pieces = parts.setdefault((device, SAMPLE_COLUMNS[column]), {}).setdefault(0, [])
            pieces.append((rows["start"][mask], rows["value"][mask]))
    return sample_table(parts)
