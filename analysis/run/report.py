"""The report as JSON with stable keys."""

from __future__ import annotations

from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.registry import METRICS, with_aliases
from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence
from sawtooth.analysis.run.audit import audit
from sawtooth.analysis.run.contract import (
    REPORT_VERSION,
    DevicePart,
    FindingPart,
    HostPart,
    LedgerPart,
    MetricPart,
    RankPart,
    ReportPart,
    StepTimeEvidencePart,
    StragglerPart,
)
from sawtooth.analysis.run.host import HostWork
from sawtooth.analysis.run.model import Finding, LedgerRow, RankResult, RunResult
from sawtooth.analysis.version import TOOL_VERSION


def report_json(result: RunResult) -> ReportPart:
    """Return the report as plain data."""
    lead = result.lead
    report: ReportPart = {
        "report_version": REPORT_VERSION,
        "tool_version": TOOL_VERSION,
        "run": {
            "id": result.manifest.id,
            "name": result.manifest.name,
            "recordings": [
                {
                    "id": row.id,
                    "kind": row.kind,
                    "rank": row.rank,
                    "source_name": row.source_name,
                    "torch_version": row.torch_version,
                }
                for row in result.recordings
            ],
        },
        "devices": _devices(result),
        **_rank_part(lead, result.metrics),  # type: ignore[typeddict-item]  # the rank's keys do not overlap with the run's
        "findings": [finding_json(f) for f in result.findings],
        "audit": [
            {
                "key": row.key,
                "label": row.label,
                "unit": row.unit,
                "value": row.reading.value,
                "why_missing": row.reading.why_missing,
                "trust": row.reading.trust,
                "notes": list(row.reading.notes),
            }
            for row in audit(result)
        ],
        "plan": [
            {
                "rule": step.rule,
                "predicted_step_ms": step.predicted_step_ms,
                "predicted_low_ms": step.predicted_low_ms,
                "predicted_high_ms": step.predicted_high_ms,
            }
            for step in result.plan
        ],
        "not_checked": [{"rule": n.rule, "because": n.because} for n in result.not_checked],
        "diagnostics": [
            {"key": d.key, "severity": d.severity, "sentence": d.sentence, "count": d.count} for d in result.diagnostics
        ],
        "stragglers": _stragglers(result),
    }
    if result.failed:
        report["failed_checks"] = [
            {
                "check": check.key,
                "count": check.count,
                "sentence": check.sentence,
                "advice": check.advice,
                "headline": check.headline,
                "evidence": list(check.evidence),
            }
            for check in result.failed
        ]
    if result.statements:
        report["telemetry_statements"] = [
            {"statement": statement.statement, "state": statement.state, "because": statement.because}
            for statement in result.statements
        ]
    if result.host is not None:
        report["host"] = _host(result.host)
    if len(result.ranks) > 1:
        report["ranks"] = [{"rank": r.rank, "device": r.device, **_rank_part(r, r.metrics)} for r in result.ranks]
    return report


def _host(work: HostWork) -> HostPart:
    return {
        "steps": work.steps,
        "loading_ms": work.loading_ms,
        "operators_ms": work.operators_ms,
        "rest_ms": work.rest_ms,
        "communication_ms": work.communication_ms,
        "operators": [{"name": o.name, "ms": o.ms, "calls": o.calls} for o in work.operators],
        "threads": [{"name": t.name, "ms": t.ms} for t in work.threads],
    }


def _stragglers(result: RunResult) -> list[StragglerPart]:
    return [
        {
            "ranks": list(straggler.ranks),
            "host": straggler.host,
            "kind": straggler.kind,
            "reason": straggler.reason,
            "own_ms": straggler.own_ms,
            "gain_ms": straggler.gain_ms,
            "at_most": straggler.at_most,
        }
        for straggler in (result.communication.stragglers if result.communication else ())
    ]


def finding_json(finding: Finding) -> FindingPart:
    """Return a finding as plain data."""
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "title": finding.title,
        "ceiling_ms_per_step": finding.ceiling_ms_per_step,
        "predicted_step_ms": finding.predicted_step_ms,
        "predicted_low_ms": finding.predicted_low_ms,
        "predicted_high_ms": finding.predicted_high_ms,
        "predicted_speedup": finding.predicted_speedup,
        "prediction_note": finding.prediction_note,
        "confidence": finding.confidence,
        "fix": finding.fix,
        "observed": finding.observed,
        "risk": finding.risk,
        "changes": [{"framework": c.framework, "before": c.before, "after": c.after} for c in finding.changes],
        "evidence": [dict(row) for row in finding.evidence],
    }


def _devices(result: RunResult) -> list[DevicePart]:
    device_parts: dict[int, DevicePart] = {}
    for rank in result.ranks:
        device_parts.setdefault(
            rank.device,
            {
                "index": rank.device,
                "name": rank.device_name,
                "peak_tflops": dict(rank.gpu.peaks) if rank.gpu else {},
                "peak_source": rank.gpu.source if rank.gpu else None,
            },
        )
    return [device_parts[index] for index in sorted(device_parts)]


def _rank_part(rank: RankResult | None, metrics: dict[str, Reading]) -> RankPart:
    if rank is None:
        return {
            "steps": {"source": "none", "count": 0, "counted": 0, "device_step_ms": []},
            "window_ns": 0,
            "step_time_source": "profile",
            "witnesses": [],
            "metrics": _metrics(metrics),
            "ledger": [],
            "phases": [],
            "kernel_categories": [],
        }
    return {
        "steps": {
            "source": rank.step_source,
            "count": len(rank.steps),
            "counted": len(rank.counted),
            "device_step_ms": rank.device_step_ms,
        },
        "window_ns": rank.window_ns,
        "step_time_source": rank.best.source,
        # This key of the released report holds all evidence on the step time.
        "witnesses": [_evidence_part(w) for w in rank.best.evidence],
        "metrics": _metrics(metrics),
        "ledger": [_ledger(row) for row in rank.ledger],
        "phases": rank.phases,
        "kernel_categories": [
            {"category": row.category, "ns": int(row.ns), "share": float(row.share), "launches": int(row.launches)}
            for row in rank.categories.itertuples()
        ],
    }


def _metrics(metrics: dict[str, Reading]) -> dict[str, MetricPart]:
    values: dict[str, MetricPart] = {
        key: {
            "value": reading.value,
            "unit": METRICS[key].unit,
            "why_missing": reading.why_missing,
            "trust": reading.trust,
            "notes": list(reading.notes),
        }
        for key, reading in metrics.items()
    }
    for key, reading in metrics.items():
        if reading.low is not None:
            values[key]["low"], values[key]["high"] = reading.low, reading.high
    return with_aliases(values)


def _evidence_part(evidence: StepTimeEvidence) -> StepTimeEvidencePart:
    return {
        "source": evidence.source,
        "ms": evidence.ms,
        "low": evidence.low_ms,
        "high": evidence.high_ms,
        "notes": list(evidence.notes),
    }


def _ledger(row: LedgerRow) -> LedgerPart:
    return {
        "device": row.device,
        "owner": row.owner,
        "cause": row.cause,
        "ns": row.ns,
        "ms_per_step": row.ms_per_step,
        "ms_per_step_unprofiled_est": row.ms_per_step_unprofiled_est,
        "share": row.share,
    }
