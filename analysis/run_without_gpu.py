"""Results of runs whose traces have no GPU work: the host's work, or why the GPU's work is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sawtooth.analysis.derive.steps.lost_launches import lost_launches
from sawtooth.analysis.integrity import lost_records
from sawtooth.analysis.integrity.failed_check import FailedCheck, deciding_check
from sawtooth.analysis.metrics.reading import Reading, missing
from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence
from sawtooth.analysis.metrics.trust import Diagnostic
from sawtooth.analysis.run.host import host_work
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry import step_marks
from sawtooth.analysis.telemetry.attribution import has_marked_gpus
from sawtooth.analysis.telemetry.run_telemetry import RunTelemetry
from sawtooth.ingest.manifest import Manifest

RANGES_NOT_STORED = "not_stored_cuda_profiler_range"  # Ingest reports events of CUPTI's range profiler under this key.
NO_GPU_WORK = "No GPU work is recorded in this run. If it uses a GPU, profile with ProfilerActivity.CUDA, or `nsys profile --trace=cuda,nvtx`."
NO_TRACE = "No trace is attached. Record one with `sawtooth run`, torch.profiler or Nsight Systems."
ON_CPU = "No GPU work is recorded in this run, and the recorder saw no GPU."


def of_the_host(result: RunResult, library: Library, marks: Mapping[str, StepTimeEvidence | None]) -> RunResult:
    """Return the result with the host's work, or without a trace with the marks' step time.

    Of several traces, the one with the longest step is used.
    """
    if not marks:
        cpu_only = not result.telemetry.devices and not has_marked_gpus(result.manifest, library)
        evidence = step_marks.step_mark_evidence(result.manifest, library, None, cpu_only=cpu_only)
        if evidence is not None:
            step = Reading(evidence.ms, low=evidence.low_ms, high=evidence.high_ms, notes=evidence.notes)
            return replace(result, metrics={**result.metrics, "best_step_time_ms": step})
    works = []
    for ref in (ref for ref in result.manifest.recordings if ref.id in marks):
        step_mark_evidence = step_marks.step_mark_evidence(result.manifest, library, ref.rank, cpu_only=True)
        with library.open(ref.id) as recording:
            works.append(host_work(recording, result.manifest.facts.step_time_ms, step_mark_evidence))
    known_works = sorted((work for work in works if work is not None), key=lambda work: -(work.step.value or 0.0))
    if not known_works:
        return result
    if result.withdrawn_by is not None:
        # The host's steps in the trace do not show the GPU's steps. A step time that was measured outside the trace stays.
        timed = known_works[0].step.low is not None
        step = known_works[0].step if timed else missing(result.withdrawn_by.sentence)
        return replace(result, metrics={**result.metrics, "best_step_time_ms": step})
    return replace(result, host=known_works[0], metrics={**result.metrics, "best_step_time_ms": known_works[0].step})


def without_records(manifest: Manifest, library: Library, noted: list[Diagnostic]) -> tuple[FailedCheck, ...]:
    """Return the failed check of traces with launches but no GPU operations, or with unread events."""
    unread = next((diagnostic for diagnostic in noted if diagnostic.key == "device_not_read"), None)
    if unread is not None and (check := lost_records.check_unread(unread.count, unread.sentence)) is not None:
        return (check,)
    launches = 0
    for ref in manifest.recordings:
        if ref.kind == "trace":
            with library.open(ref.id) as recording:
                launches += len(lost_launches(recording.cursor, 0))
    ranges = any(diagnostic.key == RANGES_NOT_STORED for diagnostic in noted)
    check = lost_records.check_without_records(launches, by_ranges=ranges)
    return (check,) if check is not None else ()


def _on_cpu(manifest: Manifest, library: Library, telemetry: RunTelemetry) -> bool:
    """Return whether the training has no GPU: the sampler found none, and no step marks name one."""
    kinds = {ref.kind for ref in manifest.recordings}  # A trace is required too, because marks of a user's script name no GPU.
    return (
        "trace" in kinds
        and not kinds.isdisjoint({"marks", "telemetry"})
        and not telemetry.devices
        and not has_marked_gpus(manifest, library)
    )


def why_no_gpu_work(manifest: Manifest, library: Library, telemetry: RunTelemetry, failed: tuple[FailedCheck, ...]) -> str:
    """Return the reason why a run's traces have no GPU work."""
    if (check := deciding_check(failed)) is not None:
        return check.sentence
    if not any(ref.kind == "trace" for ref in manifest.recordings):
        return NO_TRACE
    return ON_CPU if _on_cpu(manifest, library, telemetry) else NO_GPU_WORK
