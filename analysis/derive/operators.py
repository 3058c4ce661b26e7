"""Operators by name and input shapes: host time, own GPU time, GPU time with children, FLOPs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.derive.columns import nullable
from sawtooth.analysis.derive.events import I64, CpuOps, TraceEvents
from sawtooth.analysis.distinct_rows import distinct_rows


def depth_of(parent: I64) -> I64:
    """Return the number of ancestors of each operator; ``parent`` is -1 at the top."""
    depth = (parent >= 0).astype(np.int64)
    ancestor = parent.copy()
    # each pass doubles the distance, because a damaged trace may nest every operator in the previous one
    while len(rows := np.flatnonzero(ancestor >= 0)):
        ancestor_rows = ancestor[rows]
        depth[rows] += depth[ancestor_rows]
        ancestor[rows] = ancestor[ancestor_rows]
    return depth


def subtree_sums(values: NDArray[Any], parent: I64) -> NDArray[Any]:
    """Add to each operator the values of all its descendants."""
    # Only operators with a value and their ancestors are visited, because most operators launch nothing.
    concerned, rows = values != 0, np.flatnonzero(values)
    while len(rows):
        above = np.unique(parent[rows])
        rows = above[above >= 0]
        rows = rows[~concerned[rows]]
        concerned[rows] = True
    rows = np.flatnonzero(concerned)
    total, above = values[rows], parent[rows]
    position = np.where(above >= 0, np.searchsorted(rows, above), -1)
    depth = depth_of(position)
    order = np.argsort(depth, kind="stable")
    borders = np.searchsorted(depth[order], np.arange(1, int(depth.max(initial=0)) + 2))
    for first, behind in reversed(list(itertools.pairwise(borders))):
        level = order[first:behind]
        np.add.at(total, position[level], total[level])
    result = values.copy()
    result[rows] = total
    return result


def nearest_marked_operator(marked: NDArray[np.bool_], parent: I64, start_at: I64) -> I64:
    """Return, for each operator id, the nearest ``marked`` operator (itself or an ancestor), else -1."""
    ancestor = np.where(marked, np.arange(len(marked)), parent)
    while len(rows := np.flatnonzero((ancestor >= 0) & ~marked[np.maximum(ancestor, 0)])):
        ancestor[rows] = ancestor[ancestor[rows]]
    return np.where(start_at >= 0, ancestor[start_at], -1) if len(marked) else start_at.copy()


Sums = dict[str, NDArray[Any]]  # Columns by (device, name, signature).


def operator_sums(
    events: TraceEvents,
    counted: NDArray[np.bool_],
    flops: NDArray[np.float64],
    tensor: NDArray[np.bool_],
    devices: list[int],
) -> list[Sums]:
    """Aggregate the ``counted`` operators by (device, name, signature), separately for each device.

    ``flops`` is aligned with cpu_op_id and NaN where not counted or unknown. ``tensor`` is aligned with gpu_op_id. Operators without
    GPU work are listed under the first device. If the trace has GPU work, only operators that launched GPU work have FLOPs,
    because a recomputation without kernels computed nothing.
    """
    ops, gpu = events.ops, events.gpu
    launched, gpu_dur = gpu.cpu_op >= 0, gpu.end - gpu.start
    listed, used = counted & ~ops.annotation, np.zeros(len(ops), bool)
    parts: list[Sums] = []
    for device in devices:
        on_device = launched & (gpu.device == device)
        own_gpu_ns = _sums_by_position(gpu.cpu_op[on_device], gpu_dur[on_device], len(ops))
        total = subtree_sums(own_gpu_ns, ops.parent)
        busy = total > 0
        rows = listed & (busy | (~used & (device == devices[-1])))
        used |= busy
        keys = {
            "device": np.where(busy[rows], device, devices[0]).astype(np.int32),
            "name_id": ops.name[rows],
            "signature_id": ops.signature[rows],
        }
        groups = _Groups(keys)
        groups.add("calls", np.ones(int(rows.sum()), np.int64))
        groups.add("gpu_calls", busy[rows].astype(np.int64))
        host = ops.end - ops.start  # Computed only here to keep the peak memory of the grouping above low.
        columns = {"host_self_ns": _own_time(ops), "host_total_ns": host, "gpu_self_ns": own_gpu_ns, "gpu_total_ns": total}
        for name, values in columns.items():
            # one column at a time, because all columns together take as much memory as the trace
            groups.add(name, values[rows])
        groups.add("kernels", np.bincount(gpu.cpu_op[on_device], minlength=len(ops))[rows])
        groups.add(
            "tensor_core_ns", _sums_by_position(gpu.cpu_op[on_device & tensor], gpu_dur[on_device & tensor], len(ops))[rows]
        )
        groups.add_flops(np.where(busy[rows] | ~launched.any(), flops[rows], np.nan))
        parts.append(groups.sums)
    return parts


def _own_time(ops: CpuOps) -> I64:
    """Return each operator's host time outside the operators that it calls."""
    host, inner = ops.end - ops.start, ops.parent >= 0
    own_ns = host.copy()
    np.subtract.at(own_ns, ops.parent[inner], host[inner])
    return own_ns


def _sums_by_position(position: I64, values: I64, count: int) -> I64:
    """Return the sums of ``values`` by ``position``, for ``count`` positions.

    The sums are exact: a hundred days in ns fit into a float's 53 bits.
    """
    return np.bincount(position, values, count).astype(np.int64)


class _Groups:
    """Sums over rows with the same keys."""

    def __init__(self, keys: dict[str, NDArray[Any]]) -> None:
        first, self._row = distinct_rows(*keys.values())
        self._count = len(first)
        self.sums: Sums = {name: values[first] for name, values in keys.items()}

    def add(self, name: str, values: I64) -> None:
        """Sum one column by group."""
        self.sums[name] = _sums_by_position(self._row, values, self._count)

    def add_flops(self, flops: NDArray[np.float64]) -> None:
        """Sum FLOPs by group; NaN if all FLOPs of a group are unknown."""
        has_flops = np.isfinite(flops)
        row = self._row[has_flops]
        sums = np.bincount(row, flops[has_flops], self._count).astype(np.float64)
        sums[np.bincount(row, minlength=self._count) == 0] = np.nan
        self.sums["flops"] = sums


def operator_table(parts: list[Sums]) -> pd.DataFrame:
    """Return the sums of several devices and parts as rows of the derived table ``operators``."""
    sums = parts[0]
    if len(parts) > 1:
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        groups = _Groups({name: columns.pop(name) for name in ("device", "name_id", "signature_id")})
        flops = columns.pop("flops")
        for name, values in columns.items():
            groups.add(name, values)
        groups.add_flops(flops)
        sums = groups.sums
    return pd.DataFrame(sums).assign(signature_id=nullable(sums["signature_id"]))


def innermost_interval(
    thread: NDArray[np.int32], start: I64, end: I64, parent: I64, at_thread: NDArray[np.int32], at: I64
) -> I64:
    """Return the id of the innermost interval of a thread that contains each moment; -1 if there is none.

    Ids must be ordered by start.
    """
    event = np.full(len(at), -1, dtype=np.int64)
    for number in np.unique(at_thread).tolist():
        rows = np.flatnonzero(at_thread == number)
        on_thread = np.flatnonzero(thread == number)
        if not len(on_thread):
            continue
        position = np.searchsorted(start[on_thread], at[rows], side="right") - 1
        hit = np.where(position >= 0, on_thread[np.maximum(position, 0)], -1)
        ended_rows = np.flatnonzero((hit >= 0) & (end[hit] <= at[rows]))
        while len(ended_rows):
            hit[ended_rows] = parent[hit[ended_rows]]
            ended_rows = ended_rows[(hit[ended_rows] >= 0) & (end[hit[ended_rows]] <= at[rows][ended_rows])]
        event[rows] = hit
    return event
