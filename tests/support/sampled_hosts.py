"""Generate the telemetry of a host with a healthy training and planted problems.

Each problem has a kind, a size, GPUs and a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.telemetry.diagnosis.device_samples import DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.host_series import HostSeries

F64 = NDArray[np.float64]
START = 1_790_496_000 * 10**9
GIB = float(1 << 30)


@dataclass(frozen=True)
class Trouble:
    """One planted problem: its kind, its GPUs, its size in the kind's unit, and its first and last second."""

    kind: str
    gpus: tuple[int, ...]
    size: float
    start_s: float = 0.0
    end_s: float = 1e9


def host(
    seed: int, gpus: int = 8, seconds: float = 3600.0, every: float = 1.0, troubles: tuple[Trouble, ...] = ()
) -> list[DeviceSamples]:
    """Return the samples of ``gpus`` GPUs that train for ``seconds``, one sample per ``every`` seconds.

    A healthy host has a level of utilization with noise and slow drift, random short dips, a start-up of some seconds, and clocks that
    vary at the power limit.
    """
    random = np.random.default_rng(seed)
    count = int(seconds / every)
    at = np.arange(count) * every + every
    level, noise = random.uniform(70, 99), random.uniform(0.5, 6)
    shared = _slow(random, count, random.uniform(0, 1.5))
    boost = random.choice([1410.0, 1755.0, 1980.0])
    capped = random.random() < 0.3
    starts_after = random.uniform(0, 45)
    made = []
    for device in range(gpus):
        util = level + random.normal(0, 0.8) + shared + random.normal(0, noise, count)
        util[random.random(count) < 0.003] *= random.uniform(0.2, 0.9)
        clock = np.full(count, boost) + random.normal(0, 3, count)
        mask = np.zeros(count)
        if capped:
            clock *= 1 - 0.08 * random.random(count)
            mask = np.where(random.random(count) < 0.7, 4.0, 0.0)
        values = {
            "util_pct": util,
            "clock_sm_mhz": clock,
            "clock_event_mask": mask,
            "temp_c": 62 + random.normal(0, 2) + random.normal(0, 0.6, count),
            "mem_used_bytes": np.full(count, round(random.uniform(20, 70)) * GIB)
            + random.normal(0, 2e7, count) * (random.random() < 0.5),
            "mem_total_bytes": np.full(count, 80 * GIB),
            "power_w": 450 + random.normal(0, 20, count),
            "power_limit_w": np.full(count, 700.0),
            "sm_active_pct": np.clip(util - random.uniform(5, 20), 0, 100),
            "dram_active_pct": 35 + random.normal(0, 3, count),
            "tensor_active_pct": 30 + random.normal(0, 3, count),
            "pcie_width": np.full(count, 16.0),
            "pcie_max_width": np.full(count, 16.0),
            "pcie_gen": np.full(count, 5.0),
            "pcie_max_gen": np.full(count, 5.0),
            "ecc_uncorrected_count": np.zeros(count),
            "ecc_corrected_count": np.zeros(count),
            "xid_last": np.zeros(count),
            "process_count": np.ones(count),
        }
        for trouble in troubles:
            if device in trouble.gpus:
                _plant(trouble, values, at, boost, seed)
        util = values["util_pct"] = np.clip(np.where(at < starts_after, 0, values["util_pct"]), 0, 100)
        values["clock_event_mask"] = np.where(util < 1, 1.0, values["clock_event_mask"])
        values["sm_active_pct"] = np.minimum(values["sm_active_pct"], util)
        values["pcie_gen"] = np.where(util < 1, 1.0, values["pcie_gen"])
        made.append(DeviceSamples(device, "NVIDIA H100 80GB HBM3", START + (at * 1e9).astype(np.int64), values))
    return made


def host_series(seed: int, seconds: float = 3600.0, troubles: tuple[Trouble, ...] = ()) -> HostSeries:
    """Return the samples of the host itself, one per second.

    In 1 % of the seconds, pages are read back from swap.
    """
    random = np.random.default_rng(seed + 77)
    count = int(seconds)
    at = np.arange(count) + 1.0
    swapped = np.where(random.random(count) < 0.01, random.uniform(4e3, 3e6, count), 0.0)
    waits = random.uniform(0, 2, count)
    for trouble in troubles:
        if trouble.kind == "host-memory":
            during = (at >= trouble.start_s) & (at <= trouble.end_s)
            swapped = np.where(during, trouble.size * 1e6 * random.uniform(0.7, 1.3, count), swapped)
            waits = np.where(during, random.uniform(20, 60, count), waits)
    values = {
        "disk_write_bps": random.uniform(0, 2e6, count),
        "disk_read_bps": random.uniform(0, 2e6, count),
        "workers_cpu_pct": random.uniform(20, 40, count),
        "swap_in_bps": swapped,
        "memory_pressure_pct": waits,
    }
    return HostSeries(START + (at * 1e9).astype(np.int64), values)


def _slow(random: np.random.Generator, count: int, size: float) -> F64:
    """Return slow noise: a mean of 200 samples of white noise."""
    white = random.normal(0, size * 14, count + 200)
    return np.convolve(white, np.full(200, 1 / 200), mode="valid")[:count]


def _plant(trouble: Trouble, values: dict[str, F64], at: F64, boost: float, seed: int) -> None:
    during = (at >= trouble.start_s) & (at <= trouble.end_s)
    util, size = values["util_pct"], trouble.size
    end = min(trouble.end_s, float(at[-1]))
    since = np.clip((at - trouble.start_s) / max(end - trouble.start_s, 1), 0, 1)
    if trouble.kind in ("thermal-throttling", "hardware-throttling"):
        heat = trouble.kind == "thermal-throttling"
        values["clock_sm_mhz"] = np.where(during, boost * size, values["clock_sm_mhz"])
        values["clock_event_mask"] = np.where(during, 0x40 if heat else 0x80, values["clock_event_mask"])
        values["temp_c"] = np.where(during & heat, 88.0, values["temp_c"])
    elif trouble.kind == "power-throttling":
        values["clock_sm_mhz"] = np.where(during, boost * size, values["clock_sm_mhz"])
        values["clock_event_mask"] = np.where(during, 4, 0)
    elif trouble.kind == "low-clock":
        values["clock_sm_mhz"] = values["clock_sm_mhz"] * size
    elif trouble.kind == "gpu-unlike-peers":
        values["util_pct"] = util + size
    elif trouble.kind == "utilization-trend":
        values["util_pct"] = util + size * since
    elif trouble.kind == "memory-growth":
        values["mem_used_bytes"] = values["mem_used_bytes"] + size * since
    elif trouble.kind == "utilization-sawtooth":
        values["util_pct"] = np.where(during & (at % size < 0.3 * size), 2.0, util)
    elif trouble.kind in ("irregular-evaluation", "irregular-dips"):
        for start, end in _evaluations(seed, trouble, float(at[-1])):
            values["util_pct"] = util = np.where((at >= start) & (at < end), 0.4 * util, util)
    elif trouble.kind == "several-jobs":
        _jobs(seed, trouble, values, at)
    elif trouble.kind == "host-memory":
        values["util_pct"] = np.where(during, 0.8 * util, util)
    elif trouble.kind == "idle-stretch":
        values["util_pct"] = np.where((at >= trouble.start_s) & (at < trouble.start_s + size), 0.0, util)
    elif trouble.kind == "low-activity":
        values["util_pct"] = np.clip(util, 97, 100)
        values["sm_active_pct"] = np.full(len(at), size)
    elif trouble.kind == "memory-bound":
        values["util_pct"] = np.clip(util, 97, 100)
        values["dram_active_pct"] = np.full(len(at), size)
    elif trouble.kind == "narrow-pcie-link":
        values["pcie_width"] = np.full(len(at), size)
    elif trouble.kind == "memory-errors":
        values["ecc_uncorrected_count"] = np.where(during, size, 0.0)
    elif trouble.kind == "xid-error":
        values["xid_last"] = np.where(during, size, 0.0)
    elif trouble.kind == "several-processes":
        values["process_count"] = np.where(during, size, 1.0)
    else:
        raise ValueError(trouble.kind)


def _evaluations(seed: int, trouble: Trouble, end: float) -> list[tuple[float, float]]:
    """Return start and end of evaluations, which take 10 to 30 % of their period.

    Their length varies, and for ``irregular-dips`` also the time between them. The trouble's size is the mean
    period in seconds. For irregular dips, it is their share of the time in percent.
    """
    random = np.random.default_rng(seed + 5)
    made, time = [], 0.0
    if trouble.kind == "irregular-evaluation":
        while time < end:
            work = 0.8 * trouble.size * random.uniform(0.95, 1.05)
            length = 0.2 * trouble.size * random.uniform(0.4, 1.6)
            made.append((time + work, time + work + length))
            time += work + length
        return made
    lengths = random.uniform(15, 60, 12)
    lengths *= trouble.size / 100 * end / lengths.sum()
    pauses = random.exponential(1, 13) + 0.1
    pauses *= (end - lengths.sum()) / pauses.sum()
    for pause, length in zip(pauses, lengths, strict=False):
        made.append((time + pause, time + pause + length))
        time += pause + length
    return made


def _jobs(seed: int, trouble: Trouble, values: dict[str, F64], at: F64) -> None:
    """Divide the hour into two to six different jobs.

    The trouble's size is the idle time between them, in s.
    """
    random = np.random.default_rng(seed + 9)
    count = int(random.integers(2, 7))
    lengths, gaps = random.uniform(1, 4, count), random.uniform(1, 3, count - 1)
    lengths *= (float(at[-1]) - trouble.size) / lengths.sum()
    gaps *= trouble.size / gaps.sum()
    end = 0.0
    for number, length in enumerate(lengths.tolist()):
        start, end = end, end + length
        inside = (at >= start) & (at < end)
        values["util_pct"] = np.where(inside, values["util_pct"] - random.uniform(0, 40), values["util_pct"])
        values["mem_used_bytes"] = np.where(inside, random.uniform(5, 70) * GIB, values["mem_used_bytes"])
        if number < count - 1:
            between = (at >= end) & (at < end + gaps[number])
            end += float(gaps[number])
            values["util_pct"] = np.where(between, 0.0, values["util_pct"])
            values["mem_used_bytes"] = np.where(between, 0.5 * GIB, values["mem_used_bytes"])
            values["process_count"] = np.where(between, 0, values["process_count"])
    if seed % 2:  # Many logs do not count the processes.
        values["process_count"] = np.full(len(at), np.nan)
