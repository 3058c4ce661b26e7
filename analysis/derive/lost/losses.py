"""What a trace lost and why, as rows of the derived file: gaps with causes, the ledger with its unprofiled column, the estimate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.derive.columns import nullable
from sawtooth.analysis.derive.events import Events
from sawtooth.analysis.derive.host import HostFacts
from sawtooth.analysis.derive.lost.estimate import Estimate, estimate_unprofiled
from sawtooth.analysis.derive.lost.evidence import describe
from sawtooth.analysis.derive.lost.idle import explain
from sawtooth.analysis.derive.lost.ledger import Segments, owned
from sawtooth.analysis.derive.lost.phases import phases
from sawtooth.analysis.derive.lost.schedule import lost_time, schedule_of, totals
from sawtooth.analysis.derive.steps.device import DeviceSteps
from sawtooth.analysis.derive.unprofiled.cost import recording_cost, without_profiler
from sawtooth.analysis.derive.unprofiled.problem import StepTable, build_problem, host_view, recorded_waits
from sawtooth.analysis.knowledge.owners import LOST_OWNERS
from sawtooth.analysis.replay.machine import ReplayProblem


@dataclass(frozen=True)
class Losses:
    """Rows for the tables ``gaps``, a frame for each device, and ``causes``, ``estimates`` and ``phases`` by device, and the unprofiled replay if
    there is one."""

    gaps: list[pd.DataFrame]
    causes: pd.DataFrame
    estimates: dict[int, dict[str, Any]]
    phases: dict[int, list[dict[str, Any]]]
    unprofiled: ReplayProblem | None


def find_losses(
    events: Events, facts: HostFacts, devices: list[DeviceSteps], codes: NDArray[np.int8], ledgers: Mapping[int, Segments]
) -> Losses:
    """Explain the lost time of every device.

    ``codes`` is the ledger's owner of each GPU operation, ``ledgers`` what they own in each device's window; times in ``gaps`` are absolute.
    """
    gaps, causes, estimates = [], [], {}
    if not devices:
        return Losses([], pd.DataFrame(), {}, {}, None)
    view = host_view(events, facts)
    steps = StepTable.of(max(devices, key=lambda d: len(d.table)))
    problem = build_problem(events, steps, facts, view)
    whole = recorded_waits(events, steps, facts, view) if problem.notes else problem
    recorded = schedule_of(events, view, whole, None)
    marked: dict[int, list[dict[str, Any]]] = {}
    for device in devices:
        parts = ledgers[device.device]
        lost = lost_time(parts, device.window)
        pieces = explain(events, recorded, device.device, lost, codes)
        table = device.table
        described = describe(
            events=events, facts=facts, view=view, schedule=recorded, lost=lost, pieces=pieces,
            step_starts=table["start"].to_numpy(), step_ends=table["end"].to_numpy(),
        )  # fmt: skip
        gaps.append(_gap_rows(described, device.device, events.origin_ns))
        del described
        counted = table.loc[table["counted"].astype(bool), "step"].to_numpy(np.int32)
        estimate = estimate_unprofiled(
            events=events, view=view, problem=problem, device=device.device, counted=counted, codes=codes
        )
        causes.append(_cause_rows(device.device, owned(parts, device.window), totals(pieces, lost), estimate))
        estimates[device.device] = estimate_facts(estimate)
        marked[device.device] = phases(events, view, device, pieces, lost)
    known = any(e["step_ns"] is not None for e in estimates.values())
    unprofiled = without_profiler(problem, recording_cost(events)) if known else None
    return Losses(gaps, pd.concat(causes, ignore_index=True), estimates, marked, unprofiled)


def _gap_rows(rows: pd.DataFrame, device: int, origin_ns: int) -> pd.DataFrame:
    frame = rows.rename(columns={"start": "start_ns", "end": "end_ns"}).assign(device=device)
    frame["start_ns"] += origin_ns
    frame["end_ns"] += origin_ns
    ids = ("step", "next_gpu_op_id", "cpu_op_id", "call_id", "python_call_id")
    return frame.assign(**{column: nullable(frame[column].to_numpy(np.int64)) for column in ids})


def _cause_rows(device: int, owners: dict[str, int], lost: dict[tuple[str, str], int], estimate: Estimate) -> pd.DataFrame:
    recorded: dict[tuple[str, str | None], int] = {(o, None): ns for o, ns in owners.items() if o not in LOST_OWNERS}
    recorded |= {key: ns for key, ns in lost.items() if ns}
    rows = [
        {
            "device": device, "owner": owner, "cause": cause, "ns": recorded.get((owner, cause), 0),
            "unprofiled_ns_per_step": estimate.ledger.get((owner, cause), 0.0) if estimate.ledger else None,
            "loses_ns_per_step": estimate.loses.get(cause) if cause and owner == "idle" else None,
        }
        for owner, cause in dict.fromkeys([*recorded, *estimate.ledger])
    ]  # fmt: skip
    return pd.DataFrame(rows)


def estimate_facts(estimate: Estimate) -> dict[str, Any]:
    """Return what the derived file keeps of an estimate, as JSON-ready values."""
    return {
        "step_ns": estimate.step_ns,
        "why_missing": estimate.why_missing,
        "recorded_ns": estimate.recorded_ns,
        "replay_error": estimate.replay_error,
        "median_error": estimate.median_error,
        "operator_cost_ns": estimate.cost.operator_ns if estimate.cost else None,
        "launch_cost_ns": estimate.cost.launch_ns if estimate.cost else None,
        "device_bound": estimate.device_bound,
        "loses_ns_per_step": estimate.loses,
        "notes": list(estimate.notes),
    }
