"""Steps on the device's own clock.

The host runs ahead of the GPU, so a step's host interval does not show its time on the device. A GPU operation belongs to the
step whose host interval contains its launch. On the device, a step ends when the last of its operations ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import TraceEvents
from sawtooth.analysis.derive.steps.counted_steps import mark_counted_steps
from sawtooth.analysis.derive.steps.host_steps import HostSteps
from sawtooth.analysis.derive.steps.lost_launches import LostLaunches
from sawtooth.analysis.intervals import Intervals, union

I64 = NDArray[np.int64]


@dataclass(frozen=True)
class DeviceSteps:
    """Steps of one device.

    ``table`` has one row per step: step, name, cycle, host_start, host_end, start, end (device clock), counted,
    excluded_because, gpu_ops, lost (launches without a record on the GPU), outlier. ``window`` is the steady window.
    ``ops`` are the gpu_op_ids of the device. Aligned with them, ``op_step`` is the step of each operation (-1 outside), and
    ``status`` is 0 for linked, 1 for carried over and 2 for orphan operations. ``lost`` are all launches without a record on the
    GPU, in any step.
    """

    device: int
    table: pd.DataFrame
    window: Intervals
    ops: I64
    op_step: I64
    status: NDArray[np.int8]
    lost: LostLaunches = LostLaunches()  # noqa: RUF009  (frozen, so it can be shared)


STATUS_NAMES = ("linked", "carried_over", "orphan")


def device_steps(events: TraceEvents, host: HostSteps, device: int, lost: LostLaunches = LostLaunches()) -> DeviceSteps:  # noqa: B008  (frozen)
    """Place the host's steps on the clock of ``device`` and choose the steps that count."""
    ops = np.flatnonzero(events.gpu.device == device)
    start, end, call = events.gpu.start[ops], events.gpu.end[ops], events.gpu.call[ops]
    linked = call >= 0
    op_step = np.full(len(ops), -1, np.int64)
    if len(host.starts) and linked.any():
        launched = events.calls.start[call[linked]]
        op_step[linked] = _step_of(host, launched)
    status = _status(start, linked, op_step, host)
    carried = status == 1
    table = _step_table(host, (start, end), op_step, (start[carried], end[carried]), lost, np.sort(start[status == 2]))
    window = _steady_window(table) if len(table) else _single_interval(start, end)
    if len(table) and not len(window.starts):
        window = _single_interval(start, end)
    return DeviceSteps(device=device, table=table, window=window, ops=ops, op_step=op_step, status=status, lost=lost)


def _step_of(host: HostSteps, moments: I64) -> I64:
    """Return the step whose host interval contains each moment; -1 outside all steps."""
    index = np.searchsorted(host.starts, moments, side="right") - 1
    inside = (index >= 0) & (moments < host.ends[np.maximum(index, 0)])
    return np.where(inside, index, -1)


def _status(start: I64, linked: NDArray[np.bool_], op_step: I64, host: HostSteps) -> NDArray[np.int8]:
    """Return the status of each operation.

    Unlinked operations before the first linked one of a profiling cycle are "carried over": they were launched before the
    recording began.
    """
    status = np.where(linked, 0, 2).astype(np.int8)
    if not linked.any():
        return status
    first_linked = [int(start[linked].min())]
    cycle_starts = [int(start.min()) if len(start) else 0]
    for cycle in np.unique(host.cycle)[1:]:
        rows = np.flatnonzero(host.cycle == cycle)
        in_cycle = linked & np.isin(op_step, rows)
        if in_cycle.any():
            cycle_starts.append(int(host.ends[rows[0] - 1]))
            first_linked.append(int(start[in_cycle].min()))
    for begin, first in zip(cycle_starts, first_linked, strict=True):
        status[~linked & (start >= begin) & (start < first)] = 1
    return status


def _step_table(
    host: HostSteps, ops: tuple[I64, I64], op_step: I64, carried: tuple[I64, I64], lost: LostLaunches, orphans: I64
) -> pd.DataFrame:
    count, (start, end) = len(host.starts), ops
    first_start = np.full(count, np.iinfo(np.int64).max)
    last_end = np.full(count, np.iinfo(np.int64).min)
    gpu_ops = np.zeros(count, np.int64)
    inside = op_step >= 0
    np.minimum.at(first_start, op_step[inside], start[inside])
    np.maximum.at(last_end, op_step[inside], end[inside])
    np.add.at(gpu_ops, op_step[inside], 1)
    lacks = _count_lacking(host, lost)
    begins, ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for k in range(count):
        if k == 0 or host.cycle[k] != host.cycle[k - 1]:
            before = carried[1][carried[0] < first_start[host.cycle == host.cycle[k]].min()]
            begins[k] = max(int(host.starts[k]), int(before.max(initial=host.starts[k])))
        else:
            begins[k] = ends[k - 1]
            if lacks[k - 1] and not lacks[k] and inside.any():  # The previous step's end may be too early.
                begins[k] = max(int(begins[k]), int(first_start[k]))
        ends[k] = max(int(last_end[k]), int(begins[k]))
    table = pd.DataFrame(
        {
            "step": np.arange(count),
            "name": host.names,
            "cycle": host.cycle,
            "host_start": host.starts,
            "host_end": host.ends,
            "start": begins,
            "end": ends,
            "gpu_ops": gpu_ops,
            "lost": lacks,
        }
    )
    if not gpu_ops.any():
        return table.iloc[0:0].assign(counted=False, excluded_because=None, outlier=False)
    # An operation without a launch belongs to the step in which it ended, and after the last step's end to the last step.
    of_orphans = np.bincount(np.minimum(np.searchsorted(ends, orphans, side="right"), count - 1), minlength=count)
    return mark_counted_steps(table, of_orphans)


def _count_lacking(host: HostSteps, lost: LostLaunches) -> I64:
    """Count the launches per step that have no record on the GPU."""
    if not len(host.starts) or not len(lost):
        return np.zeros(len(host.starts), np.int64)
    step = _step_of(host, lost.start)
    return np.bincount(step[step >= 0], minlength=len(host.starts))


def _steady_window(table: pd.DataFrame) -> Intervals:
    counted = table["counted"].to_numpy(bool)
    cycle, start, end = (table[name].to_numpy(np.int64)[counted] for name in ("cycle", "start", "end"))
    of_cycles = [cycle == number for number in np.unique(cycle)]
    return union([start[rows].min() for rows in of_cycles], [end[rows].max() for rows in of_cycles])


def _single_interval(start: I64, end: I64) -> Intervals:
    """Return the window of a trace without steps: from the first to the last operation.

    It includes operations launched before the recording began, because the GPU worked on them too.
    """
    return union([int(start.min())], [int(end.max())]) if len(start) else union([], [])
