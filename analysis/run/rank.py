"""Each device of a trace as a rank of the run, with its steps, ledger, step time and metrics."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from sawtooth.analysis.derive.lost.uneven import uneven_waits
from sawtooth.analysis.integrity import captures, cut_files, devices, graph_gaps, long_waits, names, operators, ranges, times
from sawtooth.analysis.integrity.failed_check import FailedCheck
from sawtooth.analysis.knowledge.hardware import UNMEASURED_DISPATCH, GpuPeaks, identify
from sawtooth.analysis.metrics import trust
from sawtooth.analysis.metrics.device_facts import DeviceFacts
from sawtooth.analysis.metrics.loader_rate import workers_time
from sawtooth.analysis.metrics.metric import DeviceMeasurements
from sawtooth.analysis.metrics.registry import readings_of
from sawtooth.analysis.metrics.step_time import BestStepTime, choose_step_time
from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence, StepWork
from sawtooth.analysis.queries import queries_of
from sawtooth.analysis.run.model import LedgerRow, RankResult
from sawtooth.analysis.run.recorded_work import outside_ns, owned_ns, recorded_ledger, step_work
from sawtooth.analysis.run.scaled_ledger import at_best
from sawtooth.analysis.run.verdict import busy_ms
from sawtooth.analysis.store.calibration import dispatch_of
from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.store.recording_row import RecordingRow
from sawtooth.analysis.telemetry import run_telemetry
from sawtooth.analysis.telemetry.representativeness import Representativeness, judge_profile
from sawtooth.analysis.telemetry.run_telemetry import RunTelemetry
from sawtooth.analysis.telemetry.summary import DeviceTelemetry
from sawtooth.ingest.manifest import UserFacts
from sawtooth.ingest.schema import DataFolder
from sawtooth.ingest.typed import from_json

WITHOUT_SMS = ("meta", "huawei", "intel")  # Makers whose traces have launch sizes of other units, or none.
_SQL = queries_of(__file__)


@dataclass(frozen=True)
class RankTrace:
    """A trace of a run, with the run's data from the user, the telemetry and the step marks.

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
        return [_DeviceTrace(self, device).rank() for device in devices]

    @cached_property
    def stored_facts(self) -> dict[str, str]:
        """The derived file's facts, as JSON."""
        return {str(key): str(value) for key, value in self.recording.rows("SELECT key, value FROM facts")}


@dataclass(frozen=True)
class _DeviceTrace:
    """One device of a trace. Each property reads or computes one thing; ``rank`` puts them together."""

    trace: RankTrace
    device: int

    @property
    def recording(self) -> Recording:
        return self.trace.recording

    @cached_property
    def facts(self) -> DeviceFacts:
        return from_json(self.trace.stored_facts.get(f"device_{self.device}", "{}"), DeviceFacts)

    @cached_property
    def step_source(self) -> str:
        return str(json.loads(self.trace.stored_facts.get("step_source", '"none"')))

    @cached_property
    def steps(self) -> pd.DataFrame:
        return self.recording.frame("SELECT * EXCLUDE (device) FROM steps WHERE device = ? ORDER BY step", [self.device])

    @cached_property
    def counted(self) -> int:
        """The number of steps that the results are computed from."""
        return int(self.steps["counted"].sum())

    @cached_property
    def outside_ns(self) -> int:
        """The time before the first and after the last operation, which is idle time if there are no steps."""
        return 0 if self.counted or not self._steps_ns else outside_ns(self.recording, self.trace.row, self.device)

    @cached_property
    def _steps_ns(self) -> int:
        sql = "SELECT coalesce(sum(end_ns - start_ns), 0) FROM windows WHERE device = ?"
        return int(self.recording.rows(sql, [self.device])[0][0])

    @property
    def window_ns(self) -> int:
        """The time that the ledger divides."""
        return self._steps_ns + self.outside_ns

    @cached_property
    def waits(self) -> pd.DataFrame:
        return self.recording.frame(_SQL["waits"], [self.device])

    @cached_property
    def kernels(self) -> pd.DataFrame:
        kernels = self.recording.frame(_SQL["kernels"], [self.device])
        return kernels.assign(sm_ns=float("nan")) if self.trace.row.vendor in WITHOUT_SMS else kernels

    @cached_property
    def recorded_ledger(self) -> list[LedgerRow]:
        """The ledger of the profiled steps."""
        return recorded_ledger(self.recording, self.device, self.window_ns, self.counted, self.outside_ns)

    @cached_property
    def ledger(self) -> list[LedgerRow]:
        """The ledger at the best step time."""
        return at_best(self.recorded_ledger, self.best)

    @cached_property
    def sampled(self) -> DeviceTelemetry | None:
        return self.trace.telemetry.of(self.trace.row.id, self.device)

    @cached_property
    def profile_ns(self) -> tuple[int, int] | None:
        return self.trace.telemetry.profile_ns(self.sampled, self.trace.row)

    @cached_property
    def work(self) -> StepWork | None:
        if not self.counted:
            return None
        dispatch = self.gpu.dispatch if self.gpu is not None else UNMEASURED_DISPATCH
        return step_work(self.recording, self.device, self.facts, self.recorded_ledger, self.counted, dispatch)

    @cached_property
    def by_telemetry(self) -> StepTimeEvidence | str | None:
        return run_telemetry.telemetry_evidence(self.sampled, self.profile_ns, self.work) if self.work is not None else None

    @cached_property
    def best(self) -> BestStepTime:
        return choose_step_time(
            self.steps,
            self.facts.estimate,
            self.trace.user.step_time_ms,
            work=self.work,
            telemetry=self.by_telemetry if isinstance(self.by_telemetry, StepTimeEvidence) else None,
            marks=self.trace.marks,
            fed=workers_time(self.trace.user),
        )

    def measurements(self) -> DeviceMeasurements:
        """Return what the metrics are computed from."""
        idle_ns = self.waits[self.waits["owner"] == "idle"].groupby("step")["ns"].sum()
        return DeviceMeasurements(
            best=self.best,
            counted=self.counted,
            window_ns=self.window_ns,
            owned_ns=owned_ns(self.ledger),
            kernels=self.kernels,
            facts=self.facts,
            gpu=self.gpu,
            user=self.trace.user,
            works_ms=busy_ms(self.best, self.ledger, self.counted) if self.counted else None,
            allocated_bytes=_allocated_bytes(self.recording, self.device),
            sampled=self.sampled,
            other_time_note=run_telemetry.other_time_note(self.sampled, self.profile_ns),
            outlier_doubts=trust.doubts_of_outlier(self.steps, idle_ns.to_dict(), self.best.source),
        )

    def rank(self) -> tuple[RankResult, DeviceMeasurements]:
        """Return the device as a rank of the run, with the data that its metrics are computed from."""
        measured = self.measurements()
        row = self.trace.row
        result = RankResult(
            recording_id=row.id,
            rank=row.rank,
            device=self.device,
            device_name=self.device_name,
            gpu=self.gpu,
            trace=row,
            facts=self.facts,
            step_source=self.step_source,
            steps=self.steps,
            window_ns=self.window_ns,
            best=self.best,
            metrics=trust.apply(
                readings_of(measured),
                self.facts,
                truncated=row.truncated,
                begun_before=self.counted == 1 and self.step_source == "annotation",
                outlier_doubts=measured.outlier_doubts,
            ),
            ledger=self.ledger,
            uneven=uneven_waits(_waits_in(self.waits, self.steps), self.counted),
            categories=_categories(self.kernels),
            phases=self.facts.phases,
            telemetry=self.sampled,
            represents=self._represents(),
            work=self.work,
            failed=self._failed_checks(),
        )
        return result, measured

    def _represents(self) -> Representativeness | None:
        """Return whether the profiled steps are like the others; None without telemetry."""
        if self.by_telemetry is None:
            return None
        estimate_ns = self.facts.estimate.step_ns if self.facts.estimate is not None else None
        bounded = self.best.estimate.high is not None
        return judge_profile(self.by_telemetry, estimate_ns, self.best.mean_ms, bounded=bounded)

    def _failed_checks(self) -> tuple[FailedCheck, ...]:
        recording, device = self.recording, self.device
        return (
            *cut_files.checks(recording),
            *devices.checks(recording),
            *captures.checks(recording, device),
            *graph_gaps.checks(recording, device),
            *long_waits.checks(recording, device),
            *times.checks(recording, device),
            *names.checks(recording, device),
            *ranges.checks(recording),
            *operators.checks(recording),
        )

    @property
    def device_name(self) -> str | None:
        return self._identified[0]

    @property
    def gpu(self) -> GpuPeaks | None:
        return self._identified[1]

    @cached_property
    def _identified(self) -> tuple[str | None, GpuPeaks | None]:
        """The name and the peaks of the device.

        ROCm's ordinals count the CPUs first, so a trace's kernels may run on device 2 although the list ends at 0. If the
        ordinal is not in the list, the list is used only if it has exactly one model.
        """
        columns = "name, compute_major, compute_minor, sms"
        rows = self.recording.rows(f"SELECT {columns}, memory_bytes FROM devices WHERE device = ?", [self.device])
        if not rows:
            models = self.recording.rows(f"SELECT {columns}, max(memory_bytes) FROM devices GROUP BY {columns}")
            rows = models if len(models) == 1 else []
        if not rows:
            return None, None
        name, major, minor, sms, memory = rows[0]
        gpu = identify(
            name=name, compute_major=major, compute_minor=minor, sms=sms, memory_bytes=memory, vendor=self.trace.row.vendor
        )
        if gpu is None:
            return name, None
        name = name or gpu.name
        return name, replace(gpu, dispatch=dispatch_of(self.trace.folder, name) or gpu.dispatch)


def _waits_in(waits: pd.DataFrame, steps: pd.DataFrame) -> list[tuple[str, float]]:
    """Return cause and ms of each wait in each counted step."""
    counted = waits[waits["step"].isin(steps.loc[steps["counted"], "step"])]
    by_cause = counted.groupby(["cause", "step"])["ns"].sum() / 1e6
    return [(str(cause), float(ms)) for (cause, _), ms in by_cause.items()]


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
