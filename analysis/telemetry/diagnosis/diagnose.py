"""All observations of a host's GPUs from their samples, the most severe first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.telemetry.clock import AS_RECORDED, SampleClock
from sawtooth.analysis.telemetry.diagnosis.device_samples import DeviceSamples, load
from sawtooth.analysis.telemetry.diagnosis.dips import utilization_dips
from sawtooth.analysis.telemetry.diagnosis.efficiency import efficiency
from sawtooth.analysis.telemetry.diagnosis.host_memory import host_memory
from sawtooth.analysis.telemetry.diagnosis.host_series import HostSeries, load_host
from sawtooth.analysis.telemetry.diagnosis.idle import idle_stretches
from sawtooth.analysis.telemetry.diagnosis.jobs import SampledJob, between_jobs, jobs_of, longest_jobs, offset_in_log
from sawtooth.analysis.telemetry.diagnosis.links_and_errors import links_and_errors
from sawtooth.analysis.telemetry.diagnosis.not_observable import NotObservable, not_observable, with_tools
from sawtooth.analysis.telemetry.diagnosis.observation import Observation, duration, mid_sentence
from sawtooth.analysis.telemetry.diagnosis.peers import unlike_peers
from sawtooth.analysis.telemetry.diagnosis.throttling import throttled_gpus
from sawtooth.analysis.telemetry.diagnosis.trends import trends
from sawtooth.analysis.units import percent

SEVERITIES = ("critical", "warning", "info")
# Order of observations of equal severity: hardware, then the job, then background information.
ORDER = (
    "gpu-lost", "xid-error", "memory-errors", "thermal-throttling", "hardware-throttling", "low-clock", "gpu-unlike-peers", "host-memory",
    "utilization-trend", "utilization-sawtooth", "irregular-dips", "several-jobs", "idle-stretch", "memory-growth", "low-activity", "narrow-pcie-link", "several-processes", "memory-bound", "power-throttling",
)  # fmt: skip
MAX_OF_ONE_KIND = 3  # If there are more of one kind, one observation names the worst GPU and counts the others.
MIN_UNSAMPLED_SHARE = 0.02  # A smaller share of the time without samples is not mentioned.


def diagnose_recording(
    recording: Recording, clock: SampleClock = AS_RECORDED
) -> tuple[tuple[Observation, ...], tuple[NotObservable, ...]]:
    """Return what the samples of a telemetry recording show, and what they cannot show."""
    gpus = load(recording, clock)
    return diagnose(gpus, load_host(recording, clock)), not_observable(gpus)


def diagnose(gpus: Sequence[DeviceSamples], host: HostSeries | None = None) -> tuple[Observation, ...]:
    """Return what the samples of one host's GPUs show, the most severe first."""
    gpus = [gpu for gpu in gpus if gpu.enough]
    jobs = jobs_of(gpus)
    observations = [
        *with_sampling_sentence(links_and_errors(gpus), gpus),
        *with_sampling_sentence(host_memory(gpus, host), gpus),
    ]
    if not jobs:
        observations += with_sampling_sentence(_job_observations(gpus, host), gpus)
    else:
        observations += [*with_sampling_sentence([between_jobs(gpus, jobs)], gpus), *_observations_by_job(gpus, jobs, host)]
        unused = [gpu for gpu in gpus if not any(gpu.device in job.devices for job in jobs)]
        observations += with_sampling_sentence(idle_stretches(unused), gpus)
    return tuple(sorted(observations, key=_severity_order))


def _job_observations(gpus: Sequence[DeviceSamples], host: HostSeries | None) -> Iterator[Observation]:
    """Yield what the samples of one job's GPUs show of its work."""
    yield from throttled_gpus(gpus)
    yield from unlike_peers(gpus)
    yield from trends(gpus)
    yield from utilization_dips(gpus, host)
    yield from idle_stretches(gpus)
    yield from efficiency(gpus)


def _observations_by_job(
    gpus: Sequence[DeviceSamples], jobs: Sequence[SampledJob], host: HostSeries | None
) -> Iterator[Observation]:
    """Yield what the samples show of each of the longest jobs, with its number in the title."""
    for i in longest_jobs(jobs):
        job = jobs[i]
        job_gpus = [gpu.between(job.start_ns, job.end_ns) for gpu in gpus if gpu.device in job.devices]
        job_gpus = [gpu for gpu in job_gpus if gpu.enough]
        job_host = host.between(job.start_ns, job.end_ns) if host is not None else None
        for observation in with_sampling_sentence(_job_observations(job_gpus, job_host), job_gpus):
            title = f"Job {i + 1} of {len(jobs)}: {mid_sentence(observation.title)}"
            evidence = f"{observation.evidence} Job {i + 1} runs {offset_in_log(job, gpus)} after the log's start."
            yield replace(observation, title=title, evidence=evidence, details=observation.details | {"job": i + 1})


def with_sampling_sentence(observations: Iterable[Observation], gpus: Sequence[DeviceSamples]) -> Iterator[Observation]:
    """Yield the observations with a sentence on the samples behind them; many of one kind become one."""
    with_sentences = [
        with_tools(
            replace(observation, sampling=_sampling_sentence([gpu for gpu in gpus if gpu.device in observation.devices])), gpus
        )
        for observation in observations
    ]
    yield from _merged_by_kind(sorted(with_sentences, key=_severity_order))


def _merged_by_kind(observations: Sequence[Observation]) -> Iterator[Observation]:
    """Yield the observations; many of one kind become one, which names the worst."""
    for kind in dict.fromkeys(observation.kind for observation in observations):
        same_kind = [observation for observation in observations if observation.kind == kind]
        devices = tuple(sorted({device for observation in same_kind for device in observation.devices}))
        # Several observations of one GPU are not merged, because the merged sentence counts GPUs.
        if len(same_kind) <= MAX_OF_ONE_KIND or len(devices) < len(same_kind):
            yield from same_kind
        else:
            evidence = f"{same_kind[0].evidence} It is the worst of {len(devices)} GPUs with this."
            yield replace(
                same_kind[0],
                devices=devices,
                title=f"{same_kind[0].title}; {len(devices) - 1} more GPUs have the same problem",
                evidence=evidence,
            )


def _sampling_sentence(gpus: Sequence[DeviceSamples]) -> str:
    """Return on how many samples an observation is based, and which part of the time has none."""
    count = round(float(np.mean([len(gpu.times) for gpu in gpus])))
    length, period = max(gpu.times[-1] - gpu.times[0] for gpu in gpus) / 1e9, float(np.median([gpu.period_s for gpu in gpus]))
    per_gpu = " of each GPU" if len(gpus) > 1 else ""
    sentence = f"Based on {count:,} samples{per_gpu} over {duration(length)}, one every {duration(period)}."
    unsampled = 1 - float(np.mean([gpu.coverage for gpu in gpus]))
    return sentence + (
        f" {percent(unsampled)} of that time has no samples and counts as unknown." if unsampled >= MIN_UNSAMPLED_SHARE else ""
    )


def _severity_order(observation: Observation) -> tuple[int, int, float]:
    return SEVERITIES.index(observation.severity), ORDER.index(observation.kind), -observation.time_share
