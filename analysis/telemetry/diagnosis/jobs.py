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
from sawtooth.analysis.telemetry.diagnosis.device_samples import AT_WORK_PCT, F64, I64, LEAST_NS, LEAST_SAMPLES, DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.idle import IDLE_PCT
from sawtooth.analysis.telemetry.diagnosis.observation import Observation, duration, lowered, named
from sawtooth.analysis.telemetry.signal.steady import weights_ns
from sawtooth.analysis.units import significant

CONTEXT_BYTES = 256 << 20  # a process with a CUDA context uses more than this
WORKING_TIMES = 2.0  # ratio: with a working process, a GPU uses at least so many times the memory that it uses without one
LEAST_GONE = 2  # samples: one alone may be a wrong reading
SAME_TIME = 0.8  # of the longer one: the spans of a job on several GPUs overlap by more
APART = 0.2  # of the shorter one: spans on different GPUs that overlap by less are of different jobs
MOST_DIAGNOSED, MOST_LISTED = 4, 6  # jobs: a report of more would be too long to read
LEAST_IDLE_S = 60.0  # before the first and after the last job: less is the start and end of the recording
LEAST_WORK_S = 2.0  # outside jobs: shorter work is a start or an end
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

    Without a pause between jobs in the samples, it is one job.
    """
    if len(times) < LEAST_SAMPLES:
        return []
    weights = weights_ns(times)
    present = where_true(~_gone(busy, memory, processes))
    joined: list[tuple[int, int]] = []
    for a, b in zip(present.starts.tolist(), (present.ends - 1).tolist(), strict=True):
        if joined and a - joined[-1][1] - 1 < LEAST_GONE:
            joined[-1] = (joined[-1][0], b)
        else:
            joined.append((a, b))
    works = np.nan_to_num(busy) >= AT_WORK_PCT
    return [
        (int(times[a]), int(times[b]))
        for a, b in joined
        if int(works[a : b + 1].sum()) >= LEAST_SAMPLES // 2 and int(weights[a : b + 1][works[a : b + 1]].sum()) >= LEAST_NS
    ]


def _gone(busy: F64, memory: F64 | None, processes: F64 | None) -> NDArray[np.bool_]:
    """Return the samples in which no process has the GPU."""
    idle = busy < IDLE_PCT
    if processes is not None and np.nanmax(processes, initial=0.0) > 0:
        gone: NDArray[np.bool_] = idle & (processes == 0)
        return gone
    if memory is None or not (idle & np.isfinite(memory)).any():
        return np.zeros(len(busy), bool)
    works = (np.nan_to_num(busy) >= AT_WORK_PCT) & np.isfinite(memory)
    least = float(np.nanmin(memory[idle]))
    usual = float(np.median(memory[works])) if works.any() else 0.0
    if usual < max(WORKING_TIMES * least, least + 2 * CONTEXT_BYTES):
        return np.zeros(len(busy), bool)
    return np.asarray(idle & (memory <= least + CONTEXT_BYTES))


def jobs_of(gpus: Sequence[DeviceSamples]) -> tuple[SampledJob, ...]:
    """Return the jobs of a host in order of time; empty if there was only one.

    There were several if a GPU had more than one, or if two GPUs worked at different times.
    """
    spans = [
        (gpu.device, span)
        for gpu in gpus
        for span in job_spans(gpu.times, gpu.busy, gpu.values.get("mem_used_bytes"), gpu.values.get("process_count"))
    ]
    at_once = all(not _apart(one, other) for (_, one), (_, other) in itertools.combinations(spans, 2))
    if len(spans) == len({device for device, _ in spans}) and at_once:
        return ()
    jobs: list[SampledJob] = []
    while spans:
        first = spans[0][1]
        together = [(device, span) for device, span in spans if _same(span, first)]
        spans = [one for one in spans if one not in together]
        devices = tuple(sorted({device for device, _ in together}))
        jobs.append(SampledJob(devices, min(span[0] for _, span in together), max(span[1] for _, span in together)))
    return tuple(sorted(jobs, key=lambda job: (job.start_ns, job.devices)))


def _same(a: Span, b: Span) -> bool:
    return min(a[1], b[1]) - max(a[0], b[0]) > SAME_TIME * max(a[1] - a[0], b[1] - b[0])


def _apart(a: Span, b: Span) -> bool:
    return min(a[1], b[1]) - max(a[0], b[0]) < APART * min(a[1] - a[0], b[1] - b[0])


def longest(jobs: Sequence[SampledJob]) -> list[int]:
    """Return the places of the longest jobs, as many as are diagnosed, in order of time."""
    order = sorted(range(len(jobs)), key=lambda i: -jobs[i].gpu_seconds)
    return sorted(order[:MOST_DIAGNOSED])


def between_jobs(gpus: Sequence[DeviceSamples], jobs: Sequence[SampledJob]) -> Observation:
    """Describe the jobs of a log: when each ran, and how long their GPUs were idle between them."""
    used = [gpu for gpu in gpus if sum(gpu.device in job.devices for job in jobs) > 1]
    if not used:
        return _on_different_gpus(gpus, jobs)
    gaps = [_gaps(gpu, sorted((job.start_ns, job.end_ns) for job in jobs if gpu.device in job.devices)) for gpu in used]
    start, end = min(int(gpu.times[0]) for gpu in gpus), max(int(gpu.times[-1]) for gpu in gpus)
    idle, whole = float(np.mean(gaps)), float(np.mean([gpu.weights.sum() for gpu in used])) / 1e9
    outside = (jobs[0].start_ns - start + end - max(job.end_ns for job in jobs)) / 1e9
    who = lowered(named([gpu.device for gpu in used], len(gpus)))
    before = (
        f" Before the first and after the last job are {duration(outside)} without a job." if outside >= LEAST_IDLE_S else ""
    )
    work = max(gpu.seconds(gpu.at_work & ~_in_a_job(gpu, jobs)) for gpu in used)
    before += (
        f" Outside these jobs {who} worked for {duration(work)}, too briefly for a diagnosis." if work >= LEAST_WORK_S else ""
    )
    seen = f"Work stops and memory in use falls to the level without a process. {_listed(gpus, jobs)}{before} {_diagnosed(jobs)} Averages are of the longest job of each GPU."
    cost = len(used) * idle / 3600
    return Observation(
        kind="several-jobs",
        devices=tuple(gpu.device for gpu in used),
        severity="warning" if idle >= 0.1 * whole else "info",
        confidence="high",
        measure="seconds",
        size=idle,
        share=min(idle / whole, 1.0),
        start_ns=jobs[0].start_ns,
        end_ns=max(job.end_ns for job in jobs),
        title=f"{len(jobs)} jobs in this log; {who} {'is' if len(used) == 1 else 'are'} idle {duration(idle)} between them",
        seen=seen,
        action=("Queue", "the next job before the current one ends", f": the idle time costs {significant(cost, 2)} GPU-hours."),
        record_next="the scheduler's log of starts and ends, and step marks of each training (sawtooth run)",
        details={"jobs": len(jobs), "gpu_hours": cost},
    )  # fmt: skip


def _on_different_gpus(gpus: Sequence[DeviceSamples], jobs: Sequence[SampledJob]) -> Observation:
    """Describe jobs of which each has GPUs of its own, at different times."""
    used = {gpu.device: gpu for gpu in gpus if any(gpu.device in job.devices for job in jobs)}
    sampled = sum(float(gpu.weights.sum()) for gpu in used.values()) / 1e9
    working = sum(used[device].seconds(_during(used[device], job)) for job in jobs for device in job.devices)
    idle = max(sampled - working, 0.0)
    return Observation(
        kind="several-jobs",
        devices=tuple(used),
        severity="info",
        confidence="high",
        measure="seconds",
        size=idle / len(used),
        share=min(idle / sampled, 1.0),
        start_ns=jobs[0].start_ns,
        end_ns=max(job.end_ns for job in jobs),
        title=f"{len(jobs)} jobs in this log, on different GPUs and at different times",
        seen=f"{_listed(gpus, jobs)} {_diagnosed(jobs)} Averages are of the job of each GPU.",
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


def _listed(gpus: Sequence[DeviceSamples], jobs: Sequence[SampledJob]) -> str:
    listed = "; ".join(f"job {i + 1} {placed_in_log(job, gpus)}" for i, job in enumerate(jobs[:MOST_LISTED]))
    more = f"; and {len(jobs) - MOST_LISTED} more" if len(jobs) > MOST_LISTED else ""
    return f"After the log's start: {listed}{more}."


def _diagnosed(jobs: Sequence[SampledJob]) -> str:
    if len(jobs) > MOST_DIAGNOSED:
        return f"Only the {MOST_DIAGNOSED} longest are diagnosed, each on its own."
    return "Each is diagnosed on its own."


def placed_in_log(job: SampledJob, gpus: Sequence[DeviceSamples]) -> str:
    """Return when a job ran after the log's start, and on which GPUs if not on all."""
    start = min(int(gpu.times[0]) for gpu in gpus)
    where = "" if len(job.devices) == len(gpus) else f" on {lowered(named(job.devices, len(gpus)))}"
    return f"from {duration((job.start_ns - start) / 1e9)} to {duration((job.end_ns - start) / 1e9)}{where}"


def _gaps(gpu: DeviceSamples, spans: Sequence[Span]) -> float:
    """Return the sampled time between consecutive spans in seconds; holes do not count."""
    between = np.zeros(len(gpu.times), bool)
    for before, after in itertools.pairwise(spans):
        between |= (gpu.times > before[1]) & (gpu.times <= after[0])
    return gpu.seconds(between & ~gpu.at_work)
