"""The keys and types of the report, and the JSON Schema generated from them.

``sawtooth report --format json`` prints this report. ``sawtooth.analysis.run.report`` returns these types, so mypy checks the
code against them. docs/report.schema.json is the output of ``report_schema()``.
"""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

import msgspec

from sawtooth.analysis.metrics.reading import Trust
from sawtooth.analysis.metrics.registry import METRICS, with_aliases
from sawtooth.analysis.run.job import StragglerKind
from sawtooth.analysis.run.model import Confidence, Severity
from sawtooth.analysis.telemetry.representativeness import StatementPart
from sawtooth.ingest.manifest import RecordingKind

REPORT_VERSION = 1
SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Nanoseconds = Annotated[int, msgspec.Meta(ge=0)]
StepTimeSource = Annotated[str, msgspec.Meta(extra_json_schema={"enum": ["user", "marks", "telemetry", "estimate", "profile"]})]
ImportSeverity = Annotated[str, msgspec.Meta(extra_json_schema={"enum": ["info", "data_loss", "error"]})]


class RecordingPart(TypedDict):
    """One file of the run."""

    id: str
    kind: RecordingKind
    rank: int | None
    source_name: str | None
    torch_version: str | None


class RunPart(TypedDict):
    """The run and its recordings."""

    id: str
    name: str
    recordings: list[RecordingPart]


class DevicePart(TypedDict):
    """A GPU and its dense peaks by dtype, TFLOP/s; empty where the GPU is not known."""

    index: int
    name: str | None
    peak_tflops: dict[str, float]
    peak_source: str | None


class StepsPart(TypedDict):
    """The source of the steps, their number, the number of counted steps, and their device durations (ms)."""

    source: str
    count: int
    counted: int
    device_step_ms: list[float]


class MetricPart(TypedDict):
    """A reading; ``value`` is null exactly where ``why_missing`` is not.

    ``low`` to ``high`` is its 90 % interval, where one is known. ``high`` is null if nothing bounds it from above; ``notes``
    then has the reason.
    """

    value: float | None
    unit: str
    why_missing: str | None
    trust: Trust
    notes: list[str]
    low: NotRequired[float]
    high: NotRequired[float | None]


class StepTimeEvidencePart(TypedDict):
    """One estimate of the step time in ms, with its source and its 90 % interval.

    ``ms`` is null if the source only gives a lower bound.
    """

    source: str
    ms: float | None
    low: float
    high: float | None
    notes: list[str]


class LedgerPart(TypedDict):
    """One owner of time in the steady window; lost time also has a cause.

    The rows of a device sum to the window.
    """

    device: int
    owner: str
    cause: str | None
    ns: Nanoseconds
    ms_per_step: float | None
    ms_per_step_unprofiled_est: float | None
    share: Share


class KernelCategoryPart(TypedDict):
    """Kernels of one category; times are sums over kernels, which may overlap."""

    category: str
    ns: Nanoseconds
    share: float
    launches: int


class RankPart(TypedDict):
    """The results of one rank's device; the report itself has those of the slowest rank."""

    steps: StepsPart
    window_ns: Nanoseconds
    step_time_source: StepTimeSource
    witnesses: list[StepTimeEvidencePart]
    metrics: dict[str, MetricPart]
    ledger: list[LedgerPart]
    phases: list[dict[str, Any]]
    kernel_categories: list[KernelCategoryPart]


class OneRank(RankPart):
    """One rank and device of several."""

    rank: int | None
    device: int


class ChangePart(TypedDict):
    """One way to write the fix."""

    framework: str
    before: str
    after: str


class FindingPart(TypedDict):
    """A problem that costs time.

    The ceiling is all time that its cause takes. The prediction is the step time of a replay without that cause.
    """

    rule: str
    severity: Severity
    title: str
    ceiling_ms_per_step: float | None
    predicted_step_ms: float | None
    predicted_low_ms: float | None
    predicted_high_ms: float | None
    predicted_speedup: float | None
    prediction_note: str
    confidence: Confidence
    fix: str
    observed: str
    risk: str
    changes: list[ChangePart]
    evidence: list[dict[str, Any]]


class NotCheckedPart(TypedDict):
    """A rule that could not check the run, and the reason."""

    rule: str
    because: str


class DiagnosticPart(TypedDict):
    """A problem during import, or a limit of the recording."""

    key: str
    severity: ImportSeverity
    sentence: str
    count: int


class PlanPart(TypedDict):
    """One fix of the plan, in order, with the predicted step time after it and all earlier fixes, ms."""

    rule: str
    predicted_step_ms: float
    predicted_low_ms: float
    predicted_high_ms: float


class AuditPart(TypedDict):
    """One line of the audit: use of the GPU, work per second, energy or cost.

    ``value`` is null exactly where ``why_missing`` is not.
    """

    key: str
    label: str
    unit: str
    value: float | None
    why_missing: str | None
    trust: Trust
    notes: list[str]


class StragglerPart(TypedDict):
    """Ranks that delay the job.

    ``own_ms`` is the time per step that they need more than their peers. ``gain_ms`` is how much shorter the job's step would
    be without this time. If ``at_most`` is true, the gain is only an upper bound: a replay shows it only with faster hosts.
    """

    ranks: list[int | None]
    host: str | None
    kind: StragglerKind
    reason: str | None
    own_ms: float
    gain_ms: float
    at_most: bool


class HostOperatorPart(TypedDict):
    """An operator's own time on the host and its calls, per step."""

    name: str
    ms: float
    calls: float


class HostThreadPart(TypedDict):
    """A thread's time inside operators, per step."""

    name: str
    ms: float


class HostPart(TypedDict):
    """The host's time in a run without GPU work, ms per step.

    If ``steps`` is 0, times are of the whole recording. ``communication_ms`` is part of ``rest_ms``.
    """

    steps: int
    loading_ms: float
    operators_ms: float
    rest_ms: float
    communication_ms: float
    operators: list[HostOperatorPart]
    threads: list[HostThreadPart]


class FailedCheckPart(TypedDict):
    """A failed check of the recordings.

    If ``headline`` is set, it replaces the run's headline. ``evidence`` names the data sources that the check makes unusable.
    """

    check: str
    count: int
    sentence: str
    advice: str
    headline: str | None
    evidence: list[str]


class ReportPart(RankPart):
    """The report of one run."""

    report_version: int
    tool_version: str
    run: RunPart
    devices: list[DevicePart]
    findings: list[FindingPart]
    plan: list[PlanPart]
    audit: list[AuditPart]
    not_checked: list[NotCheckedPart]
    diagnostics: list[DiagnosticPart]
    failed_checks: NotRequired[list[FailedCheckPart]]
    ranks: NotRequired[list[OneRank]]
    stragglers: list[StragglerPart]
    host: NotRequired[HostPart]
    telemetry_statements: NotRequired[list[StatementPart]]


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema of the report: these types, with every metric named and defined."""
    (reference,), parts = msgspec.json.schema_components([ReportPart], ref_template="#/$defs/{name}")
    metric = {"$ref": "#/$defs/MetricPart"}
    schemas = with_aliases(
        {key: {**metric, "title": m.label, "description": f"{m.unit}. {m.definition}"} for key, m in METRICS.items()}
    )
    for part in ("ReportPart", "RankPart", "OneRank"):
        if part in parts:
            parts[part]["properties"]["metrics"] = {"type": "object", "properties": schemas, "additionalProperties": metric}
    parts["ReportPart"]["properties"]["report_version"] = {"const": REPORT_VERSION}
    return {"$schema": SCHEMA_DIALECT, "title": "sawtooth report --format json", **reference, "$defs": parts}
