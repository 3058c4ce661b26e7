"""Load one part of a recording, with the events to which its own events refer.

References are converted to indices in the part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import duckdb
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import (
    I32,
    I64,
    Calls,
    CpuOps,
    GpuOps,
    TraceEvents,
    columns_of,
    read_calls,
    read_cpu_ops,
    read_gpu_ops,
)
from sawtooth.analysis.derive.host import HostFacts, load_host_facts
from sawtooth.analysis.derive.parts.part import DerivedPart, Numbers
from sawtooth.analysis.derive.parts.polls import with_polled_waits
from sawtooth.analysis.derive.steps.device import DeviceSteps
from sawtooth.analysis.derive.steps.host_steps import HostSteps
from sawtooth.analysis.intervals import Intervals, intersect, union

Rows = TypeVar("Rows", GpuOps, Calls, CpuOps)


@dataclass(frozen=True)
class SharedData:
    """Data that all parts of a recording share.

    ``longest_ns`` is the duration of the longest GPU operation. ``first_of_name`` is the start of the first operation of each
    name. ``hulls`` is, by device, the time range that covers all of its operations and its window.
    """

    origin_ns: int
    names: list[str]
    longest_ns: int
    first_of_name: tuple[I32, I64]
    hulls: dict[int, Intervals]

    @staticmethod
    def of(events: TraceEvents, devices: list[DeviceSteps]) -> SharedData:
        """Return the spine of a recording and its devices."""
        gpu = events.gpu
        names, first = np.unique(gpu.name, return_index=True)
        return SharedData(
            origin_ns=events.origin_ns,
            names=events.names,
            longest_ns=int((gpu.end - gpu.start).max()),
            first_of_name=(names, gpu.start[first]),
            hulls={device.device: _hull(device, gpu) for device in devices},
        )


@dataclass(frozen=True)
class PartBounds:
    """The limits of one part: its ``steps`` and times.

    ``device_time`` and ``host_time`` are the times that the part counts; ``device_view`` and ``host_view`` are the wider times
    that it loads.
    """

    steps: slice
    parts: int
    first: bool
    last: bool
    device_time: Intervals
    host_time: Intervals
    device_view: tuple[int, int]
    host_view: tuple[int, int]


def load(
    con: duckdb.DuckDBPyConnection,
    spine: SharedData,
    host: HostSteps,
    devices: list[DeviceSteps],
    gpus_left_out: int,
    bounds: PartBounds,
) -> DerivedPart:
    """Read one part; ``spine`` and ``devices`` describe the full recording."""
    origin = spine.origin_ns
    gpu_ids, gpu = _gpu_ops(con, spine, bounds)
    between = _ids_between(con, "runtime_calls", "call_id", origin, bounds.host_view)
    call_ids, calls = _with_others(con, read_calls, "call_id", origin, between, gpu.call)
    op_ids, ops = _operators(con, origin, bounds.host_view, np.concatenate([gpu.cpu_op, calls.cpu_op]))
    gpu = replace(gpu, call=_indices_of(call_ids, gpu.call), cpu_op=_indices_of(op_ids, gpu.cpu_op))
    calls = replace(calls, cpu_op=_indices_of(op_ids, calls.cpu_op))
    ops = replace(ops, parent=_indices_of(op_ids, ops.parent))
    python_ids, facts = _facts(con, origin, bounds.host_view, call_ids)
    kernels, first = spine.first_of_name
    earlier = kernels[first < bounds.device_time.starts[0]]
    own_gpu = (gpu.start >= bounds.device_time.starts[0]) & (gpu.start < bounds.device_time.ends[0])
    return DerivedPart(
        events=with_polled_waits(TraceEvents(origin, spine.names, gpu, calls, ops)),
        facts=replace(facts, kernels_before=earlier),
        numbers=Numbers(gpu_ids, call_ids, op_ids, python_ids),
        host=host,
        devices=[_device(device, gpu, gpu_ids, own_gpu, bounds) for device in devices],
        windows=[device.window for device in devices],
        spans={device: intersect(hull, bounds.device_time) for device, hull in spine.hulls.items()},
        gpus_left_out=gpus_left_out,
        own_gpu=own_gpu,
        own_ops=(ops.start >= bounds.host_time.starts[0]) & (ops.start < bounds.host_time.ends[0]),
        device_time=bounds.device_time,
        host_time=bounds.host_time,
        steps=bounds.steps,
        first=bounds.first,
        last=bounds.last,
        parts=bounds.parts,
    )


def _device(device: DeviceSteps, gpu: GpuOps, ids: I64, own: NDArray[np.bool_], bounds: PartBounds) -> DeviceSteps:
    """Return a device's steps with the operations that this part counts."""
    ops = np.flatnonzero(own & (gpu.device == device.device))
    at = np.searchsorted(device.ops, ids[ops])
    return replace(
        device,
        window=intersect(device.window, bounds.device_time),
        ops=ops,
        op_step=device.op_step[at],
        status=device.status[at],
    )


def _hull(device: DeviceSteps, gpu: GpuOps) -> Intervals:
    """Return the time from a device's first operation to the end of its last, extended to its window."""
    starts, ends = (
        [gpu.start[device.ops].min(), *device.window.starts[:1]],
        [gpu.end[device.ops].max(), *device.window.ends[-1:]],
    )
    return union([min(starts)], [max(ends)])


def _gpu_ops(con: duckdb.DuckDBPyConnection, spine: SharedData, bounds: PartBounds) -> tuple[I64, GpuOps]:
    """Read the operations in the part's view, and the operations that its calls and operators launched."""
    begin, end = (moment + spine.origin_ns for moment in bounds.device_view)
    first, behind = con.execute(
        f"""SELECT coalesce(min(gpu_op_id) FILTER (start_ns + dur_ns > {begin}), max(gpu_op_id) + 1, 0), coalesce(max(gpu_op_id) + 1, 0)
        FROM gpu_ops WHERE start_ns >= {begin - spine.longest_ns} AND start_ns < {end}"""
    ).fetchall()[0]
    host_time = (int(bounds.host_time.starts[0]), int(bounds.host_time.ends[0]))
    launching = {
        "call_id": _ids_between(con, "runtime_calls", "call_id", spine.origin_ns, host_time),
        "cpu_op_id": _ids_between(con, "cpu_ops", "cpu_op_id", spine.origin_ns, host_time),
    }
    outside_range = f"SELECT gpu_op_id AS id FROM gpu_ops WHERE (gpu_op_id < {first} OR gpu_op_id >= {behind})"
    other_ids = " UNION ALL ".join(
        f"{outside_range} AND {key} >= {low} AND {key} < {high}" for key, (low, high) in launching.items()
    )
    other_rows = columns_of(con, other_ids)["id"].astype(np.int64)
    return _with_others(con, read_gpu_ops, "gpu_op_id", spine.origin_ns, (first, behind), other_rows)


def _ids_between(con: duckdb.DuckDBPyConnection, table: str, key: str, origin: int, view: tuple[int, int]) -> tuple[int, int]:
    """Return the first id of the rows that start in a time range, and the last id plus one."""
    where = f"start_ns >= {view[0] + origin} AND start_ns < {view[1] + origin}"
    row = con.execute(f"SELECT coalesce(min({key}), 0), coalesce(max({key}) + 1, 0) FROM {table} WHERE {where}").fetchall()[0]
    return int(row[0]), int(row[1])


def _operators(con: duckdb.DuckDBPyConnection, origin: int, view: tuple[int, int], requested: I64) -> tuple[I64, CpuOps]:
    """Read the operators that start in ``view``, the ``requested`` operators, and the ancestors of both."""
    between = _ids_between(con, "cpu_ops", "cpu_op_id", origin, view)
    ids, ops = _with_others(con, read_cpu_ops, "cpu_op_id", origin, between, requested)
    # each pass adds one level of nesting; few operators cross the part's borders
    while len(missing_ids := _missing_ids(ids, ops.parent)):
        more_ids, more_ops = _with_others(con, read_cpu_ops, "cpu_op_id", origin, (0, 0), missing_ids)
        order = np.argsort(ids := np.concatenate([ids, more_ids]), kind="stable")
        ids, ops = ids[order], _join(ops, more_ops, order)
    return ids, ops


def _facts(con: duckdb.DuckDBPyConnection, origin: int, view: tuple[int, int], call_ids: I64) -> tuple[I64, HostFacts]:
    """Read the other host data in ``view``, including Python calls that began before it."""
    begin, end = (moment + origin for moment in view)
    facts = load_host_facts(con, origin, f"start_ns < {end} AND start_ns + dur_ns > {begin}")
    ids = columns_of(
        con, f"SELECT python_call_id AS id FROM python_calls WHERE start_ns < {end} AND start_ns + dur_ns > {begin} ORDER BY 1"
    )["id"].astype(np.int64)
    call = _indices_of(call_ids, facts.sync_call)
    has_call = call >= 0
    parent = _indices_of(ids, facts.python_parent)
    return ids, replace(facts, python_parent=parent, sync_call=call[has_call], sync_stream=facts.sync_stream[has_call])


def _with_others(
    con: duckdb.DuckDBPyConnection,
    read: Callable[[duckdb.DuckDBPyConnection, int, str], Rows],
    key: str,
    origin: int,
    between: tuple[int, int],
    requested: I64,
) -> tuple[I64, Rows]:
    """Read the rows of a range of ids, and the rows of ``requested`` outside it.

    Returns all ids, ascending, and the rows. Ids of -1 in ``requested`` are ignored.
    """
    ids = np.arange(*between, dtype=np.int64)
    rows = read(con, origin, f"{key} >= {between[0]} AND {key} < {between[1]}")
    missing_ids = _missing_ids(ids, requested)
    if not len(missing_ids):
        return ids, rows
    con.register("wanted", pd.DataFrame({"id": missing_ids}))
    more_rows = read(con, origin, f"{key} IN (SELECT id FROM wanted) ORDER BY {key}")
    con.unregister("wanted")
    order = np.argsort(ids := np.concatenate([ids, missing_ids]), kind="stable")
    return ids[order], _join(rows, more_rows, order)


def _missing_ids(ids: I64, requested: I64) -> I64:
    """Return the ids in ``requested`` that are not among the ascending ``ids``.

    The result is unique, ascending and without -1.
    """
    return np.unique(requested[(requested >= 0) & (_indices_of(ids, requested) < 0)]).astype(np.int64)


def _indices_of(ids: I64, requested: I64) -> I64:
    """Return the index of each ``requested`` id in the ascending ``ids``; -1 if it is not there."""
    if not len(ids):
        return np.full(len(requested), -1, np.int64)
    middle = len(ids) // 2
    # This index is right if no ids are missing, which is the usual case.
    at = np.clip(requested - (ids[middle] - middle), 0, len(ids) - 1)
    absent_places = np.flatnonzero((ids[at] != requested) & (requested >= 0))
    at[absent_places] = np.minimum(np.searchsorted(ids, requested[absent_places]), len(ids) - 1)
    return np.where(ids[at] == requested, at, -1)


def _join(rows: Rows, more_rows: Rows, order: I64) -> Rows:
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(rows, name), getattr(more_rows, name)])[order] for name in type(rows).__dataclass_fields__
    }
    return type(rows)(**columns)
