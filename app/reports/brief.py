"""A run in five lines, for the end of a training's own output."""

from __future__ import annotations

from sawtooth.analysis.run.model import RunResult
from sawtooth.app import format as fmt
from sawtooth.app.reports.text import gain
from sawtooth.app.words.run import first_line


def lines(result: RunResult) -> list[str]:
    """Return the verdict, the step, what the GPU does in it, and the first thing to change; fewer where less is known."""
    metrics = result.metrics
    out = [first_line(result)]
    step = metrics["best_step_time_ms"]
    if step.value is not None:
        out.append(f"Step {fmt.reading('best_step_time_ms', step)}. {' '.join(step.notes[:1])}".rstrip())
    known = [
        f"{label} {fmt.reading(key, metrics[key])}"
        for key, label in (("gpu_busy_share", "GPU busy"), ("nvml_gpu_util_mean", "NVML utilization"), ("mfu", "MFU"))
        if metrics[key].value is not None
    ]
    if known:
        out.append(", ".join(known) + ".")
    actions = [finding for finding in result.findings if finding.severity != "info"]
    if actions:
        first, lead = actions[0], result.lead
        out.append(f"First: {first.fix} {gain(first, lead.best.ms if lead is not None else None)}".rstrip())
    return [f"sawtooth: {fmt.clean(line)}" for line in out]
