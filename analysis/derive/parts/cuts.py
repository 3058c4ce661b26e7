"""Cuts of a long recording into parts: between marked steps, with similar numbers of events.

Some results need the full recording: the times of the steps on each device, and which steps count. They are computed first,
from a few columns. Everything else is derived part by part. A recording stays one part if its steps are not marked, or if
modules own the operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import duckdb
import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import (
    I64,
    Calls,
    CpuOps,
    GpuOps,
    TraceEvents,
    columns_of,
    in_order,
    load_events,
    names_of,
    origin_of,
    read_cpu_ops,
)
from sawtooth.analysis.derive.host import has_graph_annotations, load_host_facts
from sawtooth.analysis.derive.modules import MODULE
from sawtooth.analysis.derive.parts.loading import PartBounds, SharedData, load
from sawtooth.analysis.derive.parts.part import ALL_TIMES, DerivedPart, complete_recording
from sawtooth.analysis.derive.parts.polls import with_polled_waits
from sawtooth.analysis.derive.steps.device import DeviceSteps, device_steps
from sawtooth.analysis.derive.steps.host import find_host_steps, marked_steps
from sawtooth.analysis.derive.steps.host_steps import HostSteps
from sawtooth.analysis.derive.steps.joined_marks import with_marks_of_gpu
from sawtooth.analysis.derive.steps.lost_launches import lost_launches
from sawtooth.analysis.derive.unprofiled.problem import MIN_STEPS, USUAL_EVENTS
from sawtooth.analysis.intervals import Intervals

# Operators, calls and GPU operations: 25 MB of columns; two parts and their results need several times that.
PART_ROWS = 500_000
# Number of GPU operations. Each may have lost time before and after it, in several pieces of 100 bytes.
PART_OPERATIONS = 150_000
KEYS = {"gpu_ops": "gpu_op_id", "runtime_calls": "call_id", "cpu_ops": "cpu_op_id", "python_calls": "python_call_id"}
# Operators that mark steps. Without a profiler's marks, the backward passes show which optimizer steps belong to one step.
_MARKS = """(kind = 'annotation' OR cpu_op_id = 0 OR (name_id IN (SELECT name_id FROM names WHERE starts_with(name, 'autograd::engine::'))
    AND NOT EXISTS (SELECT 1 FROM names WHERE starts_with(name, 'ProfilerStep#'))))"""

Analysed = Callable[[NDArray[np.int32]], tuple[list[int], int]]


def parts_of(con: duckdb.DuckDBPyConnection, analysed: Analysed) -> Iterator[DerivedPart]:
    """Yield the recording that ``con`` uses, part by part.

    ``analysed`` chooses the GPUs to analyse from the GPU of each operation.
    """
    cut = _cut(con, analysed)
    if cut is None:
        events = with_polled_waits(load_events(con))
        host = with_marks_of_gpu(con, find_host_steps(events))
        devices, left_out = analysed(events.gpu.device)
        lost = lost_launches(con, events.origin_ns, Intervals(host.starts, host.ends))
        device_steps_list = [device_steps(events, host, d, lost) for d in devices]
        yield complete_recording(events, load_host_facts(con, events.origin_ns), host, device_steps_list, left_out)
        return
    for number in range(len(cut.borders) + 1):
        yield load(con, cut.spine, cut.host, cut.devices, cut.left_out, cut.bounds(number))


@dataclass(frozen=True)
class _Cut:
    """A recording's cuts. ``borders`` are the first steps of the second and each later part."""

    spine: SharedData
    host: HostSteps
    devices: list[DeviceSteps]
    left_out: int
    borders: list[int]

    def bounds(self, number: int) -> PartBounds:
        """Return the limits of a part: its own times, and the wider times of the loaded events.

        The wider times add one step on each side.
        """
        steps = len(self.host.starts)
        first = self.borders[number - 1] if number else 0
        behind = self.borders[number] if number < len(self.borders) else steps
        tables = [device.table for device in self.devices if len(device.table)]
        begins, ends = tables[0]["start"].to_numpy(np.int64), [table["end"].to_numpy(np.int64) for table in tables]
        opens, closes = first == 0, behind == steps
        earliest, latest = ALL_TIMES.starts[0], ALL_TIMES.ends[0]
        around_first, around_last = max(first - 1, 0), min(behind, steps - 1)
        return PartBounds(
            steps=slice(first, behind),
            parts=len(self.borders) + 1,
            first=opens,
            last=closes,
            device_time=_interval(earliest if opens else begins[first], latest if closes else begins[behind]),
            host_time=_interval(earliest if opens else self.host.starts[first], latest if closes else self.host.starts[behind]),
            device_view=(
                earliest if opens else min(int(table["start"].to_numpy(np.int64)[around_first]) for table in tables),
                latest if closes else max(int(end[around_last]) for end in ends),
            ),
            host_view=(
                earliest if opens else int(self.host.starts[around_first]),
                latest if closes else max(int(self.host.ends[around_last]), *(int(end[behind - 1]) for end in ends)),
            ),
        )


def _interval(start: int, end: int) -> Intervals:
    return Intervals(np.array([start], np.int64), np.array([end], np.int64))


def _cut(con: duckdb.DuckDBPyConnection, analysed: Analysed) -> _Cut | None:
    """Return where to cut; None if the recording is small or cannot be derived in parts."""
    rows = {table: int(con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]) for table in KEYS}
    total_rows = sum(rows[table] for table in ("gpu_ops", "runtime_calls", "cpu_ops"))
    part_count = max(total_rows // PART_ROWS, rows["gpu_ops"] // PART_OPERATIONS if total_rows > 2 * PART_ROWS else 0)
    # Up to this number of operations, the replay uses all steps, so a small recording is not cut.
    if part_count < 2 or rows["gpu_ops"] <= USUAL_EVENTS or _has_modules(con):
        return None
    if not all(in_order(con, table, key) for table, key in KEYS.items()):
        return None
    spine = _spine(con)
    host = marked_steps(spine)
    if host is None:
        return None
    host = with_marks_of_gpu(con, host)
    chosen, left_out = analysed(spine.gpu.device)
    lost = lost_launches(con, spine.origin_ns, Intervals(host.starts, host.ends))
    devices = [device_steps(spine, host, d, lost) for d in chosen]
    tables = [device.table for device in devices if len(device.table)]
    if not tables:
        return None
    largest = max(("gpu_ops", "runtime_calls", "cpu_ops"), key=rows.__getitem__)
    begins = tables[0]["start"].to_numpy(np.int64) if largest == "gpu_ops" else host.starts
    borders = _borders(begins, _moments(con, spine.origin_ns, largest, rows[largest], part_count))
    return (
        _Cut(SharedData.of(spine, devices), host, [_compact(device) for device in devices], left_out, borders)
        if borders
        else None
    )


def _compact(device: DeviceSteps) -> DeviceSteps:
    """Return a device's steps in half the memory; they stay in memory while all parts are derived."""
    return replace(device, ops=device.ops.astype(np.int32), op_step=device.op_step.astype(np.int32))


def _has_modules(con: duckdb.DuckDBPyConnection) -> bool:
    sql = "SELECT 1 FROM names SEMI JOIN python_calls USING (name_id) WHERE regexp_matches(name, ?) LIMIT 1"
    return bool(con.execute(sql, [MODULE.pattern]).fetchall()) or has_graph_annotations(con)


def _spine(con: duckdb.DuckDBPyConnection) -> TraceEvents:
    """Return the columns of a recording that mark its steps and place them on the devices.

    All other columns are empty.
    """
    origin, none = origin_of(con), np.empty(0, np.int64)
    gpu = columns_of(
        con,
        f"""SELECT name_id AS name, device, start_ns - {origin} AS start, start_ns + dur_ns - {origin} AS end, coalesce(call_id, -1)::INTEGER AS call,
            coalesce(cpu_op_id, -1)::INTEGER AS cpu_op FROM gpu_ops""",
    )
    calls = columns_of(con, f"SELECT start_ns - {origin} AS start, thread_id AS thread FROM runtime_calls")
    small = np.empty(0, np.int32)
    marks: CpuOps = read_cpu_ops(con, origin, _MARKS)
    return TraceEvents(
        origin,
        names_of(con),
        GpuOps(kind=np.empty(0, np.int8), stream=none, bytes=none, graph=none, **gpu),
        Calls(name=small, end=none, correlation=none, cpu_op=none, gpu_ops=small, **calls),
        marks,
    )


def _moments(con: duckdb.DuckDBPyConnection, origin: int, table: str, rows: int, count: int) -> I64:
    """Return the times at which the second and later of ``count`` equal parts of a table start."""
    places = ", ".join(str(rows * k // count) for k in range(1, count))
    sql = f"SELECT start_ns - {origin} AS start FROM {table} WHERE {KEYS[table]} IN ({places}) ORDER BY 1"
    return columns_of(con, sql)["start"].astype(np.int64)


def _borders(begins: I64, moments: I64) -> list[int]:
    """Return the steps at which to cut: the first step after each moment.

    No part has fewer steps than a replay needs.
    """
    borders: list[int] = []
    for step in np.searchsorted(begins, moments).tolist():
        if step - (borders[-1] if borders else 0) >= MIN_STEPS and len(begins) - step >= MIN_STEPS:
            borders.append(step)
    return borders
