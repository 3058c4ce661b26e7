"""All observations of a host's GPUs from their samples, the most severe first."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import duckdb
import numpy as np

from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.telemetry.clock import AS_RECORDED, SampleClock
from sawtooth.analysis.telemetry.diagnosis.device_samples import DeviceSamples, load
from sawtooth.analysis.telemetry.diagnosis.dips import HostSeries, sawtooth
from sawtooth.analysis.telemetry.diagnosis.efficiency import efficiency
from sawtooth.analysis.telemetry.diagnosis.idle import idle_stretches
from sawtooth.analysis.telemetry.diagnosis.links_and_errors import links_and_errors
from sawtooth.analysis.telemetry.diagnosis.observation import Observation, duration
from sawtooth.analysis.telemetry.diagnosis.peers import unlike_peers
from sawtooth.analysis.telemetry.diagnosis.throttling import throttling
from sawtooth.analysis.telemetry.diagnosis.trends import trends
from sawtooth.analysis.telemetry.diagnosis.unseen import Unseen, unseen

SEVERITIES = ("critical", "warning", "info")
# Of equal severity, what a person acts on first: the hardware, then the job, then what is merely worth knowing.
ORDER = (
    "xid-error", "memory-errors", "thermal-throttling", "hardware-throttling", "low-clock", "gpu-unlike-peers", "utilization-trend",
    "utilization-sawtooth", "idle-stretch", "memory-growth", "low-activity", "narrow-pcie-link", "several-processes", "memory-bound", "power-throttling",
)  # fmt: skip


MOST_ALONE = 3  # observations of one kind: with more, one names the worst GPU and counts the others
LEAST_UNSAMPLED_SHARE = 0.02  # share of the time without samples that is worth saying


def of_recording(recording: Recording, clock: SampleClock = AS_RECORDED) -> tuple[tuple[Observation, ...], tuple[Unseen, ...]]:
    """Return what the samples of a telemetry recording show, and what they cannot show."""
    gpus = load(recording, clock)
    return diagnose(gpus, _host_series(recording, clock)), unseen(gpus)


def diagnose(gpus: Sequence[DeviceSamples], host: HostSeries | None = None) -> tuple[Observation, ...]:
    """Return what the samples of one host's GPUs show, the most severe first."""
    gpus = [gpu for gpu in gpus if gpu.enough]
    observed = [
        *throttling(gpus), *unlike_peers(gpus), *trends(gpus), *sawtooth(gpus, host), *idle_stretches(gpus), *efficiency(gpus), *links_and_errors(gpus),
    ]  # fmt: skip
    based = [replace(one, basis=_basis([gpu for gpu in gpus if gpu.device in one.devices])) for one in observed]
    return tuple(_few_of_a_kind(sorted(based, key=_place)))


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


def _host_series(recording: Recording, clock: SampleClock) -> HostSeries | None:
    columns = ("disk_write_bps", "disk_read_bps", "workers_cpu_pct")
    with contextlib.suppress(duckdb.CatalogException):  # older recordings have no table for the host
        table = recording.frame(
            f"SELECT time_ns, {recording.select_list('host_samples', columns)} FROM host_samples ORDER BY time_ns"
        )
        if len(table):
            values = {column: table[column].to_numpy(np.float64, na_value=np.nan) for column in columns}
            return HostSeries(clock.times(table["time_ns"].to_numpy(np.int64)), values)
    return None
