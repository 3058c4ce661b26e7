"""All observations of a host's GPUs from their samples, the most severe first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.telemetry.clock import AS_RECORDED, SampleClock
from sawtooth.analysis.telemetry.diagnosis.device_samples import DeviceSamples, load
from sawtooth.analysis.telemetry.diagnosis.dips import sawtooth
from sawtooth.analysis.telemetry.diagnosis.efficiency import efficiency
from sawtooth.analysis.telemetry.diagnosis.host_memory import host_memory
from sawtooth.analysis.telemetry.diagnosis.host_series import HostSeries, load_host
from sawtooth.analysis.telemetry.diagnosis.idle import idle_stretches
from sawtooth.analysis.telemetry.diagnosis.jobs import SampledJob, between_jobs, jobs_of, longest, placed_in_log
from sawtooth.analysis.telemetry.diagnosis.links_and_errors import links_and_errors
from sawtooth.analysis.telemetry.diagnosis.observation import Observation, duration, lowered
from sawtooth.analysis.telemetry.diagnosis.peers import unlike_peers
from sawtooth.analysis.telemetry.diagnosis.throttling import throttling
from sawtooth.analysis.telemetry.diagnosis.trends import trends
from sawtooth.analysis.telemetry.diagnosis.unseen import Unseen, unseen, with_tools

SEVERITIES = ("critical", "warning", "info")
# Of equal severity, what a person acts on first: the hardware, then the job, then what is merely worth knowing.
ORDER = (
    "gpu-lost", "xid-error", "memory-errors", "thermal-throttling", "hardware-throttling", "low-clock", "gpu-unlike-peers", "host-memory",
    "utilization-trend", "utilization-sawtooth", "irregular-dips", "several-jobs", "idle-stretch", "memory-growth", "low-activity", "narrow-pcie-link", "several-processes", "memory-bound", "power-throttling",
)  # fmt: skip


MOST_ALONE = 3  # observations of one kind: with more, one names the worst GPU and counts the others
LEAST_UNSAMPLED_SHARE = 0.02  # share of the time without samples that is worth saying


def of_recording(recording: Recording, clock: SampleClock = AS_RECORDED) -> tuple[tuple[Observation, ...], tuple[Unseen, ...]]:
    """Return what the samples of a telemetry recording show, and what they cannot show."""
    gpus = load(recording, clock)
    return diagnose(gpus, load_host(recording, clock)), unseen(gpus)


def diagnose(gpus: Sequence[DeviceSamples], host: HostSeries | None = None) -> tuple[Observation, ...]:
    """Return what the samples of one host's GPUs show, the most severe first."""
    gpus = [gpu for gpu in gpus if gpu.enough]
    jobs = jobs_of(gpus)
    observed = [*with_basis(links_and_errors(gpus), gpus), *with_basis(host_memory(gpus, host), gpus)]
    if not jobs:
        observed += with_basis(_of_job(gpus, host), gpus)
    else:
        observed += [*with_basis([between_jobs(gpus, jobs)], gpus), *_of_jobs(gpus, jobs, host)]
        unused = [gpu for gpu in gpus if not any(gpu.device in job.devices for job in jobs)]
        observed += with_basis(idle_stretches(unused), gpus)
    return tuple(sorted(observed, key=_place))


def _of_job(gpus: Sequence[DeviceSamples], host: HostSeries | None) -> Iterator[Observation]:
    """Yield what the samples of one job's GPUs show of its work."""
    yield from throttling(gpus)
    yield from unlike_peers(gpus)
    yield from trends(gpus)
    yield from sawtooth(gpus, host)
    yield from idle_stretches(gpus)
    yield from efficiency(gpus)


def _of_jobs(gpus: Sequence[DeviceSamples], jobs: Sequence[SampledJob], host: HostSeries | None) -> Iterator[Observation]:
    """Yield what the samples show of each of the longest jobs, with its number in the title."""
    for i in longest(jobs):
        job = jobs[i]
        own = [gpu.between(job.start_ns, job.end_ns) for gpu in gpus if gpu.device in job.devices]
        own = [gpu for gpu in own if gpu.enough]
        beside = host.between(job.start_ns, job.end_ns) if host is not None else None
        for one in with_basis(_of_job(own, beside), own):
            title = f"Job {i + 1} of {len(jobs)}: {lowered(one.title)}"
            seen = f"{one.seen} Job {i + 1} runs {placed_in_log(job, gpus)} after the log's start."
            yield replace(one, title=title, seen=seen, details=one.details | {"job": i + 1})


def with_basis(observed: Iterable[Observation], gpus: Sequence[DeviceSamples]) -> Iterator[Observation]:
    """Yield the observations with a sentence on the samples behind them; many of one kind become one."""
    known = [
        with_tools(replace(one, basis=_basis([gpu for gpu in gpus if gpu.device in one.devices])), gpus) for one in observed
    ]
    yield from _few_of_a_kind(sorted(known, key=_place))


def _few_of_a_kind(observed: Sequence[Observation]) -> Iterator[Observation]:
    """Yield the observations; many of one kind become one, which names the worst."""
    for kind in dict.fromkeys(one.kind for one in observed):
        alike = [one for one in observed if one.kind == kind]
        devices = tuple(sorted({device for one in alike for device in one.devices}))
        if len(alike) <= MOST_ALONE or len(devices) < len(alike):
            yield from alike
        else:
            seen = f"{alike[0].seen} It is the worst of {len(devices)} GPUs with this."
            yield replace(alike[0], devices=devices, title=f"{alike[0].title}; {len(devices) - 1} more GPUs alike", seen=seen)


def _basis(gpus: Sequence[DeviceSamples]) -> str:
    """Return on how many samples an observation is based, and which part of the time has none."""
    count = round(float(np.mean([len(gpu.times) for gpu in gpus])))
    length, period = max(gpu.times[-1] - gpu.times[0] for gpu in gpus) / 1e9, float(np.median([gpu.period_s for gpu in gpus]))
    each = " of each GPU" if len(gpus) > 1 else ""
    sentence = f"Based on {count:,} samples{each} over {duration(length)}, one every {duration(period)}."
    without = 1 - float(np.mean([gpu.coverage for gpu in gpus]))
    return sentence + (
        f" {without:.0%} of that time has no samples and counts as unknown." if without >= LEAST_UNSAMPLED_SHARE else ""
    )


def _place(one: Observation) -> tuple[int, int, float]:
    return SEVERITIES.index(one.severity), ORDER.index(one.kind), -one.share
