"""Phases marked by the user or by PyTorch, each with its host time, device time and idle time.

Phases can be nested, so their times do not add up to the step.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import TraceEvents
from sawtooth.analysis.derive.host import matches_of
from sawtooth.analysis.derive.lost.schedule import LostIntervals, Pieces
from sawtooth.analysis.derive.steps.device import DeviceSteps
from sawtooth.analysis.derive.unprofiled.problem import HostView
from sawtooth.analysis.intervals import EMPTY, Intervals, intersect, union
from sawtooth.analysis.knowledge.host_names import ENGINE_OP
from sawtooth.analysis.knowledge.owners import OWNER_KEYS
from sawtooth.analysis.replay.simulation import I64

NOT_A_PHASE = re.compile(r"^ProfilerStep#|^nccl:|^rccl:|^## Call CompiledFxGraph|^Torch-Compiled Region|^PyTorch Profiler|^\[")
COUNTER = re.compile(r"[\s#:_-]*\d+$")
BACKWARD = "backward (autograd)"
# A millisecond without autograd's operators ends a backward pass. Within a pass, the operators are microseconds apart.
BACKWARD_JOIN_NS = 1_000_000
MAX_PHASES = 40  # More phases come from names that change with every call.


@dataclass(frozen=True)
class PhaseSums:
    """Nanoseconds of one phase over counted steps: on the host, on the device, and idle."""

    host: int
    device: int
    idle: int

    def __add__(self, other: PhaseSums) -> PhaseSums:
        """Return the sums over more steps."""
        return PhaseSums(self.host + other.host, self.device + other.device, self.idle + other.idle)


def phases(sums: dict[str, PhaseSums], steps: int) -> list[dict[str, Any]]:
    """Return name, host_ms_per_step, device_ms_per_step and idle_ms_per_step of every phase.

    The phase with the longest host time comes first. Host time is the union of the phase's intervals on the launching threads.
    Device time is the union of the operations launched inside them. Idle time is the sum of the gaps during which the host was
    inside them.
    """
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "host_ms_per_step": ns.host / steps / 1e6,
            "device_ms_per_step": ns.device / steps / 1e6,
            "idle_ms_per_step": ns.idle / steps / 1e6,
        }
        for name, ns in sums.items()
    ]
    rows.sort(key=lambda r: (-r["host_ms_per_step"], r["name"]))
    return rows[:MAX_PHASES]


def phase_sums(
    events: TraceEvents,
    view: HostView,
    device: DeviceSteps,
    pieces: Pieces,
    lost: LostIntervals,
    stretch: Intervals | None = None,
) -> dict[str, PhaseSums]:
    """Return the sums of every phase over the counted steps of ``device``; empty without counted steps.

    Host time is counted only inside ``stretch``, if there is one.
    """
    table = device.table[device.table["counted"].astype(bool)] if len(device.table) else device.table
    if not len(table):
        return {}
    counted = union(table["host_start"].to_numpy(np.int64), table["host_end"].to_numpy(np.int64))
    if stretch is not None:
        counted = intersect(counted, stretch)
    op_counted = np.isin(device.op_step, table["step"].to_numpy())
    ops = device.ops[op_counted]
    linked = ops[events.gpu.call[ops] >= 0]
    launched = events.calls.start[events.gpu.call[linked]] if len(events.calls) else np.zeros(0, np.int64)
    idle = lost.owner[pieces.gap] == OWNER_KEYS.index("idle")
    middle = (pieces.host_at + (pieces.end - pieces.start) // 2)[idle]
    length = (pieces.end - pieces.start)[idle]
    sums: dict[str, PhaseSums] = {}
    for name, spans in _spans(events, view).items():
        inside = intersect(spans, counted)
        if not inside.total:
            continue
        ops_of_phase = linked[_is_within(spans, launched)]
        on_device = union(events.gpu.start[ops_of_phase], events.gpu.end[ops_of_phase]).total
        sums[name] = PhaseSums(inside.total, on_device, int(length[_is_within(spans, middle)].sum()))
    return sums


def _is_within(spans: Intervals, moments: I64) -> NDArray[np.bool_]:
    at = np.searchsorted(spans.starts, moments, side="right") - 1
    return (at >= 0) & (moments < spans.ends[np.maximum(at, 0)]) if len(spans.starts) else np.zeros(len(moments), bool)


def _spans(events: TraceEvents, view: HostView) -> dict[str, Intervals]:
    """Return the intervals of each phase on the main line of host work.

    Names that differ only in a trailing number are one phase.
    """
    ops, names = events.ops, events.names
    on_main_line = view.lines.of_thread[ops.thread] == 0 if len(ops) else np.zeros(0, bool)
    marked = (
        np.flatnonzero(ops.annotation & on_main_line & ~matches_of(names, NOT_A_PHASE)[ops.name])
        if len(ops)
        else np.zeros(0, np.int64)
    )
    rows: dict[str, list[int]] = {}
    label = {n: COUNTER.sub("", names[n]) or names[n] for n in np.unique(ops.name[marked]).tolist()}
    for index in marked.tolist():
        rows.setdefault(label[int(ops.name[index])], []).append(index)
    spans = {name: union(ops.start[index], ops.end[index]) for name, index in rows.items()}
    passes = _backward_passes(events, on_main_line)
    return {**spans, BACKWARD: passes} if len(passes.starts) else spans


def _backward_passes(events: TraceEvents, on_main_line: NDArray[np.bool_]) -> Intervals:
    """Join autograd's operators into backward passes.

    Operators of one pass are less than a millisecond apart, and no other operator begins between them.
    """
    ops = events.ops
    if not len(ops):
        return EMPTY
    by_engine = matches_of(events.names, ENGINE_OP)[ops.name]
    outermost = (ops.parent < 0) | ops.annotation[ops.parent]
    other_starts = np.sort(ops.start[on_main_line & outermost & ~by_engine])
    parts = union(ops.start[on_main_line & by_engine], ops.end[on_main_line & by_engine])
    if not len(parts.starts):
        return EMPTY
    others_between = np.searchsorted(other_starts, parts.starts[1:]) - np.searchsorted(other_starts, parts.ends[:-1])
    first = np.concatenate([[True], (others_between > 0) | (parts.starts[1:] - parts.ends[:-1] > BACKWARD_JOIN_NS)])
    return Intervals(parts.starts[first], parts.ends[np.concatenate([first[1:], [True]])])
