"""Facts of a part as JSON-ready values, and the sum of several parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from sawtooth.analysis.derive.events import GPU_KINDS, TraceEvents
from sawtooth.analysis.derive.flop_counts import device_flops
from sawtooth.analysis.derive.host_only import host_only
from sawtooth.analysis.derive.parts.part import DerivedPart
from sawtooth.analysis.derive.parts.work import ClassifiedWork
from sawtooth.analysis.derive.steps.device import STATUS_NAMES, DeviceSteps
from sawtooth.analysis.derive.steps.host_steps import LOST_MARK


def facts_of(work: ClassifiedWork) -> dict[str, Any]:
    """Return the facts of one part; ``add_facts`` joins the facts of several parts."""
    part, events = work.part, work.part.events
    counted_ops = part.own_ops & in_counted_steps(part, events.ops.start)
    facts: dict[str, Any] = {"step_source": part.host.source, "step_annotation": part.host.annotation}
    if not part.devices:
        facts["host_only"] = host_only(events, part.host, part.facts)
    for device in part.devices:
        counts = np.bincount(device.status, minlength=3)
        dur = events.gpu.end[device.ops] - events.gpu.start[device.ops]
        is_kernel = events.gpu.kind[device.ops] == GPU_KINDS.index("kernel")
        counted = device.table["counted"].to_numpy(bool)
        in_counted = (device.op_step >= 0) & (counted[np.maximum(device.op_step, 0)] if len(counted) else False)
        in_graph = (events.gpu.graph[device.ops] >= 0) | _is_launched_by_graph(events)[device.ops]
        left_out = part.gpus_left_out if part.first and device is part.devices[0] else 0
        facts[f"device_{device.device}"] = {
            **{name: int(counts[i]) for i, name in enumerate(STATUS_NAMES)},
            **{f"{name}_ns": int(dur[device.status == i].sum()) for i, name in enumerate(STATUS_NAMES)},
            "kernels": int(is_kernel.sum()),
            "kernels_in_counted_steps": int((is_kernel & in_counted).sum()),
            "graph_kernels_in_counted_steps": int((is_kernel & in_counted & in_graph).sum()),
            "counted_steps": int(counted.sum()) if part.first else 0,
            "lost_marks": part.host.lost_marks if part.first else 0,
            "unmarked_steps": sum(name.endswith(LOST_MARK) for name in part.host.names) if part.first else 0,
            "graph_ns": int(dur[in_graph].sum()),
            "gpu_ns": int(dur.sum()),
            **({"gpus_left_out": left_out} if left_out else {}),
            **_lost_launches(device, first=part.first),
            "launches": int((in_counted if counted.any() else device.status == 0).sum()),
            "flops": device_flops(
                events=events,
                classes=work.classes,
                counts=work.flops,
                device=device,
                counted_ops=counted_ops,
                single_device=len(part.devices) == 1,
            ),
        }
    return facts


def _lost_launches(device: DeviceSteps, *, first: bool) -> dict[str, int]:
    """Return the numbers of launches without a record on the GPU.

    These are three counts: the launches in counted steps (all launches in a trace without steps), the graph launches among
    these, and all launches. The first part of a recording returns the complete counts; later parts return nothing.
    """
    lost, table = device.lost, device.table
    if not len(lost) or not first:
        return {}
    in_part = np.ones(len(lost), bool)
    if len(table) and table["counted"].any():
        counted = table[table["counted"].to_numpy(bool)]
        step = np.searchsorted(counted["host_start"].to_numpy(np.int64), lost.start, side="right") - 1
        in_part = (step >= 0) & (lost.start < counted["host_end"].to_numpy(np.int64)[np.maximum(step, 0)])
    lacking = int((table["lost"] > 0).sum()) if len(table) else 0
    return {
        **_host_times(table),
        "lost_launches": int(in_part.sum()),
        "lost_graphs": int((in_part & lost.graph).sum()),
        "lost_unseen": int((in_part & lost.unseen).sum()),
        "lost_anywhere": len(lost),
        "lacking_steps": lacking,
    }


def _host_times(table: pd.DataFrame) -> dict[str, int]:
    """Return the host's mean time (ns) of the counted steps, and of the counted steps without the first."""
    if len(table) < 2 or not table["counted"].any():
        return {}
    duration = (table["host_end"] - table["host_start"]).to_numpy(np.int64)
    return {
        "counted_host_ns": int(duration[table["counted"].to_numpy(bool)].mean()),
        "marked_host_ns": int(duration[1:].mean()),
    }


def add_facts(sums: dict[str, Any], further: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of two parts as one.

    Numbers are added at any depth; other values are the same in both.
    """
    total = dict(sums)
    for key, value in further.items():
        if key not in sums:
            total[key] = value
        elif isinstance(value, dict):
            total[key] = add_facts(sums[key], value)
        elif isinstance(value, int | float):
            total[key] = sums[key] + value
    return total


def in_counted_steps(part: DerivedPart, start: np.ndarray) -> np.ndarray:
    """Return which host times are in a counted step of any device; all of them if there are no steps."""
    counted = np.zeros(len(part.host.starts), bool)
    for device in part.devices:
        if len(device.table):
            counted |= device.table["counted"].to_numpy(bool)
    if not counted.any():
        return np.ones(len(start), bool)
    step = np.searchsorted(part.host.starts, start, side="right") - 1
    at = np.maximum(step, 0)
    return (step >= 0) & (start < part.host.ends[at]) & counted[at]


def _is_launched_by_graph(events: TraceEvents) -> np.ndarray:
    """Return which GPU operations a CUDA graph launched; these have no operator of their own."""
    graph_names = [i for i, name in enumerate(events.names) if "GraphLaunch" in name]
    call = np.maximum(events.gpu.call, 0)
    if not len(events.calls):
        return np.zeros(len(events.gpu), bool)
    return (events.gpu.call >= 0) & np.isin(events.calls.name[call], graph_names)
