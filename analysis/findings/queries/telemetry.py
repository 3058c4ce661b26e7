"""Telemetry queries of several rules: reduced clocks, memory in use, and time without a kernel."""

from __future__ import annotations

from sawtooth.analysis.findings.context import RuleContext, once
from sawtooth.analysis.findings.model import Row
from sawtooth.analysis.findings.queries.calls import EVIDENCE_ROWS
from sawtooth.analysis.telemetry.phases import ThrottleBand
from sawtooth.analysis.telemetry.representativeness import SHORT_KERNEL_NS
from sawtooth.ingest.quantities.throttling import ReasonKind


def throttled_spans(context: RuleContext, *kinds: ReasonKind) -> tuple[list[ThrottleBand], float]:
    """Return the bands with clocks reduced for ``kinds`` of reasons, and their share of the sampled time."""
    telemetry = context.telemetry
    if telemetry is None:
        return [], 0.0
    bands = [band for band in telemetry.throttling if band.kind in kinds]
    reduced_ns = sum(band.end_ns - band.start_ns for band in bands)
    return bands, min(reduced_ns / max(telemetry.last_ns - telemetry.first_ns, 1), 1.0)


def band_evidence(bands: list[ThrottleBand]) -> list[Row]:
    """Return the first EVIDENCE_ROWS bands as evidence rows."""
    return [{"reason": band.reason, "start_ns": band.start_ns, "end_ns": band.end_ns} for band in bands[:EVIDENCE_ROWS]]


@once
def memory_use(context: RuleContext) -> tuple[float, float] | None:
    """Return the peak memory in use and the GPU's memory, bytes. None if not known.

    The peak comes from telemetry, else from the allocator's events.
    """
    telemetry = context.telemetry
    if telemetry is not None and telemetry.memory_peak_bytes and telemetry.memory_total_bytes:
        return float(telemetry.memory_peak_bytes), float(telemetry.memory_total_bytes)
    rows = context.recording.rows(
        "SELECT max(total_reserved_bytes) FROM allocations WHERE device_type <> 0 AND device = ?", [context.rank.device]
    )
    total = context.recording.rows("SELECT max(memory_bytes) FROM devices WHERE device = ?", [context.rank.device])
    return (float(rows[0][0]), float(total[0][0])) if rows[0][0] and total[0][0] else None


def idle_by_telemetry_ms(context: RuleContext) -> float | None:
    """Return the ms per step in which no kernel runs, by the steady part of the telemetry.

    None without telemetry, or if the kernels are too short for accurate utilization. None for a job of several GPUs too, because
    a GPU that waits for others in a collective counts as busy.
    """
    busy_share, step_ms = context.rank.metrics["nvml_gpu_util_mean"].value, context.step_ms
    kernels = context.rank.facts.kernels_in_counted_steps
    if context.run.gpus > 1 or busy_share is None or not step_ms or not kernels:
        return None
    kernels_per_step = kernels / max(len(context.rank.counted), 1)
    is_accurate = busy_share * step_ms * 1e6 >= SHORT_KERNEL_NS * kernels_per_step
    return (1 - busy_share) * step_ms if is_accurate else None
