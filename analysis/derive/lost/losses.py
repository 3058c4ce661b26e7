"""Lost time and its causes as rows of the derived file.

These are the gaps, the ledger with its unprofiled column, and the estimate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.derive.columns import nullable
from sawtooth.analysis.derive.lost.estimate import UnprofiledEstimate, estimate_unprofiled
from sawtooth.analysis.derive.lost.evidence import describe
from sawtooth.analysis.derive.lost.idle import explain
from sawtooth.analysis.derive.lost.ledger import Segments, owner_ns
from sawtooth.analysis.derive.lost.phases import PhaseSums, phase_sums, phases
from sawtooth.analysis.derive.lost.schedule import lost_time, schedule_of, totals
from sawtooth.analysis.derive.lost.sentences import MAX_SENTENCES
from sawtooth.analysis.derive.parts.part import DerivedPart
from sawtooth.analysis.derive.steps.device import DeviceSteps
from sawtooth.analysis.derive.unprofiled.cost import recording_cost, without_profiler
from sawtooth.analysis.derive.unprofiled.problem import StepTable, build_problem, host_view, recorded_waits
from sawtooth.analysis.knowledge.owners import LOST_OWNERS
from sawtooth.analysis.replay.simulation import ReplayProblem


class Losses:
    """Lost time of a recording, collected part by part, and the replay without the profiler.

    It has the rows of the tables ``gaps`` and ``causes``, and by device the estimate and the phases. Replay and estimate use only
    the first part, which has more steps than a replay needs. A replay that does not reproduce the trace is stored as
    ``unexplained``; its times of the host between calls are still valid.
    """

    def __init__(self) -> None:
        self.unprofiled: ReplayProblem | None = None
        self.unexplained: ReplayProblem | None = None
        self._estimates: dict[int, UnprofiledEstimate] = {}
        self._owned: dict[int, Counter[str]] = {}
        self._lost: dict[int, Counter[tuple[str, str]]] = {}
        self._phases: dict[int, dict[str, PhaseSums]] = {}
        self._steps: dict[int, int] = {}
        self._gaps: Counter[int] = Counter()

    def explained(self, part: DerivedPart, codes: NDArray[np.int8], ledgers: Mapping[int, Segments]) -> list[pd.DataFrame]:
        """Explain the lost time of every device in one part; return its ``gaps`` rows, one frame per device.

        Times are absolute. ``codes`` is the ledger's owner of each GPU operation, ``ledgers`` the ledger of each device's part
        of the window.
        """
        rows: list[pd.DataFrame] = []
        if not part.devices:
            return rows
        events, facts = part.events, part.facts
        view = host_view(events, facts)
        longest = max(part.devices, key=lambda d: len(d.table))
        problem = None
        if part.first:
            steps = StepTable.of(longest, _whole_steps(longest, part.steps))
            problem = build_problem(events, steps, facts, view, later_steps=len(longest.table) - len(steps.number))
        all_waits = recorded_waits(events, StepTable.of(longest), facts, view) if problem is None or problem.notes else problem
        recorded = schedule_of(events, view, all_waits, None)
        for device in part.devices:
            parts = ledgers[device.device]
            lost = lost_time(parts, device.window)
            pieces = explain(events, recorded, device.device, lost, codes)
            table = device.table
            described = describe(
                events=events, facts=facts, view=view, schedule=recorded, lost=lost, pieces=pieces,
                step_starts=table["start"].to_numpy(), step_ends=table["end"].to_numpy(), most_sentences=MAX_SENTENCES // part.parts,
            )  # fmt: skip
            rows.append(_gap_rows(described, part, device.device, self._gaps[device.device]))
            del described
            self._gaps[device.device] += len(lost.start)
            if problem is not None:
                counted = table.loc[table["counted"].astype(bool), "step"].to_numpy(np.int32)
                self._estimates[device.device] = estimate_unprofiled(
                    events=events, view=view, problem=problem, device=device.device, counted=counted, codes=codes
                )
            self._count(part, device, owner_ns(parts, device.window), totals(pieces, lost))
            sums = phase_sums(events, view, device, pieces, lost, None if part.parts == 1 else part.host_time)
            phases_of_device = self._phases.setdefault(device.device, {})
            for name, added in sums.items():
                phases_of_device[name] = phases_of_device[name] + added if name in phases_of_device else added
        if problem is not None and any(estimate.replay_error is not None for estimate in self._estimates.values()):
            unprofiled = _with_recorded_ids(part, without_profiler(problem, recording_cost(events)))
            is_explained = any(estimate.step_ns is not None for estimate in self._estimates.values())
            self.unprofiled, self.unexplained = (unprofiled, None) if is_explained else (None, unprofiled)
        return rows

    def _count(self, part: DerivedPart, device: DeviceSteps, owners: dict[str, int], lost: dict[tuple[str, str], int]) -> None:
        # The keys keep the order of the first part, so the stored rows do too.
        self._owned.setdefault(device.device, Counter()).update(owners)
        self._lost.setdefault(device.device, Counter()).update(lost)
        self._steps[device.device] = int(device.table["counted"].sum()) if len(device.table) else 0

    def causes(self) -> pd.DataFrame:
        """Return the rows of the table ``causes``."""
        if not self._estimates:
            return pd.DataFrame()
        rows = [_cause_rows(d, self._owned[d], self._lost[d], estimate) for d, estimate in self._estimates.items()]
        return pd.concat(rows, ignore_index=True)

    def facts(self, device: int) -> dict[str, Any]:
        """Return a device's estimate and phases for the derived file, as JSON-ready values.

        Empty for a device without an estimate.
        """
        if device not in self._estimates:
            return {}
        return {
            "estimate": estimate_facts(self._estimates[device]),
            "phases": phases(self._phases[device], self._steps[device]),
        }


def _whole_steps(device: DeviceSteps, selected: slice) -> slice:
    """Return the longest sequence of steps in ``selected`` with complete GPU records.

    If no step is complete, the result is ``selected``.
    """
    lacks = device.table["lost"].to_numpy()[selected] > 0 if len(device.table) else np.zeros(0, bool)
    if not lacks.any() or lacks.all():
        return selected
    borders = np.flatnonzero(np.diff(np.concatenate(([True], lacks, [True])).astype(int)))
    starts, ends = borders[::2], borders[1::2]
    longest = int((ends - starts).argmax())
    first = selected.indices(len(device.table))[0]
    return slice(first + int(starts[longest]), first + int(ends[longest]))


def _with_recorded_ids(part: DerivedPart, problem: ReplayProblem) -> ReplayProblem:
    host, ops = problem.host, problem.ops
    return replace(
        problem, host=replace(host, call=part.recorded("calls", host.call)), ops=replace(ops, op=part.recorded("gpu", ops.op))
    )


def _gap_rows(rows: pd.DataFrame, part: DerivedPart, device: int, gaps_before: int) -> pd.DataFrame:
    frame = rows.rename(columns={"start": "start_ns", "end": "end_ns"}).assign(device=device)
    frame["start_ns"] += part.events.origin_ns
    frame["end_ns"] += part.events.origin_ns
    frame["gap"] += gaps_before
    kinds = {"next_gpu_op_id": "gpu", "cpu_op_id": "ops", "call_id": "calls", "python_call_id": "python"}
    ids = {column: part.recorded(kind, frame[column].to_numpy(np.int64)) for column, kind in kinds.items()}
    return frame.assign(
        step=nullable(frame["step"].to_numpy(np.int64)),
        **{column: nullable(ids_of_column) for column, ids_of_column in ids.items()},
    )


def _cause_rows(
    device: int, owners: Mapping[str, int], lost: Mapping[tuple[str, str], int], estimate: UnprofiledEstimate
) -> pd.DataFrame:
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


def estimate_facts(estimate: UnprofiledEstimate) -> dict[str, Any]:
    """Return an estimate's values for the derived file, JSON-ready."""
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
