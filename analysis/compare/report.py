"""The comparison as JSON with stable keys (METRICS, `sawtooth compare A B --format json`)."""

from __future__ import annotations

from typing import Any

from sawtooth.analysis.compare.audit import AuditChange
from sawtooth.analysis.compare.changed.differences import Effect
from sawtooth.analysis.compare.comparison import Comparison, MetricChange, StepTimes
from sawtooth.analysis.compare.comparison_side import Side
from sawtooth.analysis.compare.matching import Match
from sawtooth.analysis.compare.throughput import Throughput
from sawtooth.analysis.compare.waterfall import RunRow, WaterfallRow
from sawtooth.analysis.metrics.registry import METRICS, with_aliases
from sawtooth.analysis.run.contract import REPORT_VERSION
from sawtooth.analysis.run.report import finding_json
from sawtooth.analysis.version import TOOL_VERSION


def compare_json(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as plain data.

    New keys may be added; the keys of the contract do not change.
    """
    word = comparison.verdict
    return {
        "report_version": REPORT_VERSION,
        "tool_version": TOOL_VERSION,
        "a": _side(comparison.a),
        "b": _side(comparison.b),
        "verdict": comparison.answer,
        "best_step_time_ms": {
            **_times(comparison.best),
            "change_share": comparison.best.change_share,
            "source": {side: ", ".join(sources) for side, sources in zip("ab", comparison.sources, strict=True)},
            "ci95_ms": list(word.ci95_ms) if word.ci95_ms is not None else None,
            "verdict": word.word,
            "confidence": word.confidence,
            "why": word.why,
            "noise_floor_share": word.noise_floor_share,
            "smallest_visible_share": word.smallest_visible_share,
        },
        "profile_step_time_ms": {**_times(comparison.profile), "median": _times(comparison.median)},
        "disagreement": comparison.disagreement,
        "reasons_not_to_compare": [{"key": r.key, "sentence": r.sentence, "a": r.a, "b": r.b} for r in comparison.reasons],
        "throughput": _throughput(comparison.throughput) if comparison.throughput is not None else None,
        "waterfall_run": [_run_waterfall(row) for row in comparison.waterfall_run],
        "waterfall": [_waterfall(row) for row in comparison.waterfall],
        "metrics": with_aliases(
            {change.key: {**_metric(change), "says": comparison.metric_word(change)} for change in comparison.metrics}
        ),
        "different_models": comparison.other_model,
        "conditions": [
            {"key": pair.key, "what": pair.what, "a": pair.a, "b": pair.b, "differs": pair.differs}
            for pair in comparison.conditions
        ],
        "changed": [_effect(effect) for effect in comparison.effects],
        "prediction": {
            "rules": list(prediction.rules),
            "predicted_step_ms": prediction.predicted_ms,
            "predicted_low_ms": prediction.low_ms,
            "predicted_high_ms": prediction.high_ms,
            "measured_step_ms": prediction.measured_ms,
            "changed_too": list(prediction.also_changed),
            "other_number": prediction.tried,
        }
        if (prediction := comparison.prediction) is not None
        else None,
        "audit": [{**_audit(line), "says": comparison.audit_word(line)} for line in comparison.audit],
        "kernels": [match_json(row) for row in comparison.kernels],
        "operators": [match_json(row) for row in comparison.operators],
        "findings_fixed": [finding_json(finding) for finding in comparison.findings_fixed],
        "findings_new": [finding_json(finding) for finding in comparison.findings_new],
        "findings_not_comparable": list(comparison.not_comparable_findings),
    }


def _side(side: Side) -> dict[str, Any]:
    lead = side.first.lead
    return {
        "id": side.first.manifest.id,
        "name": side.name,
        "runs": [{"id": run.manifest.id, "name": run.manifest.name} for run in side.runs],
        "device": lead.device_name if lead is not None else None,
        "device_step_ms": side.device_step_ms,
    }


def _times(times: StepTimes) -> dict[str, Any]:
    return {"a": times.a, "b": times.b, "change_ms": times.change_ms}


def _throughput(rate: Throughput) -> dict[str, Any]:
    return {
        "unit": f"{rate.unit}/s",
        "a": rate.a,
        "b": rate.b,
        "ratio": rate.ratio,
        "verdict": rate.verdict.word,
        "confidence": rate.verdict.confidence,
        "why": rate.verdict.why,
    }


def _run_waterfall(row: RunRow) -> dict[str, Any]:
    return {
        "owner": row.owner,
        "cause": row.cause,
        "ms_per_step_a": float(row.ms_a),
        "ms_per_step_b": float(row.ms_b),
        "change_ms": float(row.change_ms),
        "resolved": row.resolved,
    }


def _waterfall(row: WaterfallRow) -> dict[str, Any]:
    return {
        "owner": row.owner,
        "cause": row.cause,
        "ms_per_step_a": float(row.ns_a) / 1e6,
        "ms_per_step_b": float(row.ns_b) / 1e6,
        "change_ms": float(row.change_ns) / 1e6,
        "ms_per_step_unprofiled_est_a": row.unprofiled_ms_a,
        "ms_per_step_unprofiled_est_b": row.unprofiled_ms_b,
        "change_unprofiled_est_ms": row.unprofiled_change_ms,
    }


def _effect(effect: Effect) -> dict[str, Any]:
    return {
        "differences": [
            {
                "key": d.key,
                "what": d.what,
                "a": d.a,
                "b": d.b,
                "rules": list(d.rules),
                "finding": d.finding is not None,
                "of_b": d.of_b,
            }
            for d in effect.differences
        ],
        "explains_share": effect.share,
        "parts": [_run_waterfall(row) for row in effect.parts],
    }


def _audit(line: AuditChange) -> dict[str, Any]:
    return {
        "key": line.row.key,
        "label": line.row.label,
        "unit": line.row.unit,
        "better": line.row.better,
        "a": line.a.value,
        "b": line.b.value,
        "change": line.change,
        "why_missing": line.a.why_missing or line.b.why_missing,
    }


def _metric(change: MetricChange) -> dict[str, Any]:
    return {
        "a": change.a.value,
        "b": change.b.value,
        "change": change.change,
        "unit": METRICS[change.key].unit,
        "better": METRICS[change.key].better,
        "why_missing": change.a.why_missing or change.b.why_missing,
        "trust": max((change.a.trust, change.b.trust), key=("ok", "caution", "unusable").index),
    }


def match_json(row: Match) -> dict[str, Any]:
    """Return a matched kernel or operator as plain data, times in ms per step."""
    return {
        "label": row.label,
        "matched_by": row.how,
        "category": row.category or None,
        "operator": row.operator or None,
        "shapes": row.shapes or None,
        "names_a": list(row.names_a),
        "names_b": list(row.names_b),
        "ms_per_step_a": float(row.ns_a) / 1e6,
        "ms_per_step_b": float(row.ns_b) / 1e6,
        "change_ms": float(row.change_ns) / 1e6,
        "per_step_a": float(row.count_a),
        "per_step_b": float(row.count_b),
    }
