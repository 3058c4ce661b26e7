"""One rank of a run by itself: a device of a trace with its steps, ledger, step time and metrics."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from sawtooth.analysis.derive.host_only import LOADS_IN_WORKERS, LOADS_INLINE
from sawtooth.analysis.derive.lost.uneven import uneven_waits
from sawtooth.analysis.integrity import captures, cut_files, devices, names, operators, ranges, times
from sawtooth.analysis.knowledge.hardware import UNMEASURED_DISPATCH, GpuPeaks, identify
from sawtooth.analysis.knowledge.lost_time import UNATTRIBUTED
from sawtooth.analysis.knowledge.owners import KERNEL_OWNERS
from sawtooth.analysis.metrics import trust
from sawtooth.analysis.metrics.device_facts import DeviceFacts
from sawtooth.analysis.metrics.loader_rate import feeding
from sawtooth.analysis.metrics.metric import DeviceMeasurements
from sawtooth.analysis.metrics.registry import readings_of
from sawtooth.analysis.metrics.step_time import choose_step_time
from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence, StepWork
from sawtooth.analysis.queries import queries_of
from sawtooth.analysis.run.model import LedgerRow, RankResult
from sawtooth.analysis.run.scaled_ledger import at_best
from sawtooth.analysis.run.verdict import busy_ms
from sawtooth.analysis.store.calibration import dispatch_of
from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.store.recording_row import RecordingRow
from sawtooth.analysis.telemetry import run_telemetry as run_telemetry
from sawtooth.analysis.telemetry.representativeness import judge_profile
from sawtooth.analysis.telemetry.run_telemetry import RunTelemetry
from sawtooth.ingest.manifest import UserFacts
from sawtooth.ingest.schema import DataFolder
from sawtooth.ingest.typed import from_json

NEVER_WAITED = 0.01  # share of the step; a loader that costs the profiled steps less had its batches ready
# The largest cost of recording an operator without launches. A loader on a slow host had 7 µs for each of 5,149 operators.
MOST_RECORDING_NS = 8_000
WITHOUT_SMS = ("meta", "huawei", "intel")  # makers whose traces have launch sizes of other units, or none
QUEUED_NS = 1_000_000  # an operation that starts this long after its launch was queued; on an idle GPU it takes some 10 µs
_SQL = queries_of(__file__)
WITHIN_GPU = r"DtoD|Device -> Device|Device-to-Device|DeviceToDevice"  # copies within the GPU's memory


@dataclass(frozen=True)
class RankTrace:
    """A trace of a run, with what the user, the telemetry and the step marks say about the run.

    ``row`` is the trace's recording row, with the rank that the run assigns to it. ``user`` is what the user entered, ``marks``
    is the step time evidence of the loop's own marks. ``folder`` has measurements of GPUs.
    """

    recording: Recording
    row: RecordingRow
    user: UserFacts
    telemetry: RunTelemetry
    marks: StepTimeEvidence | None
    folder: DataFolder

    def ranks(self) -> list[tuple[RankResult, DeviceMeasurements]]:
        """Return each device with work as a rank, with the data that its metrics are computed from."""
        devices = [int(row[0]) for row in self.recording.rows("SELECT DISTINCT device FROM windows ORDER BY device")]
        return [self._rank(device) for device in devices]

    @cached_property
    def _facts(self) -> dict[str, str]:
        """The derived file's facts, as JSON."""
        return {str(key): str(value) for key, value in self.recording.rows("SELECT key, value FROM facts")}

    def _facts_of(self, device: int) -> DeviceFacts:
        return from_json(self._facts.get(f"device_{device}", "{}"), DeviceFacts)

    def _rank(self, device: int) -> tuple[RankResult, DeviceMeasurements]:
        recording, row = self.recording, self.row
        facts = self._facts_of(device)
        steps = recording.frame("SELECT * EXCLUDE (device) FROM steps WHERE device = ? ORDER BY step", [device])
        counted = int(steps["counted"].sum())
        sql = "SELECT coalesce(sum(end_ns - start_ns), 0) FROM windows WHERE device = ?"
        window_ns = int(recording.rows(sql, [device])[0][0])
        outside_ns = 0 if counted or not window_ns else _outside_ns(recording, row, device)
        window_ns += outside_ns
        waits = recording.frame(_SQL["waits"], [device])
        idle_ns = waits[waits["owner"] == "idle"].groupby("step")["ns"].sum()
        name, gpu = self._gpu(device)
        kernels = recording.frame(_SQL["kernels"], [device])
        if row.vendor in WITHOUT_SMS:
            kernels = kernels.assign(sm_ns=float("nan"))
        recorded = _ledger(recording, device, window_ns, counted, outside_ns)
        sampled = self.telemetry.of(row.id, device)
        profile_ns = self.telemetry.profile_ns(sampled, row)
        work = self._work(device, facts, recorded, counted, gpu) if counted else None
        by_telemetry = run_telemetry.telemetry_evidence(sampled, profile_ns, work) if work is not None else None
        best = choose_step_time(
            steps,
            facts.estimate,
            self.user.step_time_ms,
            work=work,
            telemetry=by_telemetry if isinstance(by_telemetry, StepTimeEvidence) else None,
            marks=self.marks,
            fed=feeding(self.user),
        )
        ledger = at_best(recorded, best)
        measured = DeviceMeasurements(
            best=best,
            counted=counted,
            window_ns=window_ns,
            owned_ns=_owned_ns(ledger),
            kernels=kernels,
            facts=facts,
            gpu=gpu,
            user=self.user,
            works_ms=busy_ms(best, ledger, counted) if counted else None,
            allocated_bytes=_allocated_bytes(recording, device),
            sampled=sampled,
            other_time_note=run_telemetry.other_time_note(sampled, profile_ns),
            outlier_doubts=trust.doubts_of_outlier(steps, idle_ns.to_dict(), best.source),
        )
        step_source = json.loads(self._facts.get("step_source", '"none"'))
        begun_before = counted == 1 and step_source == "annotation"
        estimate_ns = facts.estimate.step_ns if facts.estimate is not None else None
        result = RankResult(
            recording_id=row.id,
            rank=row.rank,
            device=device,
            device_name=name,
            gpu=gpu,
            trace=row,
            facts=facts,
            step_source=step_source,
            steps=steps,
            window_ns=window_ns,
            best=best,
            metrics=trust.apply(
                readings_of(measured),
                facts,
                truncated=row.truncated,
                begun_before=begun_before,
                outlier_doubts=measured.outlier_doubts,
            ),
            ledger=ledger,
            uneven=uneven_waits(_waits_in(waits, steps), counted),
            categories=_categories(kernels),
            phases=facts.phases,
            telemetry=sampled,
            represents=judge_profile(by_telemetry, estimate_ns, best.mean_ms, bounded=best.estimate.high is not None)
            if by_telemetry is not None
            else None,
            work=work,
            failed=(
                *cut_files.checks(recording),
                *devices.checks(recording),
                *captures.checks(recording, device),
                *times.checks(recording, device),
                *names.checks(recording, device),
                *ranges.checks(recording),
                *operators.checks(recording),
            ),
        )
        return result, measured

    def _work(
        self, device: int, facts: DeviceFacts, ledger: Iterable[LedgerRow], counted: int, gpu: GpuPeaks | None
    ) -> StepWork:
        """Return the GPU's work in one of the ``counted`` steps."""
        rows = list(ledger)
        owned = {owner: ns / counted for owner, ns in _owned_ns(rows).items()}
        # Collectives that run during computation count too: the GPU is busy while it waits in them.
        on_device = {"device": device, "within": self.recording.named(WITHIN_GPU)}
        copies, pageable, communication = self.recording.rows(_SQL["copies_and_communication"], on_device)[0]
        allocating = self.recording.rows(_SQL["allocating"], [device])[0][0]
        waits = sum(row.ns for row in rows if row.cause == "data_wait") / counted
        loading = sum(_unprofiled_ns(row, counted) for row in rows if row.cause == "data_wait")
        workers, inline = self.recording.named(LOADS_IN_WORKERS), self.recording.named(LOADS_INLINE)
        inside = (
            self.recording.rows(_SQL["loading_operators"], {"device": device, "loading": inline})[0][0]
            if loading and inline
            else 0
        )
        least_loading_ns = min(loading, max(waits - inside / counted * MOST_RECORDING_NS, 0.0))
        overlap_ns, sum_ns, moves, moves_ns = self.recording.rows(_SQL["resident"], on_device)[0]
        kernel_ns = sum(owned.get(owner, 0.0) for owner in KERNEL_OWNERS)
        return StepWork(
            kernel_ns=kernel_ns,
            dispatched=(facts.kernels_in_counted_steps - facts.graph_kernels_in_counted_steps - overlap_ns + moves) / counted,
            moves_ns=float(moves_ns) / counted,
            in_graphs=facts.graph_kernels_in_counted_steps / counted,
            beside_ns=0.0
            if communication
            else max(float(sum_ns) / counted - kernel_ns, 0.0),  # collectives run concurrently by design
            communication_ns=float(communication) / counted,
            copies_ns=float(copies) / counted,
            pageable_ns=float(pageable) / counted,
            allocating_ns=float(allocating) / counted,
            waits_ns=waits,
            loading_ns=0.0 if workers else loading,
            loading_least_ns=0.0 if workers else least_loading_ns,
            hidden_loader=bool(workers) and waits < NEVER_WAITED * sum(owned.values()),
            dispatch=gpu.dispatch if gpu is not None else UNMEASURED_DISPATCH,
        )

    def _gpu(self, device: int) -> tuple[str | None, GpuPeaks | None]:
        """Return the name and the peaks of a device.

        ROCm's ordinals count the CPUs first, so a trace's kernels may run on device 2 although the list ends at 0. If the
        ordinal is not in the list, the list is used only if it has exactly one model.
        """
        columns = "name, compute_major, compute_minor, sms"
        rows = self.recording.rows(f"SELECT {columns}, memory_bytes FROM devices WHERE device = ?", [device])
        if not rows:
            models = self.recording.rows(f"SELECT {columns}, max(memory_bytes) FROM devices GROUP BY {columns}")
            rows = models if len(models) == 1 else []
        if not rows:
            return None, None
        name, major, minor, sms, memory = rows[0]
        gpu = identify(
            name=name, compute_major=major, compute_minor=minor, sms=sms, memory_bytes=memory, vendor=self.row.vendor
        )
        called = name or (gpu.name if gpu else None)
        return called, replace(gpu, dispatch=dispatch_of(self.folder, called) or gpu.dispatch) if gpu is not None else None


def _unprofiled_ns(row: LedgerRow, counted: int) -> float:
    """Return a ledger row's time per step (ns) without the profiler's cost, or as recorded if not known."""
    return row.ns / counted if row.ms_per_step_unprofiled_est is None else row.ms_per_step_unprofiled_est * 1e6


def _outside_ns(recording: Recording, row: RecordingRow, device: int) -> int:
    """Return the ns before the first and after the last GPU operation of a recording without steps.

    If the first operation was queued for long, only the time before its launch counts: the GPU then did other work that is not
    in the recording. The result is 0 for a truncated file, which may lack the last operations.
    """
    if row.truncated or row.span_ns is None:
        return 0
    first, last = row.span_ns
    launched, began, ended = recording.rows(_SQL["asked"], [device])[0]
    start_ns = launched if launched is not None and began - launched > QUEUED_NS else began
    return max(start_ns - first, 0) + max(last - ended, 0)


def _waits_in(waits: pd.DataFrame, steps: pd.DataFrame) -> list[tuple[str, float]]:
    """Return cause and ms of each wait in each counted step."""
    counted = waits[waits["step"].isin(steps.loc[steps["counted"], "step"])]
    by_cause = counted.groupby(["cause", "step"])["ns"].sum() / 1e6
    return [(str(cause), float(ms)) for (cause, _), ms in by_cause.items()]


def _ledger(recording: Recording, device: int, window_ns: int, counted: int, outside_ns: int) -> list[LedgerRow]:
    owned = [(owner, cause, ns, estimate) for owner, cause, ns, estimate in recording.rows(_SQL["ledger"], [device])]
    if outside_ns:
        unexplained = sum(ns for owner, cause, ns, _ in owned if (owner, cause) == ("idle", UNATTRIBUTED))
        owned = [row for row in owned if row[:2] != ("idle", UNATTRIBUTED)]
        owned.append(("idle", UNATTRIBUTED, unexplained + outside_ns, None))
        owned.sort(key=lambda row: -row[2])
    return [
        LedgerRow(
            device=device,
            owner=owner,
            cause=cause,
            ns=ns,
            ms_per_step=ns / counted / 1e6 if counted else None,
            ms_per_step_unprofiled_est=estimate / 1e6 if estimate is not None else None,
            share=ns / window_ns if window_ns else 0.0,
        )
        for owner, cause, ns, estimate in owned
    ]


def _owned_ns(ledger: Iterable[LedgerRow]) -> dict[str, int]:
    owned: dict[str, int] = {}
    for row in ledger:
        owned[row.owner] = owned.get(row.owner, 0) + row.ns
    return owned


def _allocated_bytes(recording: Recording, device: int) -> float | None:
    """Return the allocator's peak of memory in use on a device; None without allocator events."""
    peak = recording.rows(_SQL["allocated"], [device])[0][0]
    return float(peak) if peak else None


def _categories(kernels: pd.DataFrame) -> pd.DataFrame:
    table = (
        kernels.groupby("category", as_index=False)[["ns", "launches"]]
        .sum()
        .sort_values("ns", ascending=False, ignore_index=True)
    )
    total = table["ns"].sum()
    return table.assign(share=table["ns"] / total if total else 0.0)
