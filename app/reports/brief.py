"""A run in five lines, for the end of a training's output."""

from __future__ import annotations

from sawtooth.analysis.run.model import RunResult
from sawtooth.app import format as fmt
from sawtooth.app.words.advice import below
from sawtooth.app.words.headline import headline

MAX_NOTES = 3  # Notes about the step time that are printed.


def lines(result: RunResult) -> list[str]:
    """Return the first change (or where the time goes), the step time, and the GPU's utilization."""
    metrics = result.metrics
    out = [headline(result), *filter(None, [below(result)])]
    step = metrics["best_step_time_ms"]
    if step.value is not None:
        text = fmt.reading("best_step_time_ms", step)
        out.append(" ".join([*([] if text in out[0] else [f"Step {text}."]), *step.notes[:MAX_NOTES]]))
    known_readings = [
        f"{label} {fmt.reading(key, metrics[key])}"
        for key, label in (("gpu_busy_share", "GPU busy"), ("nvml_gpu_util_mean", "NVML utilization"), ("mfu", "MFU"))
        if metrics[key].value is not None
    ]
    if known_readings:
        out.append(", ".join(known_readings) + ".")
    return [f"sawtooth: {fmt.clean(line)}" for line in out if line]
