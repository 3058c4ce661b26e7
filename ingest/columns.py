"""Sort decoded events by category into columns. Ids of names, threads and signatures are given in order of appearance."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from ingest.arguments import NOTHING, CallArgs, CollectiveArgs, GpuArgs, MemoryArgs, OpArgs, PythonArgs, SyncArgs
from ingest.blocks import DECODE_ERRORS, Document, Event, cut_early
from ingest.decode import LARGEST, NULL, decimal_ns, floats, integers, texts
from ingest.errors import SourceError
from ingest.repair import repair
from ingest.source import Limits

Columns = dict[str, NDArray[Any]]
LONGEST_NS = 7 * 86400 * 1_000_000_000  # CUPTI writes durations of years when a record was never closed; no event lasts a week

# category (lower case) -> table it is filed in; every producer since 2021
KINDS = {
    "cpu_op": "op",
    "operator": "op",
    "user_annotation": "annotation",
    "cuda_runtime": "call",
    "cuda_driver": "call",
    "runtime": "call",
    "driver": "call",
    "hip_runtime": "call",
    "hip_driver": "call",
    "mtia_runtime": "call",
    "xpu_runtime": "call",
    "xpu_driver": "call",
    "glow_runtime": "call",
    "privateuse1_runtime": "call",
    "privateuse1_driver": "call",
    "kernel": "kernel",
    "mtia_ccp_events": "kernel",
    "hpu_op": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
    "gpu_user_annotation": "gpu_annotation",
    "python_function": "python",
    "python function": "python",
    "cuda_sync": "sync",
    "xpu_sync": "sync",
    "overhead": "overhead",
}
UNNAMED = "(unnamed)"
GPU_KINDS = ("kernel", "memcpy", "memset")
MARKER = re.compile(r"ProfilerStep[#*]|Optimizer\.(?:step|zero_grad)#")  # filed as operators before 2022


EXTRA = (
    "Call stack",
    "Module Hierarchy",
    "Backend",
    "kernel_backend",
    "kernel_hash",
    "kernel_file",
    "kernel_name",
    "kernel_kwargs",
    "num_warps",
    "num_stages",
)  # arguments of operators kept as JSON
EXTRA_MARK = re.compile(b'"(?:' + "|".join(EXTRA).encode() + b')"\\s*:\\s*(?!""|\\[\\])')


class Interned(dict[Any, int]):
    """Dense ids in order of first appearance."""

    def __missing__(self, key: Any) -> int:
        self[key] = value = len(self)
        return value


class Canonical(dict[Any, int]):
    """Ids of JSON texts that mean the same: looked up by their bytes, filed by their meaning."""

    def __init__(self) -> None:
        self.meanings = Interned()

    def __missing__(self, key: Any) -> int:
        self[key] = value = self.meanings[tuple(_compact(part) for part in key)]
        return value


def _compact(text: bytes) -> str | None:
    if not text or text == b"null":
        return None
    for candidate in (text, repair(text)[0]):
        try:
            return msgspec.json.encode(msgspec.json.decode(candidate)).decode()
        except DECODE_ERRORS:
            continue
    return None


class Table:
    """Columns that grow by blocks."""

    def __init__(self) -> None:
        self.blocks: list[Columns] = []
        self.rows = 0

    def add(self, columns: Columns) -> None:
        """Append one block; every block has the same columns."""
        size = len(next(iter(columns.values())))
        if size:
            self.blocks.append(columns)
            self.rows += size

    def column(self, name: str) -> NDArray[Any]:
        """Return one whole column."""
        return np.concatenate([block[name] for block in self.blocks]) if self.blocks else np.empty(0, np.int64)

    def names(self) -> list[str]:
        """Names of the columns, empty where there are no rows."""
        return list(self.blocks[0]) if self.blocks else []


class Trace:
    """Everything one trace holds, as columns. Times are nanoseconds on the trace's own base until ``finish`` shifts them."""

    def __init__(self, document: Document, limits: Limits) -> None:
        self.document = document
        self.limits = limits
        self.names = Interned()
        self.threads = Interned()
        self.signatures = Canonical()
        self.extras = Canonical()
        self.tables = {
            key: Table()
            for key in ("ops", "calls", "gpu", "gpu_annotations", "python", "syncs", "overheads", "memory", "collectives")
        }
        self.thread_names: dict[tuple[str, str], str] = {}
        self.process_names: dict[str, str] = {}
        self.other: Counter[str] = Counter()
        self.events = 0
        self._grids: dict[bytes, tuple[int, int, int]] = {}
        self._file: dict[str, Callable[[str, list[Event], NDArray[np.int64], NDArray[np.int64]], None]] = {
            "op": self._ops,
            "annotation": self._ops,
            "call": self._calls,
            "kernel": self._gpu,
            "memcpy": self._gpu,
            "memset": self._gpu,
            "gpu_annotation": self._gpu_annotations,
            "python": self._python,
            "sync": self._syncs,
            "overhead": self._overheads,
        }

    def read(self) -> Iterable[int]:
        """Read the document; yield the number of events read so far after each block."""
        for events in self.document.events():
            self.add(events)
            yield self.events
        if not self.events:
            notes = self.document.notes
            if notes["event_deep"]:
                raise SourceError("E-DEPTH", "The file is nested too deeply for a trace. It was refused.")
            if notes["event_cut"] or (self.document.truncated and not notes):
                raise cut_early()
            if notes["event_unreadable"]:
                raise SourceError(
                    "E-JSON",
                    f"No event could be read; the first begins with {self.document.examples['event_unreadable'][:60]!r}.",
                )
            raise SourceError(
                "E-NOEV", "The trace holds no events. Was the profiler stopped before its schedule reached an active step?"
            )

    def add(self, events: list[Event]) -> None:
        """File one block of events."""
        self.events += len(events)
        groups: dict[str, list[Event]] = {}
        for event in events:
            key = event.cat if event.ph == "X" else "\0" + event.ph
            try:
                groups[key].append(event)
            except KeyError:
                groups[key] = [event]
        by_kind: dict[str, list[Event]] = {}
        for key, group in groups.items():
            if key.startswith("\0"):
                self._not_complete(key[1:], group)
            elif (kind := KINDS.get(key.lower())) is None:
                self.other[key] += len(group)
            elif kind in by_kind:
                by_kind[kind] += group
            else:
                by_kind[kind] = group
        for kind, group in by_kind.items():
            kept, start, dur = self._times(group)
            if kept:
                self._file[kind](kind, kept, start, dur)

    def _times(self, events: list[Event]) -> tuple[list[Event], NDArray[np.int64], NDArray[np.int64]]:
        """Return the events whose times make sense, with start and duration; drop and count the others."""
        start, dur = decimal_ns([e.ts for e in events]), decimal_ns([e.dur for e in events])
        bad_start = (start == NULL) | (np.abs(start) >= LARGEST)
        bad = bad_start | (dur < 0) | (dur > LONGEST_NS)
        if bad.any():
            note = self.document.note
            for key, rows in (
                ("time_missing", bad_start | (dur == NULL)),
                ("duration_negative", ~bad_start & (dur < 0) & (dur != NULL)),
                ("duration_absurd", ~bad_start & (dur > LONGEST_NS)),
            ):
                if count := int(rows.sum()):
                    note(key, events[int(rows.argmax())].name, count)
            events = [e for e, b in zip(events, bad, strict=True) if not b]
            start, dur = start[~bad], dur[~bad]
        return events, start, dur

    # -- ids
    def _names(self, events: list[Event]) -> NDArray[np.int32]:
        names = [e.name for e in events]
        if "" in names:
            self.document.note("name_missing", "", names.count(""))
            names = [name or UNNAMED for name in names]
        if len(max(names, key=len)) > self.limits.name_length:
            long = self.limits.name_length
            self.document.note("name_cut", max(names, key=len), sum(len(name) > long for name in names))
            names = [name[:long] for name in names]
        ids = np.fromiter(map(self.names.__getitem__, names), np.int32, len(names))
        if len(self.names) > self.limits.distinct_names:
            raise SourceError(
                "E-LIMIT", f"More than {self.limits.distinct_names:,} different names: this is not a trace anyone could read."
            )
        return ids

    def _threads(self, events: list[Event]) -> NDArray[np.int32]:
        keys = zip(texts([e.pid for e in events]), texts([e.tid for e in events]), strict=True)
        return np.fromiter(map(self.threads.__getitem__, keys), np.int32, len(events))

    def _args(self, events: Sequence[Event], form: Any) -> list[Any]:
        raws = [e.args for e in events]
        try:
            return msgspec.json.decode(b"[" + b",".join(raws) + b"]", type=list[form])
        except DECODE_ERRORS:
            return [_loose_args(raw, form) for raw in raws]

    # -- one method per kind
    def _ops(self, kind: str, events: list[Event], start: NDArray[np.int64], dur: NDArray[np.int64]) -> None:
        args = self._args(events, OpArgs)
        shapes = [(bytes(a.dims or a.dims_2021), bytes(a.types), bytes(a.strides), bytes(a.concrete)) for a in args]
        blank = (b"", b"", b"", b"")
        names = self._names(events)
        annotation = np.full(len(events), kind == "annotation")
        if kind == "op":
            marked = {i for name, i in self.names.items() if MARKER.match(name)}
            annotation |= np.isin(names, list(marked)) if marked else False
        row = self.tables["ops"].rows
        extra = np.full(len(events), -1, np.int32)
        for i, event in enumerate(events):
            if EXTRA_MARK.search(event.args):
                found = _object(event.args)
                extra[i] = self.extras[
                    (msgspec.json.encode({k: found[k] for k in EXTRA if found.get(k) not in (None, "", [])}),)
                ]
        self.tables["ops"].add(
            {
                "annotation": annotation,
                "name_id": names,
                "thread_id": self._threads(events),
                "start": start,
                "dur": dur,
                "external_id": integers([a.external for a in args]),
                "sequence_number": integers([a.sequence for a in args]),
                "forward_thread": integers([a.forward for a in args]),
                "signature_id": np.array([self.signatures[s] if s != blank else -1 for s in shapes], np.int32),
                "extra": extra,
            }
        )
        self._collectives(events, row, "op")

    def _calls(self, kind: str, events: list[Event], start: NDArray[np.int64], dur: NDArray[np.int64]) -> None:
        self.tables["calls"].add(
            {
                "name_id": self._names(events),
                "thread_id": self._threads(events),
                "start": start,
                "dur": dur,
                "correlation": integers([a.correlation for a in self._args(events, CallArgs)]),
            }
        )

    def _gpu(self, kind: str, events: list[Event], start: NDArray[np.int64], dur: NDArray[np.int64]) -> None:
        args = self._args(events, GpuArgs)
        grids = np.array([self._triple(a.grid) for a in args], np.int64).reshape(-1, 3)
        blocks = np.array([self._triple(a.block) for a in args], np.int64).reshape(-1, 3)
        external = integers([a.external for a in args])
        row = self.tables["gpu"].rows
        self.tables["gpu"].add(
            {
                "kind": np.full(len(events), GPU_KINDS.index(kind), np.int8),
                "name_id": self._names(events),
                "device": _known(integers([a.device for a in args]), [e.pid for e in events]),
                "stream": _known(integers([a.stream for a in args]), [e.tid for e in events]),
                "start": start,
                "dur": dur,
                "correlation": integers([a.correlation for a in args]),
                "external_id": np.where(external == NULL, integers([a.external_2021 for a in args]), external),
                **{
                    f"{what}_{axis}": values[:, i]
                    for what, values in (("grid", grids), ("block", blocks))
                    for i, axis in enumerate("xyz")
                },
                "registers_per_thread": integers([a.registers for a in args]),
                "shared_memory_bytes": integers([a.shared for a in args]),
                "blocks_per_sm": floats([a.blocks for a in args]),
                "warps_per_sm": floats([a.warps for a in args]),
                "occupancy_pct": floats([a.occupancy for a in args]),
                "bytes": integers([a.bytes for a in args]),
                "graph_id": integers([a.graph for a in args]),
                "graph_node_id": integers([a.node for a in args]),
            }
        )
        self._collectives(events, row, "gpu")

    def _gpu_annotations(self, kind: str, events: list[Event], start: NDArray[np.int64], dur: NDArray[np.int64]) -> None:
        missing = np.full(len(events), NULL)
        self.tables["gpu_annotations"].add(
            {
                "name_id": self._names(events),
                "device": _known(missing, [e.pid for e in events]),
                "stream": _known(missing, [e.tid for e in events]),
                "start": start,
                "dur": dur,
            }
        )

    def _python(self, kind: str, events: list[Event], start: NDArray[np.int64], dur: NDArray[np.int64]) -> None:
        self.tables["python"].add(
            {
                "name_id": self._names(events),
                "thread_id": self._threads(events),
                "start": start,
                "dur": dur,
                "module_id": integers([a.module for a in self._args(events, PythonArgs)]),
            }
        )

    def _syncs(self, kind: str, events: list[Event], start: NDArray[np.int64], dur: NDArray[np.int64]) -> None:
        args = self._args(events, SyncArgs)
        kinds = [str(a.kind) if a.kind is not None else e.name for a, e in zip(args, events, strict=True)]
        self.tables["syncs"].add(
            {
                "kind": np.array(kinds, object),
                "device": _known(integers([a.device for a in args]), [e.pid for e in events]),
                "stream": _known(integers([a.stream for a in args]), [e.tid for e in events]),
                "start": start,
                "dur": dur,
                "correlation": integers([a.correlation for a in args]),
                "wait_on_stream": integers([a.wait_stream for a in args]),
                "wait_on_event_correlation": integers([a.wait_event for a in args]),
            }
        )

    def _overheads(self, kind: str, events: list[Event], start: NDArray[np.int64], dur: NDArray[np.int64]) -> None:
        self.tables["overheads"].add(
            {"name_id": self._names(events), "thread_id": self._threads(events), "start": start, "dur": dur}
        )

    def _not_complete(self, phase: str, events: list[Event]) -> None:
        """File what is no complete ('X') event: metadata and allocator events; count the rest."""
        if phase == "M":
            for event in events:
                name = _object(event.args).get("name")
                pid, tid = (text.decode(errors="replace") for text in texts([event.pid, event.tid]))
                if event.name == "thread_name" and name is not None:
                    self.thread_names[pid, tid] = str(name)
                elif event.name == "process_name" and name is not None:
                    self.process_names[pid] = str(name)
            return
        memory = [e for e in events if phase in "iI" and e.name == "[memory]"]
        self.other[f"ph {phase}"] += len(events) - len(memory)
        if not memory:
            return
        time = decimal_ns([e.ts for e in memory])
        args = self._args(memory, MemoryArgs)
        columns: Columns = {"time": time, "thread_id": self._threads(memory)}
        for key in ("device_type", "device", "address", "bytes", "allocated", "reserved"):
            columns[key] = integers([getattr(a, key) for a in args])
        if (bad := time == NULL).any():
            self.document.note("time_missing", "[memory]", int(bad.sum()))
            columns = {key: values[~bad] for key, values in columns.items()}
        self.tables["memory"].add(columns)

    def _collectives(self, events: list[Event], row: int, side: str) -> None:
        rows = [i for i, e in enumerate(events) if b'"Collective name"' in bytes(e.args)]
        if not rows:
            return
        args = self._args([events[i] for i in rows], CollectiveArgs)
        columns: Columns = {"row": np.array(rows) + row, "gpu": np.full(len(rows), side == "gpu")}
        for key in ("name", "dtype", "group_name", "group_description", "group_ranks"):
            columns[key] = np.array([None if (v := getattr(a, key)) is None else str(v) for a in args], object)
        for key in ("in_elements", "out_elements", "group_size", "sequence"):
            columns[key] = integers([getattr(a, key) for a in args])
        columns["asynchronous"] = np.array(
            [None if a.asynchronous is None else str(a.asynchronous).lower() in ("true", "1") for a in args], object
        )
        self.tables["collectives"].add(columns)

    def _triple(self, raw: Raw) -> tuple[int, int, int]:
        key = bytes(raw)
        found = self._grids.get(key)
        if found is None:
            value = msgspec.json.decode(key) if key else None
            numbers = integers(value) if isinstance(value, list) and len(value) == 3 else [NULL] * 3
            found = self._grids[key] = (int(numbers[0]), int(numbers[1]), int(numbers[2]))
        return found


def _known(values: NDArray[np.int64], fallback: list[Raw]) -> NDArray[np.int64]:
    """Fill NULLs of ``values`` with the number in the row's pid or tid ('stream 7'), else 0: a device and a stream always exist."""
    for i in np.flatnonzero(values == NULL):
        digits = re.search(rb"-?\d+", bytes(fallback[i]))
        values[i] = int(digits.group()) if digits and len(digits.group()) < 19 else 0
    return values


def _object(raw: Raw) -> dict[str, Any]:
    """Return the arguments of one event as a dict; empty where they are no object."""
    for text in (bytes(raw), repair(bytes(raw))[0]):
        try:
            found = msgspec.json.decode(text)
        except DECODE_ERRORS:
            continue
        return found if isinstance(found, dict) else {}
    return {}


def _loose_args(raw: Raw, form: Any) -> Any:
    """Read arguments that do not have the types they should: what fits is kept, the rest is not recorded."""
    result = form()
    found = _object(raw)
    for known in msgspec.structs.fields(form):
        value = found.get(known.encode_name)
        if getattr(result, known.name) is NOTHING:
            if known.encode_name in found:
                setattr(result, known.name, Raw(msgspec.json.encode(value)))
        elif isinstance(value, int | float | str):
            setattr(result, known.name, value)
    return result
