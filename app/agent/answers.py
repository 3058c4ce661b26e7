"""The answers of the MCP tools; their fields are the tools' output schemas."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.compare.report import compare_json
from sawtooth.analysis.compare.significance.certainty import Answer
from sawtooth.analysis.knowledge.lost_time import known_by
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.run.verdict import busy_share_of_best, judge
from sawtooth.app import format as fmt
from sawtooth.app.words import lost_time as lost_words
from sawtooth.app.words.advice import below, numbered
from sawtooth.app.words.comparisons import comparison as comparison_words
from sawtooth.app.words.comparisons import setup_changes as changed_words
from sawtooth.app.words.headline import headline

NAME_LENGTH = 120  # Characters of a run's name.
MAX_DIAGNOSTICS = 20  # An answer lists at most this many diagnostics, because it must stay short.


@dataclass(frozen=True)
class Time:
    """A step time in ms with its 95 % interval; if it is unknown, ``ms`` is null and ``note`` says why."""

    ms: float | None
    low_ms: float | None = None
    high_ms: float | None = None
    trust: str = "ok"
    note: str = ""


@dataclass(frozen=True)
class ListedRun:
    """A run: id, name, time of its ingest (UTC), tags, and its answer if it is analysed already."""

    id: str
    name: str
    created: str
    tags: list[str]
    traces: int
    telemetry: int
    step_ms: float | None
    headline: str


@dataclass(frozen=True)
class RunList:
    """The newest runs first; ``total`` is the number of all runs that match."""

    runs: list[ListedRun]
    total: int


@dataclass(frozen=True)
class LostTime:
    """Time per step that the GPU loses to a cause. ``cause`` is the key that ``what_if`` needs."""

    cause: str
    label: str
    ms_per_step: float
    share: float | None
    help: str


@dataclass(frozen=True)
class Advised:
    """A finding: what to change, and the gain of the change.

    ``finding`` is the key that ``explain`` and ``what_if`` need. ``claims`` is "gain" (predicted), "ceiling" (at most
    ``gain_ms``), "throughput" or "caution" (no gain of time is claimed).
    """

    finding: str
    number: int
    title: str
    action: str
    severity: str
    confidence: str
    claims: str
    gain_ms: float
    predicted_step_ms: float | None
    predicted_low_ms: float | None
    predicted_high_ms: float | None


@dataclass(frozen=True)
class PlannedChange:
    """A step of the plan: the step time after this change and all changes before it."""

    finding: str
    before_ms: float
    after_ms: float
    low_ms: float
    high_ms: float


@dataclass(frozen=True)
class RunReport:
    """A run's answer: where a step's time goes, what to change, and the gain. Shares are from 0 to 1."""

    id: str
    name: str
    headline: str
    detail: str
    gpu: str
    gpus: int
    step: Time
    busy_share: float | None
    mfu: float | None
    lost: list[LostTime]
    findings: list[Advised]
    plan: list[PlannedChange]
    not_checked: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class RunComparison:
    """Two runs compared.

    ``verdict`` compares ``after`` with ``before``: faster, slower, faster_size_unknown, slower_size_unknown, no_change or
    cannot_tell. ``confidence`` and ``why`` are about the verdict.

    ``change_ms`` is after minus before, with its 95 % interval. ``parts`` divide it by owner and cause of time. ``also_differs``
    are conditions that differ between both runs, such as the GPU, its clock, versions and the batch size.
    """

    before: dict[str, str]
    after: dict[str, str]
    verdict: Answer
    headline: str
    detail: str
    before_ms: float | None
    after_ms: float | None
    change_ms: float | None
    change_ci95_ms: list[float] | None
    confidence: str
    why: str
    parts: list[dict[str, Any]]
    changed: list[str]
    findings_fixed: list[str]
    findings_new: list[str]
    prediction: dict[str, Any] | None
    reasons_not_to_compare: list[str]
    also_differs: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Explanation:
    """A finding in full: its evidence, its source lines, the change to make, and when the rule is wrong."""

    finding: Advised
    how: str
    prediction_note: str
    risk: str
    changes: list[dict[str, str]]
    evidence: list[dict[str, Any]]
    source_lines: list[str]
    needs_first: list[str]
    about_the_rule: dict[str, str]


@dataclass(frozen=True)
class Rows:
    """The rows of a query. ``more`` is true if the query has further rows beyond the limit."""

    columns: list[str]
    rows: list[list[Any]]
    more: bool


@dataclass(frozen=True)
class IngestedRuns:
    """The runs that were made from files, a sentence for each file that was left out, and notices."""

    runs: list[ListedRun]
    left_out: list[str]
    notices: list[str]


def time_of(reading: Reading) -> Time:
    """Return a reading of a step time as an answer."""
    note = " ".join(reading.notes) if reading.value is not None else (reading.why_missing or "")
    return Time(reading.value, reading.low, reading.high, reading.trust, note)


def report_of(result: RunResult) -> RunReport:
    """Return the answer about one run."""
    lead, step = result.lead, result.metrics["best_step_time_ms"]
    devices = sorted({rank.device_name or (rank.gpu.name if rank.gpu else "") for rank in result.ranks} - {""})
    return RunReport(
        id=result.manifest.id,
        name=fmt.clean(result.manifest.name, NAME_LENGTH),
        headline=fmt.clean(headline(result), 400),
        detail=fmt.clean(below(result) or result.manifest.failure or "", 1000),
        gpu=", ".join(devices),
        gpus=result.gpus,
        step=time_of(step),
        busy_share=busy_share_of_best(lead) if lead is not None else None,
        mfu=result.metrics["mfu"].value,
        lost=_lost_times(result),
        findings=[finding_answer(number, finding) for number, finding in numbered(result)],
        plan=[
            PlannedChange(p.rule, p.before_ms, p.predicted_step_ms, p.predicted_low_ms, p.predicted_high_ms)
            for p in result.plan
        ],
        not_checked={rule_not_checked.rule: rule_not_checked.because for rule_not_checked in result.not_checked},
        warnings=[*(check.sentence for check in result.failed), *(d.sentence for d in result.diagnostics[:MAX_DIAGNOSTICS])],
    )


def _lost_times(result: RunResult) -> list[LostTime]:
    verdict = judge(result.lead) if result.lead is not None else None
    if result.lead is None or verdict is None:
        return []
    step_ms = verdict.step.value
    return [
        LostTime(known_by(row.owner, row.cause) if row.owner else "", row.label, row.ms, row.ms / step_ms if step_ms else None, row.helps)
        for row in lost_words.rows(result.lead, verdict.column)
    ]  # fmt: skip


def finding_answer(number: int, finding: Finding) -> Advised:
    """Return a finding as an answer, with its number on the pages."""
    return Advised(
        finding=finding.rule,
        number=number,
        title=finding.title,
        action=finding.action.short,
        severity=finding.severity,
        confidence=finding.confidence,
        claims=finding.claims,
        gain_ms=finding.gain_ms,
        predicted_step_ms=finding.predicted_step_ms,
        predicted_low_ms=finding.predicted_low_ms,
        predicted_high_ms=finding.predicted_high_ms,
    )


def comparison_of(comparison: Comparison) -> RunComparison:
    """Return a comparison as an answer, from the JSON of ``sawtooth compare --format json``."""
    plain = compare_json(comparison)
    best = plain["best_step_time_ms"]
    return RunComparison(
        before=_side(plain["a"]),
        after=_side(plain["b"]),
        verdict=comparison.answer,
        headline=fmt.clean(comparison_words.headline(comparison), 600),
        detail=fmt.clean(comparison_words.below(comparison), 1000),
        before_ms=best["a"],
        after_ms=best["b"],
        change_ms=best["change_ms"],
        change_ci95_ms=best["ci95_ms"],
        confidence=comparison.leading.confidence,
        why=comparison.leading.why,
        parts=plain["waterfall_run"] or plain["waterfall"],
        changed=[fmt.clean(sentence, 400) for sentence in changed_words.sentences(comparison)],
        findings_fixed=[finding["rule"] for finding in plain["findings_fixed"]],
        findings_new=[finding["rule"] for finding in plain["findings_new"]],
        prediction=plain["prediction"],
        reasons_not_to_compare=[reason["sentence"] for reason in plain["reasons_not_to_compare"]],
        also_differs=[
            {key: fmt.clean(row[key], 200) for key in ("what", "a", "b")} for row in plain["conditions"] if row["differs"]
        ],
    )


def _side(side: dict[str, Any]) -> dict[str, str]:
    return {"id": side["id"], "name": fmt.clean(side["name"], NAME_LENGTH)}
