"""The numbers of a run that other systems keep, by name."""

from __future__ import annotations

from sawtooth.analysis.knowledge.lost_time import known_by
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run.verdict import busy_share_of_best, judge
from sawtooth.app.words import lost_time


def values_of(result: RunResult, prefix: str = "sawtooth/") -> dict[str, float]:
    """Return the run's numbers: times in ms, shares from 0 to 1. Unknown values are left out.

    ``lost_ms/CAUSE`` is the time per step that the GPU loses to a cause. ``planned_step_time_ms`` is the step time after all
    changes of the plan.
    """
    step = result.metrics["best_step_time_ms"]
    lead = result.lead
    values: dict[str, float | None] = {
        "step_time_ms": step.value,
        "step_time_low_ms": step.low,
        "step_time_high_ms": step.high,
        "gpu_busy_share": busy_share_of_best(lead) if lead is not None else None,
        "planned_step_time_ms": result.plan[-1].predicted_step_ms if result.plan else None,
        "findings": float(len(result.findings)),
    }
    for key in ("mfu", "tensor_core_share", "samples_per_second", "peak_memory_bytes"):
        values[key] = result.metrics[key].value if key in result.metrics else None
    verdict = judge(lead) if lead is not None else None
    if lead is not None and verdict is not None:
        for row in lost_time.rows(lead, verdict.column):
            values[f"lost_ms/{known_by(row.owner, row.cause) if row.owner else 'other'}"] = row.ms
    return {f"{prefix}{name}": value for name, value in values.items() if value is not None}
