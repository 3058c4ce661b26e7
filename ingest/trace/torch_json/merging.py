"""Merge several ranks' traces into one for other viewers.

The result has every event once, on one clock. Processes, threads and flow events (arrows) get ids that differ between ranks.
Sources are read and written block by block, so only a few blocks are in memory, even with long traces. Other fields of an event
(arguments, categories, phases) are copied unchanged. Flow events of a damaged block are left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from sawtooth.ingest.source import Limits, Source
from sawtooth.ingest.trace.torch_json.arguments import EMPTY_TEXT
from sawtooth.ingest.trace.torch_json.decoding import object_of
from sawtooth.ingest.trace.torch_json.text.blocks import Document
from sawtooth.ingest.trace.torch_json.text.events import FLOWS, Event

HEAD = b'{"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": %d, "traceEvents": ['
TAIL = b"\n]}\n"
METADATA = b'"M"'
PROCESS_NAME, THREAD_NAME, SORTING = b'"process_name"', b'"thread_name"', b'"process_sort_index"'
PROCESS_EVENTS = (PROCESS_NAME, SORTING, b'"process_labels"')
MAX_ID = 1 << 40  # Multiplied by 1,000 ranks, such an id is below 2^53, so a browser represents it exactly.
# The sort indices of each rank's processes are in a range of this size, so that a rank's processes stay together. Kineto's own
# indices are smaller, except the index that puts a process last.
SORT_RANGE = 10_000_000
RAW_EVENTS = msgspec.json.Decoder(list[dict[str, Raw]])

Fields = dict[str, Raw]


@dataclass(frozen=True)
class RankSource:
    """One rank's trace: its source, its label, and the ns to add to its times for the common clock."""

    path: Path
    label: str
    shift_ns: int


def merge_traces(ranks: Sequence[RankSource], origin_ns: int) -> Generator[bytes]:
    """Yield the JSON text of one trace with the events of all ``ranks``, times relative to ``origin_ns``.

    Raises SourceError if a source cannot be read.
    """
    yield HEAD % origin_ns
    numbers, first = count(1), True
    for position, rank in enumerate(ranks):
        with closing(_Rank(rank, position, len(ranks), origin_ns, numbers).batches()) as batches:
            for events in batches:
                text = msgspec.json.encode(events)[1:-1]
                if text:
                    yield (b"\n" if first else b",\n") + text
                    first = False
    yield TAIL


class _Rank:
    def __init__(self, rank: RankSource, position: int, ranks: int, origin_ns: int, numbers: Iterator[int]) -> None:
        self._rank, self._position, self._ranks = rank, position, ranks
        self._shift_ns = rank.shift_ns - origin_ns
        # The ranks share the numbers, because Perfetto distinguishes threads with equal numbers only by process.
        self._numbers = numbers
        self._processes: dict[bytes, int] = {}
        self._threads: dict[tuple[bytes, bytes], int] = {}
        self._unnamed: dict[tuple[bytes, bytes | None], Fields] = {}

    def batches(self) -> Generator[list[Fields]]:
        """Yield the rank's events, and names for processes and threads without a name."""
        source = Source(self._rank.path, Limits())
        with closing(source.pieces(hashed=False)) as pieces:
            for events in Document(pieces, source.limits, decode=RAW_EVENTS.decode).events():
                yield [self._with_new_ids(fields) for event in events if (fields := _fields(event))]
        yield list(self._unnamed.values())

    def _with_new_ids(self, fields: Fields) -> Fields:
        process, thread = fields.get("pid"), fields.get("tid")
        is_metadata = bytes(fields["ph"]) == METADATA
        if is_metadata and bytes(fields.get("name", EMPTY_TEXT)) in PROCESS_EVENTS:
            thread = None  # These events belong to a process and not to a thread.
            fields["tid"] = _raw_integer(0)
        if process is not None:
            fields["pid"] = _raw_integer(self._process(bytes(process)))
            if thread is not None:
                fields["tid"] = _raw_integer(self._thread(bytes(process), bytes(thread)))
        if "ts" in fields:
            fields["ts"] = self._time(fields["ts"])
        for key in ("id", "bind_id"):
            if key in fields:
                fields[key] = _raw_integer(_flow_number(bytes(fields[key])) * self._ranks + self._position)
        if is_metadata and process is not None and "args" in fields:
            self._metadata(fields, bytes(process), bytes(thread) if thread is not None else None)
        return fields

    def _process(self, process: bytes) -> int:
        if process not in self._processes:
            self._processes[process] = next(self._numbers)
            self._unnamed[process, None] = self._name("process_name", process, None, f"{self._rank.label} · {_text(process)}")
        return self._processes[process]

    def _thread(self, process: bytes, thread: bytes) -> int:
        if (process, thread) not in self._threads:
            self._threads[process, thread] = next(self._numbers)
            self._unnamed[process, thread] = self._name("thread_name", process, thread, _text(thread))
        return self._threads[process, thread]

    def _name(self, kind: str, process: bytes, thread: bytes | None, name: str) -> Fields:
        number = 0 if thread is None else self._threads[process, thread]
        fields = {"ph": "M", "name": kind, "pid": self._processes[process], "tid": number, "args": {"name": name}}
        return {key: Raw(msgspec.json.encode(value)) for key, value in fields.items()}

    def _metadata(self, fields: Fields, process: bytes, thread: bytes | None) -> None:
        """Add the rank to a process's name and sort index; remember which processes and threads have a name."""
        name, args = bytes(fields.get("name", EMPTY_TEXT)), object_of(fields["args"])
        if name in (PROCESS_NAME, THREAD_NAME):
            self._unnamed.pop((process, thread), None)
        if name == PROCESS_NAME:
            fields["args"] = Raw(msgspec.json.encode(args | {"name": f"{self._rank.label} · {args.get('name', '')}"}))
        elif name == SORTING:
            index = args.get("sort_index")
            index = min(max(index, 0), SORT_RANGE - 1) if isinstance(index, int) else 0
            fields["args"] = Raw(msgspec.json.encode({"sort_index": self._position * SORT_RANGE + index}))

    def _time(self, text: Raw) -> Raw:
        """Return a time in µs, exact to the nanosecond, on the common clock."""
        try:
            ns = round(Decimal(bytes(text).strip(b'"').decode()) * 1000) + self._shift_ns
        except (InvalidOperation, ValueError, OverflowError):
            return text
        sign, ns = ("-" if ns < 0 else ""), abs(ns)
        return Raw(f"{sign}{ns // 1000}.{ns % 1000:03d}".encode())


def _fields(event: Fields | Event) -> Fields | None:
    """Return an event's fields, or only the known fields of an event in a damaged block.

    The result is None for an event without ``ph``, and for a flow event in a damaged block, because its id is not known.
    """
    if isinstance(event, dict):
        return event if "ph" in event else None
    if event.ph in FLOWS:
        return None
    fields: dict[str, Any] = {"ph": event.ph, "cat": event.cat, "name": event.name, "pid": event.pid, "tid": event.tid}
    encoded = {key: Raw(msgspec.json.encode(value)) for key, value in fields.items() if value not in (None, "")}
    raw = {key: value for key in ("ts", "dur", "args") if (value := getattr(event, key)) is not EMPTY_TEXT}
    return encoded | raw


def _flow_number(text: bytes) -> int:
    """Return a number for a flow event's id, which may be a text. Equal ids get equal numbers."""
    number = int(text) if text.isdigit() and len(text) < 16 else MAX_ID
    return number if number < MAX_ID else int.from_bytes(hashlib.blake2b(text, digest_size=5).digest(), "big")


def _text(value: bytes) -> str:
    return value.strip(b'"').decode(errors="replace")


def _raw_integer(number: int) -> Raw:
    return Raw(b"%d" % number)
