"""Operators by name and input shapes: host time, GPU time of their own and of their children, FLOPs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.derive.columns import nullable
from sawtooth.analysis.derive.distinct import distinct_rows
from sawtooth.analysis.derive.events import I64, Events


def depth_of(parent: I64) -> I64:
    """Return the number of ancestors of each operator; ``parent`` is -1 at the top."""
    depth = (parent >= 0).astype(np.int64)
    ancestor = parent.copy()
    while len(
        rows := np.flatnonzero(ancestor >= 0)
    ):  # each round climbs twice as far: a damaged trace may nest every operator in the one before
        up = ancestor[rows]
        depth[rows] += depth[up]
        ancestor[rows] = ancestor[up]
    return depth


def subtree_sums(values: NDArray[Any], parent: I64) -> NDArray[Any]:
    """Add to each operator the values of everything below it."""
    total = values.copy()
    depth = depth_of(parent)
    order = np.argsort(depth, kind="stable")
    borders = np.searchsorted(depth[order], np.arange(1, int(depth.max(initial=0)) + 2))
    for first, behind in reversed(list(itertools.pairwise(borders))):
        rows = order[first:behind]
        np.add.at(total, parent[rows], total[rows])
    return total


def nearest(marked: NDArray[np.bool_], parent: I64, start_at: I64) -> I64:
    """Climb from each operator id to the first that is ``marked`` (itself included); -1 where none is."""
    ancestor = np.where(marked, np.arange(len(marked)), parent)
    while len(rows := np.flatnonzero((ancestor >= 0) & ~marked[np.maximum(ancestor, 0)])):
        ancestor[rows] = ancestor[ancestor[rows]]
    return np.where(start_at >= 0, ancestor[start_at], -1) if len(marked) else start_at.copy()


def operator_table(
    events: Events,
    counted: NDArray[np.bool_],
    flops: NDArray[np.float64],
    tensor: NDArray[np.bool_],
    devices: list[int],
) -> pd.DataFrame:
    """Aggregate the operators marked ``counted`` by (device, name, signature).

    ``flops`` is aligned with cpu_op_id, NaN where not counted or unknown; ``tensor`` is aligned with gpu_op_id.
    Returns the columns of the derived table ``operators``. An operator without GPU work is filed under the first device.
    """
    ops, gpu = events.ops, events.gpu
    host = ops.end - ops.start
    host_self = host.copy()
    has_parent = ops.parent >= 0
    np.subtract.at(host_self, ops.parent[has_parent], host[has_parent])
    launched = gpu.cpu_op >= 0
    gpu_dur = gpu.end - gpu.start
    of_devices: list[dict[str, NDArray[Any]]] = []
    used = np.zeros(len(ops), bool)
    for device in devices:
        mine = launched & (gpu.device == device)
        own, count, tensor_own = (np.zeros(len(ops), np.int64) for _ in range(3))
        np.add.at(own, gpu.cpu_op[mine], gpu_dur[mine])
        np.add.at(count, gpu.cpu_op[mine], 1)
        np.add.at(tensor_own, gpu.cpu_op[mine & tensor], gpu_dur[mine & tensor])
        total = subtree_sums(own, ops.parent)
        busy = total > 0
        rows = np.flatnonzero(counted & ~ops.annotation & (busy | (~used & (device == devices[-1]))))
        used |= busy
        columns = {
            "host_self_ns": host_self,
            "host_total_ns": host,
            "gpu_self_ns": own,
            "gpu_total_ns": total,
            "kernels": count,
            "tensor_core_ns": tensor_own,
            "flops": flops,
        }
        of_devices.append(
            {
                "device": np.where(busy[rows], device, devices[0]),
                "name_id": ops.name[rows],
                "signature_id": ops.signature[rows],
                "calls": np.ones(len(rows), np.int64),
                **{name: values[rows] for name, values in columns.items()},
            }
        )
    return _summed({name: _joined([part[name] for part in of_devices]) for name in of_devices[0]})


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _summed(columns: dict[str, NDArray[Any]]) -> pd.DataFrame:
    """Add up the rows of one device, name and signature; FLOPs are unknown where none of them is known."""
    keys = ("device", "name_id", "signature_id")
    first, row = distinct_rows(*(columns[key] for key in keys))
    known = np.isfinite(columns["flops"])
    sums = {
        name: np.bincount(row, values, len(first)).astype(np.int64)  # exact: a hundred days fit the 53 bits of a float
        for name, values in columns.items()
        if name not in (*keys, "flops")
    }
    flops = np.bincount(row[known], columns["flops"][known], len(first)).astype(np.float64)
    flops[np.bincount(row[known], minlength=len(first)) == 0] = np.nan
    result = pd.DataFrame({**{key: columns[key][first] for key in keys}, **sums, "flops": flops})
    return result.assign(signature_id=nullable(columns["signature_id"][first]))
