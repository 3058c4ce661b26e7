"""Sort decoded events by category into columns; names, threads and signatures become ids."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sawtooth.ingest.decode import I64, MAX_TIME_NS, NULL, decimal_ns, floats, integers, small_integers, whole_microseconds
from sawtooth.ingest.trace.source import GPU_KINDS
from sawtooth.ingest.trace.spool import Columns
from sawtooth.ingest.trace.torch_json.arguments import CallArgs, CollectiveArgs, GpuArgs, MemoryArgs, PythonArgs, SyncArgs
from sawtooth.ingest.trace.torch_json.cuspy import counters, kineto_names, real_streams
from sawtooth.ingest.trace.torch_json.decoding import collectives, decode_arguments, graph_annotations, object_of, text_of
from sawtooth.ingest.trace.torch_json.interning import InternedIds, NameIds, ThreadIds, plain_id
from sawtooth.ingest.trace.torch_json.kinds import EDGE_KINDS, KINDS, MARKER
from sawtooth.ingest.trace.torch_json.operators import OperatorArguments, no_ids
from sawtooth.ingest.trace.torch_json.text.events import ARROWS, FLOWS, USUAL_FORMS, Event

MAX_EVENT_NS = 7 * 86400 * 1_000_000_000  # No event lasts a week. CUPTI writes years for records that were never closed.
# torch 2.12 writes lost events with start and duration 0. If a trace has times above this limit, no real event starts at 0.
LOST_EVENTS_NS = 1000 * 1_000_000_000
THREAD_KEY = attrgetter("pid", "tid")


@dataclass
class BlockColumns:
    """Columns of the events of one block, by table; all ids come from one ``BlockSorter``."""

    events: int = 0
    columns: list[tuple[str, Columns]] = field(default_factory=list)
    # The values that got an id in this block, by kind of id (names, threads, …).
    new_keys: dict[str, list[Any]] = field(default_factory=dict)
    collectives: list[CollectiveArgs] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    other: Counter[str] = field(default_factory=Counter)  # Events that are not stored, by category or phase.
    thread_names: dict[tuple[str, str], str] = field(default_factory=dict)
    process_names: dict[str, str] = field(default_factory=dict)
    whole_microseconds: bool = True  # Whether all times are whole microseconds, so that starts and ends are rounded.
    contexts: Counter[tuple[int, int]] = field(default_factory=Counter)  # GPU operations by CUDA context and device.


class BlockSorter:
    """Sorting of events into columns, block by block; ``take`` returns the columns since its last call."""

    def __init__(self, name_length: int) -> None:
        self._notes: Counter[str] = Counter()
        self._names = NameIds(name_length, self._notes)
        self._threads = ThreadIds()
        self._operators = OperatorArguments(self._notes)
        self._sync_kinds, self._shapes = InternedIds(), InternedIds()
        self._ids = {
            "names": self._names,
            "threads": self._threads.texts,
            "signatures": self._operators.signatures.meanings,
            "extras": self._operators.extras.meanings,
            "sync_kinds": self._sync_kinds,
            "shapes": self._shapes,
        }
        self._block = BlockColumns()
        self._add_kind: dict[str, Callable[[str, list[Event], I64, I64], None]] = {
            "op": self._ops,
            "operator": self._ops,
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

    def take(self) -> BlockColumns:
        """Return the columns since the last call."""
        block, self._block = self._block, BlockColumns()
        block.new_keys = {key: ids.drain() for key, ids in self._ids.items()}
        block.notes = Counter(self._notes)
        self._notes.clear()
        return block

    def _put(self, table: str, columns: Columns) -> None:
        self._block.columns.append((table, columns))

    def add(self, events: list[Event]) -> None:
        """Sort one block of events."""
        self._block.events += len(events)
        # Most blocks have only complete events, and arrows, which are not stored.
        if not USUAL_FORMS.issuperset(map(type, events)):
            self._add_other_phases([e for e in events if e.ph != "X"])
            events = [e for e in events if e.ph == "X"]
        groups: defaultdict[str, list[Event]] = defaultdict(list)
        for event in events:
            groups[event.cat].append(event)
        by_kind: dict[str, list[Event]] = {}
        for category, group in groups.items():
            if (kind := KINDS.get(category.lower())) is not None:
                by_kind[kind] = by_kind[kind] + group if kind in by_kind else group
            else:
                self._block.other[ARROWS.get(category, category)] += len(group)
        # All kinds are converted in one call, because a call costs more than converting its numbers.
        starts = decimal_ns([e.ts for group in by_kind.values() for e in group])
        durs = decimal_ns([e.dur for group in by_kind.values() for e in group])
        begin = 0
        for kind, group in by_kind.items():
            rows = slice(begin, begin := begin + len(group))
            plausible, start, dur = self._with_plausible_times(group, starts[rows], durs[rows])
            if plausible:
                self._add_kind[kind](kind, plausible, start, dur)

    def _with_plausible_times(self, events: list[Event], start: I64, dur: I64) -> tuple[list[Event], I64, I64]:
        """Return the events with plausible times, with start and duration; drop and count the others."""
        no_start, no_dur = (start == NULL) | (np.abs(start) >= MAX_TIME_NS), dur == NULL
        lost = (start == 0) & (dur == 0) if int(start.max()) > LOST_EVENTS_NS else np.zeros(len(start), bool)
        bad = no_start | (dur < 0) | (dur > MAX_EVENT_NS) | lost
        if bad.any():
            self._note_bad(events, no_start | no_dur, "time_missing")
            self._note_bad(events, ~no_start & (dur < 0) & ~no_dur, "duration_negative")
            self._note_bad(events, ~no_start & (dur > MAX_EVENT_NS), "duration_absurd")
            self._note_bad(events, lost, "time_zero")
            events = [event for event, is_bad in zip(events, bad, strict=True) if not is_bad]
            start, dur = start[~bad], dur[~bad]
        if self._block.whole_microseconds:
            self._block.whole_microseconds = whole_microseconds(start) and whole_microseconds(dur)
        return events, start, dur

    def _note_bad(self, events: list[Event], rows: NDArray[np.bool_], key: str) -> None:
        if count := int(rows.sum()):
            self._notes[key] += count
            self._block.examples.setdefault(key, events[int(rows.argmax())].name)

    # -- ids
    def _name_ids(self, events: list[Event], names: list[str] | None = None) -> NDArray[np.int32]:
        names = [e.name for e in events] if names is None else names
        return np.fromiter(map(self._names.__getitem__, names), np.int32, len(events))

    def _thread_ids(self, events: list[Event]) -> NDArray[np.int32]:
        return np.fromiter(map(self._threads.__getitem__, map(THREAD_KEY, events)), np.int32, len(events))

    def _timed(self, events: list[Event], start: I64, dur: I64) -> Columns:
        return {"name_id": self._name_ids(events), "thread_id": self._thread_ids(events), "start": start, "dur": dur}

    # -- one method per kind of event
    def _ops(self, kind: str, events: list[Event], start: I64, dur: I64) -> None:
        annotation = np.full(len(events), kind == "annotation")
        if kind == "operator":
            annotation = np.array([MARKER.match(e.name) is not None for e in events])
        names = self._name_ids(events)
        columns: Columns = {
            "annotation": annotation,
            "name_id": names,
            "thread_id": self._thread_ids(events),
            "start": start,
            "dur": dur,
        }
        self._put("ops", columns | self._operators.columns(events, names, self._block.collectives))

    def _calls(self, kind: str, events: list[Event], start: I64, dur: I64) -> None:
        columns = self._timed(events, start, dur)
        self._put("calls", {**columns, "correlation": integers([a.correlation for a in decode_arguments(events, CallArgs)])})

    def _gpu(self, kind: str, events: list[Event], start: I64, dur: I64) -> None:
        text = text_of(events)
        args = decode_arguments(events, GpuArgs, text)
        shapes = self._shapes
        external = integers([a.external for a in args])
        if b'"external id"' in text:
            external = np.where(external == NULL, integers([a.external_2021 for a in args]), external)
        device = _fill(small_integers([a.device for a in args]), events, "pid")
        self._block.contexts += Counter(zip(integers([a.context for a in args]).tolist(), device.tolist(), strict=True))
        self._put("graph_annotations", graph_annotations(events, text, start, self._names))
        self._put(
            "gpu",
            {
                "kind": np.full(len(events), GPU_KINDS.index(kind), np.int8),
                "name_id": self._name_ids(events, kineto_names(kind, events, text)),
                "device": device,
                "stream": real_streams(_fill(integers([a.stream for a in args]), events, "tid"), events, text),
                "start": start,
                "dur": dur,
                "correlation": integers([a.correlation for a in args]),
                "external_id": external,
                "shape": np.fromiter((shapes[bytes(a.grid), bytes(a.block)] for a in args), np.int32, len(args)),
                "registers_per_thread": small_integers([a.registers for a in args]),
                "shared_memory_bytes": integers([a.shared for a in args]),
                "blocks_per_sm": floats([a.blocks for a in args]),
                "warps_per_sm": floats([a.warps for a in args]),
                "occupancy_pct": floats([a.occupancy for a in args]),
                "bytes": integers([a.bytes for a in args]),
                "graph_id": integers([a.graph for a in args]),
                "graph_node_id": integers([a.node for a in args]),
                "collective": collectives(events, text, self._block.collectives),
            },
        )

    def _gpu_annotations(self, kind: str, events: list[Event], start: I64, dur: I64) -> None:
        missing = np.full(len(events), NULL)
        device, stream = _fill(missing.copy(), events, "pid"), _fill(missing, events, "tid")
        columns: Columns = {"name_id": self._name_ids(events), "device": device, "stream": stream, "start": start, "dur": dur}
        self._put("gpu_annotations", columns)

    def _python(self, kind: str, events: list[Event], start: I64, dur: I64) -> None:
        columns = self._timed(events, start, dur)
        self._put("python", {**columns, "module_id": integers([a.module for a in decode_arguments(events, PythonArgs)])})

    def _syncs(self, kind: str, events: list[Event], start: I64, dur: I64) -> None:
        args = decode_arguments(events, SyncArgs)
        kinds = [self._sync_kinds[str(a.kind) if a.kind is not None else e.name] for a, e in zip(args, events, strict=True)]
        self._put(
            "syncs",
            {
                "kind": np.array(kinds, np.int32),
                "device": _fill(small_integers([a.device for a in args]), events, "pid"),
                "stream": _fill(integers([a.stream for a in args]), events, "tid"),
                "start": start,
                "dur": dur,
                "correlation": integers([a.correlation for a in args]),
                "wait_on_stream": integers([a.wait_stream for a in args]),
                "wait_on_event_correlation": integers([a.wait_event for a in args]),
            },
        )

    def _overheads(self, kind: str, events: list[Event], start: I64, dur: I64) -> None:
        self._put("overheads", self._timed(events, start, dur))

    # -- events that are not complete ('X')
    def _add_other_phases(self, events: list[Event]) -> None:
        phases = [e.ph for e in events]
        for phase in set(phases):
            if phase in FLOWS:
                self._block.other[f"ph {phase}"] += phases.count(phase)
                continue
            group = [e for e in events if e.ph == phase]
            if phase == "C":
                counter_events, group, notes = counters(group)
                self._put("counters", counter_events)
                self._notes += notes
            if phase == "M":
                self._metadata(group)
            elif phase in ("B", "E"):
                self._begins_or_ends(phase, group)
            else:
                memory = [e for e in group if e.name == "[memory]"] if phase in ("i", "I") else []
                self._block.other[f"ph {phase}"] += len(group) - len(memory)
                if memory:
                    self._memory(memory)

    def _metadata(self, events: list[Event]) -> None:
        for event in events:
            name = object_of(event.args).get("name")
            pid, tid = plain_id(event.pid), plain_id(event.tid)
            if event.name == "thread_name" and name is not None:
                self._block.thread_names[pid, tid] = str(name)
            elif event.name == "process_name" and name is not None:
                self._block.process_names[pid] = str(name)

    def _memory(self, events: list[Event]) -> None:
        time = decimal_ns([e.ts for e in events])
        args = decode_arguments(events, MemoryArgs)
        columns: Columns = {"start": time, "thread_id": self._thread_ids(events)}
        for key in ("device_type", "device"):
            columns[key] = small_integers([getattr(a, key) for a in args])
        for key in ("address", "bytes", "allocated", "reserved"):
            columns[key] = integers([getattr(a, key) for a in args])
        bad = (time == NULL) | (np.abs(time) >= MAX_TIME_NS)
        self._note_bad(events, bad, "time_missing")
        self._put("memory", {key: values[~bad] for key, values in columns.items()})

    def _begins_or_ends(self, phase: str, events: list[Event]) -> None:
        edge_events = [e for e in events if KINDS.get(e.cat.lower()) in EDGE_KINDS or (phase == "E" and not e.cat)]
        self._block.other[f"ph {phase}"] += len(events) - len(edge_events)
        if not edge_events:
            return
        time = decimal_ns([e.ts for e in edge_events])
        kinds = np.array([EDGE_KINDS.index(KINDS.get(e.cat.lower(), "op")) for e in edge_events], np.int8)
        bad = (time == NULL) | (np.abs(time) >= MAX_TIME_NS)
        self._note_bad(edge_events, bad, "time_missing")
        names = self._name_ids(edge_events) if phase == "B" else no_ids(len(edge_events))
        columns: Columns = {"start": time, "thread_id": self._thread_ids(edge_events), "name_id": names, "kind": kinds}
        self._put("edges", {key: values[~bad] for key, values in columns.items()})


def _fill(values: I64, events: list[Event], field: str) -> I64:
    """Replace NULL in ``values`` by the number in the event's ``field``, such as "stream 7", else by 0."""
    for index in np.flatnonzero(values == NULL):
        digits = re.search(r"-?\d{1,9}", str(getattr(events[index], field)))
        values[index] = int(digits.group()) if digits else 0
    return values
