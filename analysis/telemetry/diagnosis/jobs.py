"""Several jobs in one log: when each process had the GPU, and the idle time between them.

A job ends where both memory and work stop: memory in use falls to the level of a GPU without a process. A loop that only waits
keeps its memory. Without samples of memory or of processes, a log is one job.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.intervals import where_true
from sawtooth.analysis.telemetry.diagnosis.device_samples import AT_WORK_PCT, F64, I64, MIN_NS, MIN_SAMPLES, DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.idle import IDLE_PCT
from sawtooth.analysis.telemetry.diagnosis.observation import Observation, duration, gpus_in_words, mid_sentence
from sawtooth.analysis.telemetry.signal.steady import weights_ns
from sawtooth.analysis.units import significant

CONTEXT_BYTES = 256 << 20  # A process with a CUDA context uses more memory than this.
WORKING_MEMORY_RATIO = 2.0  # A GPU with a working process uses at least this many times the memory that it uses without one.
MIN_UNUSED_SAMPLES = 2  # A single sample without a process may be a wrong reading.
SAME_JOB_OVERLAP = 0.8  # The spans of one job on several GPUs overlap by more than this share of the longer span.
OTHER_JOB_OVERLAP = 0.2  # Spans that overlap by less than this share of the shorter span belong to different jobs.
# A report of more jobs would be too long to read.
MAX_DIAGNOSED = 4
MAX_LISTED = 6
# A shorter idle time before the first and after the last job belongs to the recording's start and end, so it is not reported.
MIN_IDLE_S = 60.0
MIN_WORK_S = 2.0  # Shorter work outside jobs belongs to the start or end of a program, so it is not reported.
Span = tuple[int, int]


class SampledJob(NamedTuple):
    """A job: its GPUs, and the time from the first to the last sample with its process."""

    devices: tuple[int, ...]
    start_ns: int
    end_ns: int

    @property
    def gpu_seconds(self) -> float:
        """The length times the number of GPUs."""
        return len(self.devices) * (self.end_ns - self.start_ns) / 1e9


def job_spans(times: I64, busy: F64, memory: F64 | None, processes: F64 | None = None) -> list[Span]:
    """Return the first and last times of one GPU's jobs.

    If the samples show no pause without a process, all work is one job.
    """
    if len(times) < MIN_SAMPLES:
        return []
    weights = weights_ns(times)
    present = where_true(~_without_process(busy, memory, processes))
    joined: list[tuple[int, int]] = []
    for a, b in zip(present.starts.tolist(), (present.ends - 1).tolist(), strict=True):
        if joined and a - joined[-1][1] - 1 < MIN_UNUSED_SAMPLES:
            joined[-1] = (joined[-1][0], b)
        else:
            joined.append((a, b))
    working = np.nan_to_num(busy) >= AT_WORK_PCT
    return [
        (int(times[a]), int(times[b]))
        for a, b in joined
        if int(working[a : b + 1].sum()) >= MIN_SAMPLES // 2 and int(weights[a : b + 1][working[a : b + 1]].sum()) >= MIN_NS
    ]


def _without_process(busy: F64, memory: F64 | None, processes: F64 | None) -> NDArray[np.bool_]:
    """Return the samples in which no process has the GPU."""
    idle = busy < IDLE_PCT
    if processes is not None and np.nanmax(processes, initial=0.0) > 0:
        unused: NDArray[np.bool_] = idle & (processes == 0)
        return unused
    if memory is None or not (idle & np.isfinite(memory)).any():
        return np.zeros(len(busy), bool)
    working = (np.nan_to_num(busy) >= AT_WORK_PCT) & np.isfinite(memory)
    lowest = float(np.nanmin(memory[idle]))
    median_memory = float(np.median(memory[working])) if working.any() else 0.0
    if median_memory < max(WORKING_MEMORY_RATIO * lowest, lowest + 2 * CONTEXT_BYTES):
        return np.zeros(len(busy), bool)
    return np.asarray(idle & (memory <= lowest + CONTEXT_BYTES))


def jobs_of(gpus: Sequence[DeviceSamples]) -> tuple[SampledJob, ...]:
    """Return the jobs of a host in order of time; empty if there was only one.

    There were several if a GPU had more than one, or if two GPUs worked at different times.
    """
    spans = [
        (gpu.device, span)
        for gpu in gpus
        for span in job_spans(gpu.times, gpu.busy, gpu.values.get("mem_used_bytes"), gpu.values.get("process_count"))
    ]
    all_same_time = all(not _different_time(a, b) for (_, a), (_, b) in itertools.combinations(spans, 2))
    if len(spans) == len({device for device, _ in spans}) and all_same_time:
        return ()
    jobs: list[SampledJob] = []
    while spans:
        first = spans[0][1]
        same_time = [(device, span) for device, span in spans if _same_time(span, first)]
        spans = [pair for pair in spans if pair not in same_time]
        devices = tuple(sorted({device for device, _ in same_time}))
        jobs.append(SampledJob(devices, min(span[0] for _, span in same_time), max(span[1] for _, span in same_time)))
    return tuple(sorted(jobs, key=lambda job: (job.start_ns, job.devices)))


def _same_time(a: Span, b: Span) -> bool:
    return min(a[1], b[1]) - max(a[0], b[0]) > SAME_JOB_OVERLAP * max(a[1] - a[0], b[1] - b[0])


def _different_time(a: Span, b: Span) -> bool:
    return min(a[1], b[1]) - max(a[0], b[0]) < OTHER_JOB_OVERLAP * min(a[1] - a[0], b[1] - b[0])


def longest_jobs(jobs: Sequence[SampledJob]) -> list[int]:
    """Return the indices of the longest jobs, as many as are diagnosed, in order of time."""
    order = sorted(range(len(jobs)), key=lambda i: -jobs[i].gpu_seconds)
    return sorted(order[:MAX_DIAGNOSED])


def between_jobs(gpus: Sequence[DeviceSamples], jobs: Sequence[SampledJob]) -> Observation:
    """Describe the jobs of a log: when each ran, and how long their GPUs were idle between them."""
    reused = [gpu for gpu in gpus if sum(gpu.device in job.devices for job in jobs) > 1]
    if not reused:
        return _on_different_gpus(gpus, jobs)
    gaps = [_gaps(gpu, sorted((job.start_ns, job.end_ns) for job in jobs if gpu.device in job.devices)) for gpu in reused]
    start, end = min(int(gpu.times[0]) for gpu in gpus), max(int(gpu.times[-1]) for gpu in gpus)
    idle, sampled = float(np.mean(gaps)), float(np.mean([gpu.weights.sum() for gpu in reused])) / 1e9
    outside = (jobs[0].start_ns - start + end - max(job.end_ns for job in jobs)) / 1e9
    gpu_names = mid_sentence(gpus_in_words([gpu.device for gpu in reused], len(gpus)))
    outside_in_words = (
        f" No job ran for {duration(outside)} before the first job and after the last one." if outside >= MIN_IDLE_S else ""
    )
    work_s = max(gpu.seconds(gpu.at_work & ~_in_a_job(gpu, jobs)) for gpu in reused)
    outside_in_words += (
        f" Outside these jobs {gpu_names} worked for {duration(work_s)}, too briefly for a diagnosis."
        if work_s >= MIN_WORK_S
        else ""
    )
    evidence = f"Between the jobs, work stops and memory use falls to that of a GPU without a process. {_list_in_words(gpus, jobs)}{outside_in_words} {_diagnosis_note(jobs)} Each GPU's averages cover its longest job."
    gpu_hours = len(reused) * idle / 3600
    return Observation(
        kind="several-jobs",
        devices=tuple(gpu.device for gpu in reused),
        severity="warning" if idle >= 0.1 * sampled else "info",
        confidence="high",
        unit="seconds",
        value=idle,
        time_share=min(idle / sampled, 1.0),
        start_ns=jobs[0].start_ns,
        end_ns=max(job.end_ns for job in jobs),
        title=f"{len(jobs)} jobs in this log; {gpu_names} {'is' if len(reused) == 1 else 'are'} idle {duration(idle)} between them",
        evidence=evidence,
        action=("Queue", "the next job before the current one ends", f": the idle time costs {significant(gpu_hours, 2)} GPU-hours."),
        record_next="the scheduler's log of starts and ends, and step marks of each training (sawtooth run)",
        details={"jobs": len(jobs), "gpu_hours": gpu_hours},
    )  # fmt: skip


def _on_different_gpus(gpus: Sequence[DeviceSamples], jobs: Sequence[SampledJob]) -> Observation:
    """Describe jobs that ran on different GPUs at different times."""
    used = {gpu.device: gpu for gpu in gpus if any(gpu.device in job.devices for job in jobs)}
    sampled = sum(float(gpu.weights.sum()) for gpu in used.values()) / 1e9
    working = sum(used[device].seconds(_during(used[device], job)) for job in jobs for device in job.devices)
    idle = max(sampled - working, 0.0)
    return Observation(
        kind="several-jobs",
        devices=tuple(used),
        severity="info",
        confidence="high",
        unit="seconds",
        value=idle / len(used),
        time_share=min(idle / sampled, 1.0),
        start_ns=jobs[0].start_ns,
        end_ns=max(job.end_ns for job in jobs),
        title=f"{len(jobs)} jobs in this log, on different GPUs and at different times",
        evidence=f"{_list_in_words(gpus, jobs)} {_diagnosis_note(jobs)} Each GPU's averages cover its job.",
        action=(
            "Use",
            "the GPUs without a job",
            f": they are idle for {significant(idle / 3600, 2)} of {significant(sampled / 3600, 2)} GPU-hours.",
        ),
        record_next="the scheduler's log of starts and ends, and step marks of each training (sawtooth run)",
        details={"jobs": len(jobs), "gpu_hours": idle / 3600},
    )


def _in_a_job(gpu: DeviceSamples, jobs: Sequence[SampledJob]) -> NDArray[np.bool_]:
    during = [_during(gpu, job) for job in jobs if gpu.device in job.devices]
    return np.any(during, axis=0) if during else np.zeros(len(gpu.times), bool)


def _during(gpu: DeviceSamples, job: SampledJob) -> NDArray[np.bool_]:
    return (gpu.times >= job.start_ns) & (gpu.times <= job.end_ns)


def _list_in_words(gpus: Sequence[DeviceSamples], jobs: Sequence[SampledJob]) -> str:
    listed = "; ".join(f"job {i + 1} {offset_in_log(job, gpus)}" for i, job in enumerate(jobs[:MAX_LISTED]))
    further = f"; and {len(jobs) - MAX_LISTED} more" if len(jobs) > MAX_LISTED else ""
    return f"After the log's start: {listed}{further}."


def _diagnosis_note(jobs: Sequence[SampledJob]) -> str:
    if len(jobs) > MAX_DIAGNOSED:
        return f"Only the {MAX_DIAGNOSED} longest are diagnosed, each on its own."
    return "Each is diagnosed on its own."


def offset_in_log(job: SampledJob, gpus: Sequence[DeviceSamples]) -> str:
    """Return when a job ran after the log's start, and on which GPUs if not on all."""
    start = min(int(gpu.times[0]) for gpu in gpus)
    gpu_names = "" if len(job.devices) == len(gpus) else f" on {mid_sentence(gpus_in_words(job.devices, len(gpus)))}"
    return f"from {duration((job.start_ns - start) / 1e9)} to {duration((job.end_ns - start) / 1e9)}{gpu_names}"


def _gaps(gpu: DeviceSamples, spans: Sequence[Span]) -> float:
    """Return the sampled idle time between consecutive spans in seconds.

    Samples with work and gaps in the telemetry do not count.
    """
    outside_jobs = np.zeros(len(gpu.times), bool)
    for previous, following in itertools.pairwise(spans):
        outside_jobs |= (gpu.times > previous[1]) & (gpu.times <= following[0])
    return gpu.seconds(outside_jobs & ~gpu.at_work)
