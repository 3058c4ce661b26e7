"""The part of a derived file that says why time was lost: gaps with causes, the ledger's rows, the replay and its estimate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis import ledger, replay_store
from analysis.estimate import Estimate, estimate_unprofiled
from analysis.events import Events
from analysis.host import HostFacts, load_host_facts
from analysis.idle import explain
from analysis.idle_evidence import describe
from analysis.ledger import Segments
from analysis.replay import ReplayProblem
from analysis.replay_build import HostView, StepTable, build_problem, host_view
from analysis.schedule import Schedule, lost_time, schedule_of, totals
from analysis.steps import DeviceSteps
from analysis.unprofiled import recording_cost, without_profiler

FOREIGN_KEYS = ("step", "next_gpu_op_id", "cpu_op_id", "call_id", "python_call_id")


@dataclass(frozen=True)
class HostSide:
    """What explains lost time, built once for all devices of a trace."""

    facts: HostFacts
    view: HostView
    problem: ReplayProblem
    schedule: Schedule


def host_side(con: duckdb.DuckDBPyConnection, events: Events, devices: list[DeviceSteps]) -> HostSide:
    """Build the host's view, the replay and the recorded schedule of a trace with at least one device."""
    facts = load_host_facts(con, events.origin_ns)
    view = host_view(events, facts)
    problem = build_problem(events, StepTable.of(max(devices, key=lambda d: len(d.table))), facts, view)
    return HostSide(facts, view, problem, schedule_of(events, view, problem, None))


@dataclass(frozen=True)
class DeviceCauses:
    """One device: rows of the derived tables ``gaps`` and ``causes`` (absolute times), and the estimate of the unprofiled run."""

    gaps: pd.DataFrame
    causes: pd.DataFrame
    estimate: Estimate


def device_causes(
    events: Events, side: HostSide, device: DeviceSteps, parts: Segments, codes: NDArray[np.int8]
) -> DeviceCauses:
    """Explain the lost time of one device. ``parts`` are its segments, ``codes`` the owner of each GPU operation of the trace."""
    lost = lost_time(parts, device.window)
    pieces = explain(events, side.schedule, device.device, lost, codes)
    starts, ends = (device.table[c].to_numpy(np.int64) for c in ("start", "end"))
    gaps = describe(events, side.facts, side.view, side.schedule, lost, pieces, starts, ends)
    counted = device.table["step"][device.table["counted"].to_numpy(bool)].to_numpy(np.int32)
    estimate = estimate_unprofiled(events, side.view, side.problem, device.device, counted, codes)
    recorded: dict[tuple[str, str | None], int] = {}
    recorded.update(totals(pieces, lost).items())
    explained = {owner for owner, _ in recorded}
    for owner, ns in ledger.owned(parts, device.window).items():
        if owner not in explained and ns:
            recorded[owner, None] = ns
    return DeviceCauses(_absolute(gaps, events.origin_ns, device.device), _rows(recorded, estimate, device.device), estimate)


def _absolute(gaps: pd.DataFrame, origin_ns: int, device: int) -> pd.DataFrame:
    table = gaps.rename(columns={"start": "start_ns", "end": "end_ns"}).assign(device=device)
    for column in ("start_ns", "end_ns"):
        table[column] = table[column].astype(np.int64) + origin_ns
    for column in FOREIGN_KEYS:
        table[column] = table[column].astype("Int64").where(table[column] >= 0)
    return table


def _rows(recorded: dict[tuple[str, str | None], int], estimate: Estimate, device: int) -> pd.DataFrame:
    keys = [*recorded, *(key for key in estimate.ledger if key not in recorded)]
    known = bool(estimate.ledger)
    return pd.DataFrame(
        {
            "device": device,
            "owner": [owner for owner, _ in keys],
            "cause": [cause for _, cause in keys],
            "ns": [recorded.get(key, 0) for key in keys],
            "unprofiled_ns_per_step": [estimate.ledger.get(key, 0.0) if known else None for key in keys],
        }
    )


def estimate_facts(estimate: Estimate) -> dict[str, Any]:
    """Return what pages need of the estimate as plain data."""
    return {
        "step_ns": estimate.step_ns,
        "why_missing": estimate.why_missing,
        "replay_error": estimate.replay_error,
        "median_error": estimate.median_error,
        "event_ns": estimate.cost.event_ns if estimate.cost else None,
        "loses": estimate.loses,
        "device_bound": estimate.device_bound,
        "notes": list(estimate.notes),
    }


def store_replay(con: duckdb.DuckDBPyConnection, events: Events, side: HostSide) -> None:
    """Keep the replay without the profiler's cost, for what-if questions."""
    problem = without_profiler(side.problem, recording_cost(events))
    con.execute("INSERT INTO d.replays VALUES ('unprofiled', ?)", [replay_store.dump(problem)])
