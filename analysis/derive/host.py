"""Work of the launching threads: their time by cause, and the threads that take turns.

The main thread and autograd's threads take turns, so together they form one line of host work. A thread that launches in
parallel with these threads forms its own line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import duckdb
import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import CpuOps, TraceEvents
from sawtooth.analysis.intervals import Intervals, assign_layers, union
from sawtooth.analysis.knowledge.causes import CAUSES, HOST_CAUSES, HostSigns
from sawtooth.analysis.knowledge.host_names import COMPUTES_AT_LEAST_NS, ENGINE_OP
from sawtooth.analysis.replay.simulation import I32, I64

POLLED = ", polled"  # Ends the name of a wait by polling (``parts/polls.py``).
SYNC_CALL = re.compile(rf"^(cuda|cu|hip)(Stream|Device|Event|Ctx|Context)Synchronize|^(cuda|hip)Free(Host)?$|Query{POLLED}$")
LAUNCH_KERNEL = re.compile(r"launchkernel", re.IGNORECASE)
SYNC_COPY = re.compile(r"^(cuda|hip|cu)Memcpy(?!.*Async)(2D|3D|HtoD|DtoH|DtoD)?")
EVENT_SYNC = re.compile(r"EventSynchronize")
DEVICE_SYNC = re.compile(r"(Device|Ctx|Context)Synchronize|Free")
LOADS_AT_LEAST_NS = 500_000  # In ns. If the queue is not full, a launch takes this long only if it loads code.
LOADS_TIMES_USUAL = 50  # A launch that loads code is also this many times longer than the usual launch.
PYTHON_CALL_NS = 700  # Cost of recording one Python call: measured 0.3 to 1.2 µs, longest in compiled code.
USUAL_NAME_COUNT = 500  # Usual names of a trace without Python calls. All ranks have the same ones.
CONCURRENT_SHARE = 0.2  # Above this share of overlapping launches, a thread works in parallel with the main line.


@dataclass(frozen=True)
class HostFacts:
    """Host data of a recording that ``TraceEvents`` lacks; times are relative to its ``origin_ns``.

    Missing tables are empty arrays. ``sync_call`` and ``sync_stream`` are the synchronizing calls, by id, and the streams that
    these calls waited for. Both need recorded ``cuda_sync`` events. ``annotated_op`` are the GPU operations, by id, that have a
    name in their CUDA graph, with a flag for backward work. If these events are a part of a recording, ``kernels_before`` has
    the names of the kernels that ran before them.
    """

    overhead_name: I32 = field(default_factory=lambda: np.empty(0, np.int32))
    overhead_start: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    overhead_end: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    python_name: I32 = field(default_factory=lambda: np.empty(0, np.int32))
    python_thread: I32 = field(default_factory=lambda: np.empty(0, np.int32))
    python_start: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    python_end: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    python_parent: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    sync_call: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    sync_stream: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    annotated_op: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    annotated_name: I32 = field(default_factory=lambda: np.empty(0, np.int32))
    annotated_backward: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, bool))
    kernels_before: I32 = field(default_factory=lambda: np.empty(0, np.int32))


def load_host_facts(con: duckdb.DuckDBPyConnection, origin_ns: int, where: str = "true") -> HostFacts:
    """Read overheads, Python calls and synchronizations of the recording that ``con`` uses.

    ``where`` selects overheads and Python calls. Synchronizations are always read completely.
    """

    def read(sql: str) -> list[np.ndarray]:
        return [np.asarray(v) for v in con.execute(sql).fetchnumpy().values()]

    overheads = read(
        f"SELECT name_id, start_ns - {origin_ns}, start_ns + dur_ns - {origin_ns} FROM overheads WHERE {where} ORDER BY start_ns, name_id"
    )
    python = read(
        f"SELECT name_id, thread_id, start_ns - {origin_ns}, start_ns + dur_ns - {origin_ns}, coalesce(parent_id, -1) FROM python_calls WHERE {where} ORDER BY python_call_id"
    )
    syncs = read(
        """SELECT c.call_id, min(coalesce(s.wait_on_stream, s.stream)) FROM syncs s JOIN runtime_calls c USING (correlation)
        WHERE s.kind IN ('Stream Sync', 'Stream Synchronize') AND coalesce(s.wait_on_stream, s.stream) >= 0 GROUP BY 1 ORDER BY 1"""
    )
    return HostFacts(*overheads, *python, *syncs, *(read(_ANNOTATED) if has_graph_annotations(con) else ()))


_ANNOTATED = """SELECT gpu_op_id, a.name_id, a.backward FROM gpu_ops g JOIN graph_annotations a
    ON g.graph_node_id = a.graph_node_id AND g.graph_id IS NOT DISTINCT FROM a.graph_id ORDER BY 1"""


def has_graph_annotations(con: duckdb.DuckDBPyConnection) -> bool:
    """Return whether kernels in CUDA graphs have names; recordings of earlier versions lack the table."""
    has_table = con.execute("SELECT 1 FROM duckdb_columns() WHERE table_name = 'graph_annotations' LIMIT 1").fetchall()
    return bool(has_table and con.execute("SELECT 1 FROM graph_annotations LIMIT 1").fetchall())


@dataclass(frozen=True)
class CauseTimeline:
    """The cause of each moment of one line of host work, as disjoint pieces.

    ``cause`` (index into HOST_CAUSES) applies to [start, next start).
    """

    start: I64
    cause: NDArray[np.int8]

    def within(self, begin: I64, end: I64) -> I64:
        """Return the ns of each cause inside the intervals.

        The shape is (len(begin), len(HOST_CAUSES)). Each row sums to end − begin.
        """
        edges = self.start
        parts = np.zeros((len(begin), len(HOST_CAUSES)), dtype=np.int64)
        if len(begin) == 0:
            return parts
        lengths = np.diff(edges)
        for cause in range(len(HOST_CAUSES)):
            total = np.concatenate([[0], np.cumsum(np.where(self.cause[:-1] == cause, lengths, 0))])

            def before(t: I64, cause: int = cause, total: I64 = total) -> I64:
                at = np.clip(np.searchsorted(edges, t, side="right") - 1, 0, len(edges) - 1)
                return total[at] + np.where(self.cause[at] == cause, t - edges[at], 0)

            parts[:, cause] = before(end) - before(begin)
        return parts


def matches_of(names: list[str], pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    """Return, by name id, whether ``pattern`` is found in the name."""
    search = _matches if len(names) <= USUAL_NAME_COUNT else _matches.__wrapped__
    return np.array([search(pattern, name) for name in names] or [False], dtype=bool)


@lru_cache(40 * USUAL_NAME_COUNT)  # About 40 patterns search each name.
def _matches(pattern: re.Pattern[str], name: str) -> bool:
    return pattern.search(name) is not None


@dataclass(frozen=True)
class Lines:
    """The threads that form each line of host work.

    ``of_thread[thread_id]`` is the line: 0 for the main line, -1 for a thread that launches nothing.
    """

    of_thread: I32
    engine: NDArray[np.bool_]

    @property
    def count(self) -> int:
        """Number of lines."""
        return int(self.of_thread.max(initial=-1)) + 1


def find_lines(events: TraceEvents, facts: HostFacts) -> Lines:
    """Group the launching threads into lines: threads that take turns share a line, parallel ones do not."""
    calls, ops = events.calls, events.ops
    threads = int(max(calls.thread.max(initial=-1), ops.thread.max(initial=-1), facts.python_thread.max(initial=-1))) + 1
    engine = np.zeros(threads, dtype=bool)
    if len(ops):  # Autograd's own threads run only operators of its graph. The calling thread runs few of these operators.
        outermost = (ops.parent < 0) & ~ops.annotation
        by_engine = outermost & matches_of(events.names, ENGINE_OP)[ops.name]
        engine = np.bincount(ops.thread[by_engine], minlength=threads) * 2 > np.bincount(
            ops.thread[outermost], minlength=threads
        )
    of_thread = np.full(threads, -1, dtype=np.int32)
    launches = calls.gpu_ops > 0
    per_thread = np.bincount(calls.thread[launches], minlength=threads)
    if not launches.any():
        return Lines(of_thread, engine)
    steps = matches_of(events.names, re.compile(r"^ProfilerStep#|^Optimizer\.(step|zero_grad)#"))[ops.name] & ops.annotation
    marked = np.bincount(ops.thread[steps], minlength=threads)
    main = int(np.lexsort((per_thread, marked > 0))[-1])
    of_thread[main] = 0
    other_lines = 0
    for thread in np.argsort(-per_thread, kind="stable"):
        if thread == main or per_thread[thread] == 0:
            continue
        own_launches = launches & (calls.thread == thread)
        line = (of_thread[calls.thread] == 0) & (launches | matches_of(events.names, SYNC_CALL)[calls.name])
        start, end = union(calls.start[line], calls.end[line])
        at = np.searchsorted(start, calls.start[own_launches], side="right") - 1
        inside = (at >= 0) & (calls.start[own_launches] < (end[np.maximum(at, 0)] if len(end) else 0))
        if engine[thread] or inside.mean() <= CONCURRENT_SHARE:
            of_thread[thread] = 0
        else:
            other_lines += 1
            of_thread[thread] = other_lines
    return Lines(of_thread, engine)


def cause_timeline(
    events: TraceEvents, facts: HostFacts, lines: Lines, line: int, calls_of: Mapping[str, NDArray[np.bool_]]
) -> CauseTimeline:
    """Return the cause of each moment of one line, over the full trace.

    ``calls_of`` marks, by cause, the calls whose cause their name does not show.
    """
    calls, ops, names = events.calls, events.ops, events.names
    call_here, op_here = lines.of_thread[calls.thread] == line, lines.of_thread[ops.thread] == line
    py_here = lines.of_thread[facts.python_thread] == line if len(facts.python_thread) else np.zeros(0, dtype=bool)
    any_line = np.ones(len(facts.overhead_name), bool)

    def spans_of(on_host: HostSigns) -> list[tuple[I64, I64]]:
        """Return the starts and ends of this line's events that match a cause's patterns."""
        sources = (
            (on_host.calls, calls.name, call_here, calls.start, calls.end),
            (on_host.operators, ops.name, op_here, ops.start, ops.end),
            (on_host.python, facts.python_name, py_here, facts.python_start, facts.python_end),
            (on_host.overheads, facts.overhead_name, any_line, facts.overhead_start, facts.overhead_end),
        )
        marks = []
        for pattern, name, threads, start, end in sources:
            if pattern is not None and len(threads):
                matching_rows = threads & matches_of(names, pattern)[name]
                marks.append((start[matching_rows], end[matching_rows]))
        if on_host.computing is not None:
            matching_rows = op_here & _computes(events, on_host.computing)
            marks.append((ops.start[matching_rows], ops.end[matching_rows]))
        return marks

    in_operator = op_here & ~ops.annotation
    layers = {cause.key: spans_of(cause.on_host) for cause in CAUSES if cause.on_host is not None}
    for cause, marked in calls_of.items():
        matching_rows = call_here & marked
        layers.setdefault(cause, []).append((calls.start[matching_rows], calls.end[matching_rows]))
    outer = _not_inside_another(ops, in_operator)
    layers["launch_bound"] = [(ops.start[outer], ops.end[outer]), (calls.start[call_here], calls.end[call_here])]
    remaining_cause = HOST_CAUSES[-1]  # python_host gets the time without another cause.
    starts, _, causes = assign_layers([_union_of(layers[key]) for key in HOST_CAUSES if key != remaining_cause], *span(events))
    return CauseTimeline(starts, causes)


def _computes(events: TraceEvents, pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    """Return, by operator, whether it computes on the CPU.

    This is true if its name matches, it takes at least COMPUTES_AT_LEAST_NS, and its thread makes no call inside it.
    """
    ops, calls = events.ops, events.calls
    fits = ~ops.annotation & (ops.end - ops.start >= COMPUTES_AT_LEAST_NS) & matches_of(events.names, pattern)[ops.name]
    for thread in np.unique(ops.thread[fits]).tolist():
        candidates = np.flatnonzero(fits & (ops.thread == thread))
        called = np.sort(calls.start[calls.thread == thread])
        fits[candidates] = np.searchsorted(called, ops.start[candidates]) == np.searchsorted(called, ops.end[candidates])
    return fits


def _not_inside_another(ops: CpuOps, among: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the members of ``among`` without those that lie completely inside a parent from ``among``.

    The result covers the same time as ``among``.
    """
    parent = np.maximum(ops.parent, 0)
    inside = among[parent] if len(among) else among
    inside &= ops.parent >= 0
    inside &= ops.end <= ops.end[parent]
    return among & ~inside


def loads_code(events: TraceEvents, facts: HostFacts) -> NDArray[np.bool_]:
    """Return, by call, whether a launch loaded its kernel's code.

    Such a launch is the first one of its kernel in the recording and far longer than other launches. Some traces also have an
    overhead event of CUPTI for the loading. Other traces, such as traces of AMD GPUs, have only the long call.
    """
    calls, gpu = events.calls, events.gpu
    launches = matches_of(events.names, LAUNCH_KERNEL)[calls.name] & (calls.gpu_ops == 1)
    loads = np.zeros(len(calls), dtype=bool)
    if not launches.any():
        return loads
    durations = calls.end - calls.start
    of_launch = np.flatnonzero((gpu.call >= 0) & (gpu.kind == 0))
    of_launch = of_launch[np.argsort(calls.start[gpu.call[of_launch]], kind="stable")]
    first = of_launch[np.unique(gpu.name[of_launch], return_index=True)[1]]
    loads[gpu.call[first[~np.isin(gpu.name[first], facts.kernels_before)]]] = True
    return loads & launches & (durations >= max(LOADS_AT_LEAST_NS, LOADS_TIMES_USUAL * float(np.median(durations[launches]))))


def _union_of(pieces: list[tuple[I64, I64]]) -> Intervals:
    none = np.empty(0, np.int64)
    return union(np.concatenate([none, *(p[0] for p in pieces)]), np.concatenate([none, *(p[1] for p in pieces)]))


def span(events: TraceEvents) -> tuple[int, int]:
    """Return the first start and the last end (plus one) of all events."""
    starts = [int(a.min()) for a in (events.gpu.start, events.calls.start, events.ops.start) if len(a)]
    ends = [int(a.max()) for a in (events.gpu.end, events.calls.end, events.ops.end) if len(a)]
    return (min(starts), max(ends) + 1) if starts else (0, 1)
