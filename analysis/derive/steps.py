"""Steps on the device's own clock.

The host runs ahead of the GPU, so a step's host interval says little about its time on the device. A GPU operation belongs
to the step whose host interval holds its launch; a step ends, on the device, when the last of its operations ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import Events
from sawtooth.analysis.derive.inferred import find_periods
from sawtooth.analysis.intervals import Intervals, union

PROFILER_STEP = re.compile(r"ProfilerStep#(\d+)")
# Annotations that repeat within a step or describe the profiler's and the libraries' own work, never a step.
NOT_A_STEP = re.compile(
    r"nccl:|rccl:|FSDP::|## Call CompiledFxGraph|enumerate\(DataLoader\)|DistributedDataParallel\.forward|Optimizer\.zero_grad|"
    r"PyTorch Profiler|Torch-Compiled Region|TorchDynamo|CompiledFunction|\[memory\]|\[param|DataLoader"
)
NUMBERED_STEP = re.compile(
    r"(?:^|[^a-z])(?:step|iter|iteration|batch)[^a-z]*\d", re.IGNORECASE
)  # "step_12", "Iteration 3", "Step 10 to 20"
NUMBER = re.compile(r"\d+")
MAD_TO_SIGMA = 1.4826  # the MAD of a normal distribution is σ ÷ 1.4826
HEAVY_FROM = 1.2  # times the usual number of GPU operations: an evaluation or a checkpoint adds more, lengths and branches less
SLOW_SIGMAS = 3.0  # three sigma: one step in 370 of a normal run
SLOW_SHARE = 0.10  # below 10 % a slow step is ordinary jitter, whatever the MAD says
RECURS_FROM = (
    0.5  # of its excess over the usual step: waits of one kind differ by a factor of two, and are no warm-up when they return
)

I64 = NDArray[np.int64]


@dataclass(frozen=True)
class HostSteps:
    """Host intervals of the steps, in order. ``source`` is profiler_step, annotation, inferred or none. Times relative to the events' origin."""

    source: str
    annotation: str | None
    names: list[str]
    starts: I64
    ends: I64
    cycle: I64


def find_host_steps(events: Events) -> HostSteps:
    """Find the steps: ProfilerStep, else optimizer steps, else a repeated user annotation, else the periods of what the host repeats."""
    marked = np.flatnonzero(events.ops.annotation)
    by_name: dict[str, list[int]] = {}
    for index in marked:
        by_name.setdefault(events.names[events.ops.name[index]], []).append(int(index))
    profiler = {name: rows for name, rows in by_name.items() if PROFILER_STEP.fullmatch(name)}
    if profiler:
        return _profiler_steps(events, profiler)
    optimizers = {name: rows for name, rows in by_name.items() if name.startswith("Optimizer.step#")}
    if optimizers:
        name = min(optimizers, key=lambda n: (len(optimizers[n]), n))
        return _annotation_steps(events, name, optimizers[name])
    repeated = _repeated(events, by_name)
    if repeated:
        depth = _annotation_depth(events, marked)
        name = min(
            repeated, key=lambda n: (min(depth[i] for i in repeated[n]), len(repeated[n]), -_covered(events, repeated[n]), n)
        )
        return _annotation_steps(events, name, repeated[name])
    return _inferred_steps(events)


def _repeated(events: Events, by_name: dict[str, list[int]]) -> dict[str, list[int]]:
    """Return what one thread marks again and again; names of steps that differ by their numbers alone are one.

    One thread, since a recording may hold several processes, and each marks its own steps.
    """
    rows_of: dict[str, dict[int, list[int]]] = {}
    for name, rows in by_name.items():
        if not NOT_A_STEP.match(name):
            threads = rows_of.setdefault(NUMBER.sub("#", name) if NUMBERED_STEP.search(name) else name, {})
            for row in rows:
                threads.setdefault(int(events.ops.thread[row]), []).append(row)
    repeated = {name: max(threads.values(), key=len) for name, threads in rows_of.items()}
    return {name: rows for name, rows in repeated.items() if len(rows) > 1}


def _profiler_steps(events: Events, rows_of: dict[str, list[int]]) -> HostSteps:
    # One row per name: several profilers or threads may each write the same step; the longest is the loop's own.
    rows = [max(rows, key=lambda i: events.ops.end[i] - events.ops.start[i]) for rows in rows_of.values()]
    rows.sort(key=lambda i: int(events.ops.start[i]))
    names = [events.names[events.ops.name[i]] for i in rows]
    numbers = np.array([int(PROFILER_STEP.fullmatch(n)[1]) for n in names])  # type: ignore[index]  # they were chosen by this pattern
    # Numbers that are not consecutive mean that the schedule waited in between: a new profiling cycle.
    cycle = np.concatenate(([0], np.cumsum(np.diff(numbers) != 1))).astype(np.int64)
    return HostSteps(
        source="profiler_step",
        annotation=None,
        names=names,
        starts=events.ops.start[rows],
        ends=events.ops.end[rows],
        cycle=cycle,
    )


def _annotation_steps(events: Events, name: str, rows: list[int]) -> HostSteps:
    rows = sorted(rows, key=lambda i: int(events.ops.end[i]))
    ends = events.ops.end[rows]
    first = min(int(events.ops.start[0]) if len(events.ops) else 0, int(events.calls.start[0]) if len(events.calls) else 0)
    starts = np.concatenate(([min(first, int(ends[0]))], ends[:-1])).astype(np.int64)
    names = [events.names[events.ops.name[i]] for i in rows]
    if name in names or len(set(names)) < len(names):
        names = [f"{name} {i + 1}" for i in range(len(rows))]
    return HostSteps(
        source="annotation", annotation=name, names=names, starts=starts, ends=ends, cycle=np.zeros(len(rows), np.int64)
    )


def _inferred_steps(events: Events) -> HostSteps:
    periods = find_periods(events)
    if periods is None:
        empty = np.zeros(0, np.int64)
        return HostSteps(source="none", annotation=None, names=[], starts=empty, ends=empty, cycle=empty)
    starts, ends = periods
    return HostSteps(
        source="inferred",
        annotation=None,
        names=[f"step {i + 1}" for i in range(len(starts))],
        starts=starts,
        ends=ends,
        cycle=np.zeros(len(starts), np.int64),
    )


def _annotation_depth(events: Events, marked: I64) -> dict[int, int]:
    """Count the annotations that enclose each annotation on its own thread."""
    depth: dict[int, int] = {}
    for index in marked:
        parent, levels = int(events.ops.parent[index]), 0
        while parent >= 0:
            levels += bool(events.ops.annotation[parent])
            parent = int(events.ops.parent[parent])
        depth[int(index)] = levels
    return depth


def _covered(events: Events, rows: list[int]) -> int:
    return union(events.ops.start[rows], events.ops.end[rows]).total


@dataclass(frozen=True)
class DeviceSteps:
    """Steps of one device.

    ``table`` has a row per step: step, name, cycle, host_start, host_end, start, end (device clock), counted, excluded_because,
    gpu_ops, outlier. ``window`` is the steady window. ``op_step`` gives the step of each GPU operation of this device, -1 outside;
    ``status`` its standing: 0 linked, 1 carried over, 2 orphan. Both are aligned with ``ops``, the gpu_op_ids of the device.
    """

    device: int
    table: pd.DataFrame
    window: Intervals
    ops: I64
    op_step: I64
    status: NDArray[np.int8]


STATUS_NAMES = ("linked", "carried_over", "orphan")


def device_steps(events: Events, host: HostSteps, device: int) -> DeviceSteps:
    """Place the host's steps on the clock of ``device`` and choose which of them count."""
    ops = np.flatnonzero(events.gpu.device == device)
    start, end, call = events.gpu.start[ops], events.gpu.end[ops], events.gpu.call[ops]
    linked = call >= 0
    op_step = np.full(len(ops), -1, np.int64)
    if len(host.starts) and linked.any():
        launched = events.calls.start[call[linked]]
        index = np.searchsorted(host.starts, launched, side="right") - 1
        inside = (index >= 0) & (launched < host.ends[np.maximum(index, 0)])
        op_step[linked] = np.where(inside, index, -1)
    status = _status(start, linked, op_step, host)
    carried_end = int(end[status == 1].max()) if (status == 1).any() else None
    table = _step_table(host, end, op_step, carried_end)
    window = _steady_window(table) if len(table) else _whole(start, end)
    if len(table) and not len(window.starts):
        window = _whole(start, end)
    return DeviceSteps(device=device, table=table, window=window, ops=ops, op_step=op_step, status=status)


def _status(start: I64, linked: NDArray[np.bool_], op_step: I64, host: HostSteps) -> NDArray[np.int8]:
    """Unlinked operations before the first linked one of a profiling cycle were launched before the capture: carried over."""
    status = np.where(linked, 0, 2).astype(np.int8)
    if not linked.any():
        return status
    first_linked = [int(start[linked].min())]
    cycle_starts = [int(start.min()) if len(start) else 0]
    for cycle in np.unique(host.cycle)[1:]:
        rows = np.flatnonzero(host.cycle == cycle)
        mine = linked & np.isin(op_step, rows)
        if mine.any():
            cycle_starts.append(int(host.ends[rows[0] - 1]))
            first_linked.append(int(start[mine].min()))
    for begin, first in zip(cycle_starts, first_linked, strict=True):
        status[~linked & (start >= begin) & (start < first)] = 1
    return status


def _step_table(host: HostSteps, end: I64, op_step: I64, carried_end: int | None) -> pd.DataFrame:
    count = len(host.starts)
    last_end = np.full(count, np.iinfo(np.int64).min)
    gpu_ops = np.zeros(count, np.int64)
    inside = op_step >= 0
    np.maximum.at(last_end, op_step[inside], end[inside])
    np.add.at(gpu_ops, op_step[inside], 1)
    begins, ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for k in range(count):
        if k == 0 or host.cycle[k] != host.cycle[k - 1]:
            begins[k] = host.starts[k] if carried_end is None or k else max(int(host.starts[k]), carried_end)
        else:
            begins[k] = ends[k - 1]
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
        }
    )
    return _choose(table) if gpu_ops.any() else table.iloc[0:0].assign(counted=False, excluded_because=None, outlier=False)


def _choose(table: pd.DataFrame) -> pd.DataFrame:
    """Mark which steps count, and why the others do not."""
    why: list[str | None] = [None] * len(table)
    dur = (table["end"] - table["start"]).to_numpy()
    first = ~table["cycle"].duplicated().to_numpy()
    if (~first).sum() >= 2:
        for opening in np.flatnonzero(first):
            why[opening] = "first step of a profiling cycle"
    for cycle in table["cycle"].unique():
        rows = [int(k) for k in np.flatnonzero(table["cycle"] == cycle) if why[k] is None]
        others = rows[:-1]
        if others and table["gpu_ops"].iloc[rows[-1]] < table["gpu_ops"].iloc[others].min():
            why[rows[-1]] = "last step, with fewer GPU operations than the others: cut off by the end of the profile"
    rows = [k for k in range(len(table)) if why[k] is None]
    for slow in rows[: _warm_up_length(dur[rows])]:
        why[slow] = "warm-up: slower than the later steps"
    for row in _beyond_whole_rounds(table["gpu_ops"].to_numpy(), np.array([w is None for w in why]), table["cycle"].to_numpy()):
        why[row] = "beyond the last whole round: now and then a step does more, and as many of the others belong to each"
    counted = np.array([w is None for w in why])
    outlier = np.zeros(len(table), bool)
    if counted.sum() >= 3:
        outlier[counted] = dur[counted] > _slow_limit(dur[counted])
    return table.assign(counted=counted, excluded_because=why, outlier=outlier)


def _beyond_whole_rounds(gpu_ops: I64, counted: NDArray[np.bool_], cycle: I64) -> I64:
    """Return the last counted steps that make no whole round of a loop in which every n-th step launches more: an evaluation, a checkpoint.

    With them the mean would hold such steps more or less often than the run does. Empty where nothing recurs evenly, or no whole round is counted.
    """
    heavy = np.flatnonzero(gpu_ops >= HEAVY_FROM * np.median(gpu_ops)) if len(gpu_ops) else gpu_ops
    rows = np.flatnonzero(counted)
    apart = np.unique(np.diff(heavy))
    even = len(apart) == 1 and len(np.unique(cycle)) == 1 and len(rows) and (np.diff(rows) == 1).all()
    if not even or len(rows) < apart[0]:
        return rows[:0]
    return rows[len(rows) - len(rows) % int(apart[0]) :]


def _slow_limit(durations: I64) -> float:
    middle = float(np.median(durations))
    spread = float(np.median(np.abs(durations - middle)))
    return middle + max(SLOW_SIGMAS * MAD_TO_SIGMA * spread, SLOW_SHARE * middle)


def _warm_up_length(durations: I64) -> int:
    """Return the length of the leading run of slow steps: the longest that falls and whose like does not come again.

    A slow step that returns, or that follows faster ones, is the run's rhythm: a loader whose batches come in bursts, a checkpoint.
    """
    longest = 0
    for length in range(1, (len(durations) + 1) // 2 + 1):
        leading, rest = durations[:length], durations[length:]
        if len(rest) < 2:
            break
        usual, limit = float(np.median(rest)), _slow_limit(rest)
        falls = (np.diff(leading) <= limit - usual).all()
        if falls and leading.min() > limit and rest.max() - usual < RECURS_FROM * (leading.min() - usual):
            longest = length
    return longest


def _steady_window(table: pd.DataFrame) -> Intervals:
    counted = table["counted"].to_numpy(bool)
    cycle, start, end = (table[name].to_numpy(np.int64)[counted] for name in ("cycle", "start", "end"))
    of_cycles = [cycle == one for one in np.unique(cycle)]
    return union([start[rows].min() for rows in of_cycles], [end[rows].max() for rows in of_cycles])


def _whole(start: I64, end: I64) -> Intervals:
    """Return the window of a trace without steps: first to last operation. Those launched before the recording began kept the GPU busy too."""
    return union([int(start.min())], [int(end.max())]) if len(start) else union([], [])
