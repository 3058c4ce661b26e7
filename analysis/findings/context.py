"""The data that rules use, and the requirements that a rule can make of a recording."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar, cast

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.judging import Step
from sawtooth.analysis.findings.model import Row
from sawtooth.analysis.findings.recorded.counted_operations import step_work
from sawtooth.analysis.findings.recorded.launches import CountedLaunches
from sawtooth.analysis.findings.recorded.source_lines import user_lines, without_stale_lines
from sawtooth.analysis.metrics.loader_rate import first_read_of, sample_cost
from sawtooth.analysis.metrics.step_sources import STEP_SOURCES
from sawtooth.analysis.nulls import plain_rows
from sawtooth.analysis.replay.edits import Edit
from sawtooth.analysis.replay.whatif import WhatIf
from sawtooth.analysis.run.model import LedgerRow, RankResult, RunResult
from sawtooth.analysis.run.verdict import uses_estimate
from sawtooth.analysis.telemetry.summary import DeviceTelemetry

if TYPE_CHECKING:
    from sawtooth.analysis.store.library import Recording

P = ParamSpec("P")
T = TypeVar("T")

# Rules stop measuring below this share of the step. A smaller cost stays below every threshold in ``policy``, even if other changes
# make the step five times as short.
NEGLIGIBLE_SHARE = 0.001
MAX_LOCATIONS = 10  # At most this many places on the host are evidence of a finding.
TRITON_MIN_MAJOR = 7  # Compute capability.
# cuBLAS and cuDNN mark single precision in a kernel's name by an s (volta_sgemm_64x64_nt, volta_scudnn_128x64_…), by the types
# of all operands, or by "float".
FP32_NAMES = r"sgemm|scudnn|f32f32_f32f32|_engine<float"

_PYTHON_CALLS_IN_GAPS = "SELECT DISTINCT python_call_id FROM gaps WHERE device = $device AND list_contains($causes, cause) AND python_call_id IS NOT NULL"
# The sums are computed inside the database, because a recording of five million GPU operations has twelve million gaps.
# Places are compared by the ids of their names.
_PLACES = """
WITH user_lines AS (SELECT python_call_id, name_id FROM (SELECT unnest($frames::BIGINT[]) AS python_call_id, unnest($lines::VARCHAR[]) AS name) JOIN names USING (name)),
pieces AS (
    SELECT coalesce(u.name_id, o.name_id, c.name_id) AS name_id, g.call_id, g.start_ns, g.end_ns, g.evidence,
        g.end_ns - g.start_ns AS ns, row(g.end_ns - g.start_ns, -g.start_ns) AS largest_then_first
    FROM gaps g LEFT JOIN user_lines u USING (python_call_id) LEFT JOIN cpu_ops o USING (cpu_op_id) LEFT JOIN runtime_calls c USING (call_id)
    WHERE g.device = $device AND list_contains($causes, g.cause) AND ($calls IS NULL OR call_id IN (SELECT unnest($calls::BIGINT[])))),
places AS (
    SELECT name_id, count(DISTINCT call_id) AS calls, sum(ns)::BIGINT AS ns, arg_max(start_ns, largest_then_first) AS start_ns,
        arg_max(end_ns, largest_then_first) AS end_ns, arg_max(evidence, largest_then_first) AS evidence
    FROM pieces GROUP BY name_id)
SELECT coalesce(name, 'an unnamed place') AS place, calls / $steps AS calls_per_step, ns / 1e6 / $steps AS ms_per_step, start_ns, end_ns, evidence
FROM places LEFT JOIN names USING (name_id) ORDER BY ns DESC, place LIMIT $most"""


@dataclass(frozen=True)
class RuleContext:
    """Data that a rule may use: the analysed run, its slowest rank, the rank's recording, and the replay.

    ``whatif`` is None if the trace has no replay. ``telemetry`` is a summary, None without telemetry.
    """

    run: RunResult
    rank: RankResult
    recording: Recording
    telemetry: DeviceTelemetry | None = None
    whatif: WhatIf | None = None
    _computed: dict[tuple[object, ...], object] = field(default_factory=dict, compare=False, repr=False)

    def once(self, make: Callable[..., T], *arguments: object, **named: object) -> T:
        """Return ``make(self, *arguments, **named)``, computed once for all rules.

        Callers must not change the result.
        """
        key = (make, *arguments, *sorted(named.items()))
        if key not in self._computed:
            self._computed[key] = make(self, *arguments, **named)
        return cast(T, self._computed[key])

    @cached_property
    def work(self) -> pd.DataFrame:
        """GPU operations of the counted steps, read once for all rules.

        See ``sawtooth.analysis.findings.recorded.counted_operations.step_work``.
        """
        return step_work(self.recording, self.rank.device)

    @cached_property
    def fp32_by_name(self) -> pd.DataFrame:
        """Rows of ``work`` of products whose kernels' names state FP32 without tensor cores."""
        products = self.work[self.work["category"].isin(("gemm", "conv")) & (self.work["tensor_cores"] == "no")]
        return products[products["kernel"].str.contains(FP32_NAMES)]

    @cached_property
    def launches(self) -> CountedLaunches:
        """Host positions of the launches of ``work``, read once for all rules."""
        return CountedLaunches(self.recording, self.work["gpu_op_id"].to_numpy(np.int64))

    @cached_property
    def compilable(self) -> bool:
        """Whether torch.compile supports the GPU: Triton needs compute capability 7.0 on NVIDIA's."""
        ((major,),) = self.recording.rows("SELECT max(compute_major) FROM devices")
        return self.rank.trace.vendor != "nvidia" or major is None or major >= TRITON_MIN_MAJOR

    @property
    def work_steps(self) -> int:
        """The number of steps that ``work`` covers, at least 1."""
        return max(int(self.work["step"].nunique()), 1)

    @property
    def step_ms(self) -> float | None:
        """The run's best step time in ms."""
        return self.rank.best.ms

    @property
    def trainer(self) -> str:
        """The library whose training loop makes the steps, such as Lightning; "" for the user's own loop."""
        return next((evidence.trainer for evidence in self.rank.best.evidence if evidence.trainer), "")

    @property
    def uses_estimate(self) -> bool:
        """Whether the ledger's column of the unprofiled estimate represents the run."""
        return uses_estimate(self.rank)

    def scaled_to_run(self, profiled_ms: float) -> float:
        """Return a time of the profiled steps, scaled down to the run's step if it is shorter."""
        profiled_step_ms = self.rank.best.profiled.value
        return profiled_ms * min(self.step_ms / profiled_step_ms, 1.0) if profiled_step_ms and self.step_ms else profiled_ms

    def lost_ms(self, *causes: str, owner: str | None = None, rank: RankResult | None = None) -> float:
        """Return the ms per step that ``rank`` (default: this rank) loses to ``causes`` together.

        The values come from the ledger column that represents the run.
        """
        rows = [row for row in (rank or self.rank).ledger if row.cause in causes and owner in (None, row.owner)]
        return sum(map(self.ledger_ms, rows))

    def ledger_ms(self, row: LedgerRow) -> float:
        """Return the ms per step of a row of the ledger, from the column that represents the run."""
        return (row.ms_per_step_unprofiled_est if self.uses_estimate else row.ms_per_step) or 0.0

    def gpu_work_ms(self) -> float:
        """Return the ms per step in which the GPU works, without its waits for other ranks."""
        return sum(self.ledger_ms(row) for row in self.rank.ledger if row.owner != "idle" and row.cause != "comm_wait")

    @cached_property
    def step(self) -> Step:
        """The run's step, for which rules judge their evidence."""
        return Step(self.rank.best, self.whatif)

    def share(self, ms: float) -> float:
        """Return ``ms`` as a share of the step, 0 if the step time is not known."""
        return self.step.share(ms)

    def is_negligible(self, ms: float) -> bool:
        """Return whether a rule need not measure a cost of ``ms`` per step any further."""
        return self.share(ms) < NEGLIGIBLE_SHARE

    def predict_ms(self, edits: Sequence[Edit]) -> float | None:
        """Return the run's step time in ms with ``edits`` applied; None without a replay."""
        return self.step.predict_ms(edits)

    def predict_range_ms(self, edits: Sequence[Edit]) -> tuple[float, float] | None:
        """Return the interval of ``predict_ms``; None without a replay."""
        return self.step.predict_range_ms(edits)

    def gap_evidence(self, *causes: str, before: Sequence[int] | None = None) -> list[Row]:
        """Return the largest gaps of ``causes`` as evidence rows that link to the timeline.

        With ``before``, only gaps that end with the launches of these calls count.
        """
        frame = self.recording.frame(
            "WITH longest AS (SELECT *, (end_ns - start_ns) / 1e6 AS ms FROM gaps WHERE device = $device AND list_contains($causes, cause) "
            "AND ($calls IS NULL OR next_gpu_op_id IN (SELECT gpu_op_id FROM gpu_ops WHERE call_id IN (SELECT unnest($calls::BIGINT[])))) "
            "ORDER BY ms DESC, start_ns LIMIT 5) "
            "SELECT g.start_ns, g.end_ns, g.ms, g.cause, g.phase, n.name AS operator, g.evidence "
            "FROM longest g LEFT JOIN cpu_ops o USING (cpu_op_id) LEFT JOIN names n ON n.name_id = o.name_id ORDER BY g.ms DESC, g.start_ns",
            {
                "device": self.rank.device,
                "causes": list(causes),
                "calls": None if before is None else list(before),
            },
        )
        return plain_rows(frame)

    def host_locations(self, *causes: str, calls: Sequence[int] | None = None) -> list[Row]:
        """Return the places on the host that cause gaps of ``causes`` (and of ``calls``), largest first.

        ``place`` is the user's own source line, else the operator, else the call. Further columns: calls_per_step, ms_per_step as
        recorded, and start_ns, end_ns and evidence of the largest gap.
        """
        gaps = {"device": self.rank.device, "causes": list(causes)}
        lines = user_lines(self.recording, [call for (call,) in self.recording.rows(_PYTHON_CALLS_IN_GAPS, gaps)])
        parameters = gaps | {
            "calls": None if calls is None else list(calls),
            "frames": list(lines),
            "lines": list(lines.values()),
            "steps": max(len(self.rank.counted), 1),
            "most": MAX_LOCATIONS,
        }
        rows = plain_rows(self.recording.frame(_PLACES, parameters))
        if not lines:
            return rows
        current_lines = without_stale_lines(self.recording, [row["place"] for row in rows])
        return [row | {"place": place} for row, place in zip(rows, current_lines, strict=True)]


def once(make: Callable[Concatenate[RuleContext, P], T]) -> Callable[Concatenate[RuleContext, P], T]:
    """Compute a query once per recording for all rules; see ``RuleContext.once``."""

    @wraps(make)
    def computed_once(context: RuleContext, *arguments: P.args, **named: P.kwargs) -> T:
        return context.once(make, *arguments, **named)

    # The type of wraps() also allows the context as a keyword argument.
    return cast(Callable[Concatenate[RuleContext, P], T], computed_once)


NO_HOST_SAMPLES = "the telemetry has no samples of the host; record it with `sawtooth sample`"

# Data that a rule can require: a function that returns whether the recording has the data, and a sentence for the case that it has not.
REQUIREMENTS: dict[str, tuple[Callable[[RuleContext], bool], str]] = {
    "steps": (lambda g: len(g.rank.counted) > 0, "the trace has no steps"),
    "CUDA graphs": (lambda g: g.rank.trace.vendor not in ("meta", "huawei"), "this accelerator has no CUDA graphs"),
    "torch.compile": (
        lambda g: g.compilable,
        "torch.compile does not support this GPU: Triton needs compute capability 7.0 or newer",
    ),
    "shapes": (lambda g: bool(g.rank.trace.record_shapes), "the trace has no shapes (`record_shapes=True`)"),
    "shapes or names": (
        lambda g: bool(g.rank.trace.record_shapes) or not g.fp32_by_name.empty,
        "the trace has no shapes (`record_shapes=True`), and its kernels' names do not show the dtype",
    ),
    "epochs": (
        lambda g: bool(g.rank.trace.with_stack or (g.rank.best.parts is not None and g.rank.best.parts.waiting_ms is not None)),
        "no step marks show the waits for the loader, and the trace has no Python calls (`with_stack=True`)",
    ),
    "stacks": (lambda g: bool(g.rank.trace.with_stack), "the trace has no Python calls (`with_stack=True`)"),
    "memory": (lambda g: bool(g.rank.trace.profile_memory), "the trace has no allocations (`profile_memory=True`)"),
    "telemetry": (lambda g: g.telemetry is not None, "no telemetry is attached to the run (`sawtooth sample`)"),
    "host": (lambda g: g.run.telemetry.host is not None, NO_HOST_SAMPLES),
    "host or loader": (
        lambda g: g.run.telemetry.host is not None or sample_cost(g.run.manifest.facts) is not None,
        NO_HOST_SAMPLES,
    ),
    "reads": (
        lambda g: first_read_of(g.run.manifest.facts) is not None,
        "the loader's reads from disk and from memory were not counted (`sawtooth run` and the capture helper count them on Linux)",
    ),
    "ranks": (
        lambda g: len({r.rank for r in g.run.ranks}) > 1,
        "the run has only one rank; ingest the traces of all ranks together",
    ),
    "run's step": (
        lambda g: g.telemetry is not None or STEP_SOURCES[g.rank.best.source].timed,
        "the step time is only known from the profiled steps, without telemetry (`sawtooth sample`), step marks or a stopwatch time",
    ),
    "gpu": (lambda g: g.rank.gpu is not None, "the GPU is not in the hardware table"),
}
