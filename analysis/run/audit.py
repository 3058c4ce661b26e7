"""The audit of a run: its use of the GPU, its work per second, and its cost.

A value that is not known has a reason instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from sawtooth.analysis.metrics.reading import Reading, lowest_trust, missing
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run.verdict import busy_share_of_best

STEPS_PER_EPOCH = "steps_per_epoch"  # The setting or tag with the length of an epoch, such as steps_per_epoch=5004.
NO_TRACE = "No GPU work is recorded in this run."


@dataclass(frozen=True)
class AuditRow:
    """One line of the audit.

    ``unit`` is a metric's unit, or the text after the number. ``better`` is higher, lower or neither.
    """

    key: str
    label: str
    unit: str
    better: str
    reading: Reading


def audit(run: RunResult) -> tuple[AuditRow, ...]:
    """Return the audit of a run; rates, energy and cost use the run's best step time."""
    unit, work = _work(run)
    epoch = _of_step(run, _steps_per_epoch(run), lambda steps, ms: steps * ms / 3.6e6)
    step_j = _of_step(run, _power_w(run), lambda power_w, ms: power_w * ms / 1000)
    cost = _of_step(run, _price(run), lambda price, ms: price * _gpus(run) * 1000 * ms / 3.6e6)
    return (
        AuditRow("step_time_ms", "Step time", "ms", "lower", run.metrics["best_step_time_ms"]),
        AuditRow("throughput", "Throughput", f"{unit}/s", "higher", _of_step(run, work, lambda amount, ms: 1000 * amount / ms)),
        AuditRow("utilization", "GPU utilization (NVML)", "share", "higher", run.metrics["nvml_gpu_util_mean"]),
        AuditRow("busy_share", "GPU busy, share of the step", "share", "higher", _busy(run)),
        AuditRow("mfu", "MFU", "share", "higher", run.metrics["mfu"]),
        AuditRow("peak_memory_bytes", "Peak memory", "bytes", "neither", run.metrics["peak_memory_bytes"]),
        AuditRow("hours_per_epoch", "Hours per epoch", "h", "lower", epoch),
        AuditRow("energy_per_step_j", "Energy per step, one GPU", "J", "lower", step_j),
        AuditRow(f"energy_per_{unit[:-1]}_j", f"Energy per {unit[:-1]}", "J", "lower", _per_work(run, step_j, work)),
        AuditRow("cost_per_1000_steps", "Cost of 1,000 steps, all GPUs", "", "lower", cost),
    )


def _work(run: RunResult) -> tuple[str, Reading]:
    """Return the unit that a step counts and its amount per step; samples come before tokens."""
    facts = run.manifest.facts
    for unit, amount in (("samples", facts.samples_per_step), ("tokens", facts.tokens_per_step)):
        if amount is not None:
            return unit, Reading(amount)
    return "samples", missing("The number of samples or tokens per step is not known.")


def _steps_per_epoch(run: RunResult) -> Reading:
    text = run.manifest.all_settings.get(STEPS_PER_EPOCH)
    try:
        steps = float(text) if text is not None else math.nan
    except ValueError:
        steps = math.nan
    if not (math.isfinite(steps) and steps > 0):
        return missing("The number of steps per epoch is not known. Give the run a tag such as `steps_per_epoch=5004`.")
    return Reading(steps)


def _power_w(run: RunResult) -> Reading:
    sampled = run.lead.telemetry if run.lead is not None else None
    if sampled is not None and sampled.counted_power_w is not None:
        return Reading(
            sampled.counted_power_w, notes=("Energy per step, from the GPU's counter in the steady part of the telemetry.",)
        )
    power_w = sampled.means.get("power_w") if sampled is not None else None
    if power_w is None:
        return missing("No telemetry of this run has power. Record it with `sawtooth sample`.")
    return Reading(power_w, notes=("Mean power in the steady part of the telemetry × the step time.",))


def _price(run: RunResult) -> Reading:
    price = run.manifest.facts.price_per_gpu_hour
    return Reading(price) if price is not None else missing("No price of a GPU-hour is stored with the run.")


def _gpus(run: RunResult) -> int:
    world = run.lead.trace.world_size if run.lead is not None else None
    return max(world or 1, len(run.ranks))


def _busy(run: RunResult) -> Reading:
    if run.lead is None:
        return missing(NO_TRACE)
    if run.withdrawn_by is not None:
        return missing(run.withdrawn_by.sentence)
    share, step = busy_share_of_best(run.lead), run.metrics["best_step_time_ms"]
    trusts = (run.metrics["gpu_busy_share"].trust, *([step.trust] if step.value is not None else []))
    return (
        Reading(share, trust=lowest_trust(*trusts))
        if share is not None
        else missing(run.metrics["gpu_busy_share"].why_missing or NO_TRACE)
    )


def _per_work(run: RunResult, step_j: Reading, work: Reading) -> Reading:
    if _gpus(run) > 1 and work.value is not None:
        return missing("With several GPUs it is not known whether a step's samples or tokens are one rank's or the job's.")
    if step_j.value is None or not work.value:
        return missing((work if work.value is None else step_j).why_missing or NO_TRACE)
    low, high = (end / work.value if end is not None else None for end in (step_j.low, step_j.high))
    return Reading(step_j.value / work.value, None, step_j.trust, step_j.notes, low, high)


def _of_step(run: RunResult, amount: Reading, value: Callable[[float, float], float]) -> Reading:
    """Return ``value`` of ``amount`` and the step time (ms).

    The reading has the weaker trust of both, and an interval from the step time's interval.
    """
    step = run.metrics["best_step_time_ms"]
    if amount.value is None or not step.value:
        return missing((amount if amount.value is None else step).why_missing or NO_TRACE)
    ends = [value(amount.value, end) for end in (step.low, step.high) if end]
    low, high = (min(ends), max(ends)) if len(ends) == 2 else (None, None)
    return Reading(value(amount.value, step.value), None, lowest_trust(amount.trust, step.trust), amount.notes, low, high)
