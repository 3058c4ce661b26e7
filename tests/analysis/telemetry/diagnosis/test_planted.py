"""Tests of planted telemetry problems: each is found with its size, and healthy hosts have none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sawtooth.analysis.telemetry.diagnosis.device_samples import F64, DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.diagnose import diagnose
from sawtooth.analysis.telemetry.diagnosis.idle import _stretches
from sawtooth.analysis.telemetry.signal.steady import weights_ns
from tests.support.sampled_hosts import GIB, START, Trouble, host, host_series

HOUR = 3600.0
SHOWN_AS = {"irregular-evaluation": "utilization-sawtooth"}
ALL = tuple(range(8))
PLANTED = [
    Trouble("thermal-throttling", (5,), 0.62, 1200, 3400),
    Trouble("thermal-throttling", (0,), 0.8, 600, 900),
    Trouble("thermal-throttling", (2, 6), 0.5, 3000, 3100),
    Trouble("hardware-throttling", (3,), 0.4, 100, 400),
    Trouble("power-throttling", ALL, 0.7, 400, 3600),
    Trouble("low-clock", (4,), 0.7),
    Trouble("gpu-unlike-peers", (1,), -35),
    Trouble("gpu-unlike-peers", (7,), -60),
    Trouble("utilization-trend", ALL, -40),
    Trouble("utilization-trend", (2,), -25),
    Trouble("utilization-trend", ALL, -13),
    Trouble("utilization-trend", ALL, -50, 1500, 1501),
    Trouble("utilization-trend", (6,), -30, 700, 701),
    Trouble("memory-growth", ALL, 6 * GIB),
    Trouble("memory-growth", (3,), 9 * GIB),
    Trouble("utilization-sawtooth", ALL, 8),
    Trouble("utilization-sawtooth", ALL, 45),
    Trouble("utilization-sawtooth", ALL, 240),
    Trouble("several-jobs", ALL, 400),
    Trouble("several-jobs", ALL, 1200),
    Trouble("several-jobs", (2,), 300),
    Trouble("irregular-evaluation", ALL, 200),
    Trouble("irregular-evaluation", ALL, 400),
    Trouble("irregular-dips", ALL, 12),
    Trouble("host-memory", ALL, 80, 1200, 2400),
    Trouble("host-memory", ALL, 6, 300, 900),
    Trouble("idle-stretch", ALL, 400, 1500),
    Trouble("idle-stretch", ALL, 300, 0),
    Trouble("idle-stretch", ALL, 500, 3100),
    Trouble("low-activity", ALL, 20),
    Trouble("memory-bound", ALL, 80),
    Trouble("narrow-pcie-link", (6,), 4),
    Trouble("memory-errors", (2,), 3, 2000),
    Trouble("xid-error", (1,), 79, 3000),
    Trouble("several-processes", (0,), 2, 1000, 2000),
]


@pytest.mark.sweep(6)
@pytest.mark.parametrize("trouble", PLANTED, ids=lambda t: f"{t.kind}-{t.size:g}-{'all' if len(t.gpus) == 8 else t.gpus[0]}")
def test_a_planted_problem_is_found_with_its_size(trouble: Trouble) -> None:
    missed = []
    for seed in range(4):
        hours = 6 if trouble.size == -13 else 1  # A slow drift.
        observed = diagnose(
            host(seed, seconds=hours * HOUR, every=2.0 if hours > 1 else 1.0, troubles=(trouble,)),
            host_series(seed, troubles=(trouble,)),
        )
        seen = [one for one in observed if one.kind == SHOWN_AS.get(trouble.kind, trouble.kind)]
        devices = {device for one in seen for device in one.devices}
        sizes = [one.value for one in seen]
        exact = bool(sizes) and all(abs(size - trouble.size) <= 0.2 * abs(trouble.size) for size in sizes)
        others = [one for one in observed if one.severity != "info" and trouble.kind == "several-jobs" and one not in seen]
        if devices != set(trouble.gpus) or not exact or others:
            missed.append((seed, devices, sizes, [one.title for one in seen]))
    assert not missed


@pytest.mark.parametrize(
    "trouble", [t for t in PLANTED if t.end_s < HOUR and t.kind.endswith("throttling")], ids=lambda t: f"{t.kind}-{t.size}"
)
def test_the_time_of_a_problem_is_reported(trouble: Trouble) -> None:
    for one in diagnose(host(1, troubles=(trouble,))):
        if one.kind == trouble.kind:
            lasts = trouble.end_s - trouble.start_s
            assert one.time_share * HOUR == pytest.approx(lasts, rel=0.2)
            assert abs((one.start_ns - START) / 1e9 - trouble.start_s) < 0.2 * lasts


def test_no_warning_for_healthy_hours() -> None:
    """At most 1 in 100 of 200 generated hours of a healthy host gives a warning."""
    alarms = []
    for seed in range(1000, 1200):
        observed = diagnose(host(seed, gpus=4 if seed % 2 else 8, every=2.0), host_series(seed))
        alarms += [(seed, one.title) for one in observed if one.severity != "info"][:1]
    assert len(alarms) <= 2, alarms


def test_a_problem_of_one_of_several_jobs_is_reported_with_its_job() -> None:
    """There are two jobs of half an hour.

    In the second, GPU 1 is hot and utilization falls by 40 points.
    """
    first, second = host(3, gpus=2, seconds=1800), host(
        4, gpus=2, seconds=1800, troubles=(Trouble("thermal-throttling", (1,), 0.5, 900, 1500), Trouble("utilization-trend", (0, 1), -40))
    )  # fmt: skip
    seen = diagnose([_after(one, other, idle_s=600) for one, other in zip(first, second, strict=True)])
    titles = [one.title for one in seen if one.severity != "info"]
    assert titles[0].startswith("Job 2 of 2: heat reduces the clock of GPU 1 by 4")
    assert titles[1].startswith("Job 2 of 2: utilization of all 2 GPUs falls from")
    assert titles[2:] == ["2 jobs in this log; all 2 GPUs are idle 10 min between them"]
    assert "Job 2 runs from 40 min to 70 min after the log's start." in seen[0].evidence


def test_gpus_of_other_models_are_not_compared() -> None:
    gpus = host(3, gpus=4, seconds=600, troubles=(Trouble("low-clock", (2, 3), 0.7),))
    named = [replace(gpu, name="A100" if gpu.device < 2 else "RTX 4090") for gpu in gpus]
    assert not [one for one in diagnose(named) if one.kind == "low-clock"]


def test_gpu_slower_than_peers_at_the_same_power_cap_is_reported() -> None:
    capped, slow = Trouble("power-throttling", (0, 1, 2, 3), 0.9), Trouble("low-clock", (2,), 0.7)
    (low,) = [one for one in diagnose(host(3, gpus=4, seconds=600, troubles=(capped, slow))) if one.kind == "low-clock"]
    assert low.devices == (2,) and low.value == pytest.approx(0.7, abs=0.02)
    assert "The driver gives the power cap as the reason" in low.evidence


def test_jobs_on_different_gpus_at_different_times() -> None:
    """GPU 0 works in the first 20 minutes of 50, GPU 1 in the last 20."""
    jobs = host(3, gpus=2, seconds=1200)
    (first, _), (_, second) = jobs, jobs
    waits = np.arange(1800)
    gpus = [_padded(first, waits, before=False), _padded(second, waits, before=True)]
    (several,) = [one for one in diagnose(gpus) if one.severity != "info" or one.kind == "several-jobs"]
    assert several.title == "2 jobs in this log, on different GPUs and at different times"
    assert "job 1 from 0 s to 20 min on GPU 0; job 2 from 30 min to 50 min on GPU 1." in several.evidence
    assert "idle for 1 of 1.7 GPU-hours" in several.action[2]


def _padded(gpu: DeviceSamples, waits: F64, *, before: bool) -> DeviceSamples:
    """Return the samples of a GPU with idle time without a process before or after its job."""
    values = {}
    for column, of_column in gpu.values.items():
        idle = np.full(len(waits), 5e8 if column == "mem_used_bytes" else 0.0)
        values[column] = np.concatenate([idle, of_column] if before else [of_column, idle])
    return DeviceSamples(gpu.device, gpu.name, START + (np.arange(len(values["util_pct"])) + 1) * 10**9, values)


def test_gpu_whose_samples_end_is_reported() -> None:
    gpus = host(3, gpus=4, seconds=900)
    gpus[1] = gpus[1].between(START, START + 400 * 10**9)
    (lost,) = [one for one in diagnose(gpus) if one.kind == "gpu-lost"]
    assert lost.title == "GPU 1 has no samples after 7 min" and lost.value == 500
    assert lost.evidence.startswith("The samples of 3 other GPUs go on for 8 min.")


def _after(one: DeviceSamples, other: DeviceSamples, idle_s: int) -> DeviceSamples:
    """Return the samples of two jobs on one GPU with idle time without a process between them."""
    idle = {
        column: np.full(idle_s, {"mem_used_bytes": 5e8, "mem_total_bytes": 80 * GIB}.get(column, 0.0)) for column in one.values
    }
    idle |= {column: np.full(idle_s, np.nan) for column in one.values if column.startswith(("pcie", "process"))}
    values = {column: np.concatenate([one.values[column], idle[column], other.values[column]]) for column in one.values}
    values["process_count"] = np.full(len(values["util_pct"]), np.nan)
    return DeviceSamples(one.device, one.name, START + (np.arange(len(values["util_pct"])) + 1) * 10**9, values)


def test_duplicate_samples_do_not_change_the_diagnosis() -> None:
    """Every second is written twice, as by two loops that append to one file."""
    trouble = Trouble("utilization-sawtooth", (0, 1), 8)
    once = host(2, gpus=2, seconds=900, troubles=(trouble,))
    twice = [
        DeviceSamples(g.device, g.name, np.repeat(g.times, 2), {c: np.repeat(v, 2) for c, v in g.values.items()}) for g in once
    ]
    assert [one.title for one in diagnose(twice)] == [one.title for one in diagnose(once)]
    assert weights_ns(np.repeat(once[0].times, 2)).sum() == weights_ns(once[0].times).sum()
    assert weights_ns(np.zeros(3, np.int64)).tolist() == [1, 1, 1]


def test_clock_jump_is_not_idle_time() -> None:
    """Idle minutes before and after a jump of nine days do not make nine idle days."""
    (gpu,) = host(2, gpus=1, seconds=900, troubles=(Trouble("idle-stretch", (0,), 100, 400),))
    jumped = DeviceSamples(0, gpu.name, np.where(np.arange(900) < 450, gpu.times, gpu.times + 9 * 86_400 * 10**9), gpu.values)
    idle = [one for one in diagnose([jumped]) if one.kind == "idle-stretch"]
    assert sum(one.value for one in idle) <= 101 and not any("all the time" in one.title for one in idle)


def test_sudden_fall_is_reported_with_its_time() -> None:
    (fall,) = [
        one
        for one in diagnose(host(2, troubles=(Trouble("utilization-trend", ALL, -50, 1500, 1501),)))
        if one.kind == "utilization-trend"
    ]
    assert fall.title.endswith("after 25 min") and "stays there" in fall.evidence
    assert abs((fall.start_ns - START) / 1e9 - 1500) <= 90


@pytest.mark.parametrize(("hole_s", "idle_s"), [(0.0, [200]), (4.0, [204]), (3600.0, [100, 100]), (600.0, [100, 100])])
def test_telemetry_gap_is_not_idle_time(hole_s: float, idle_s: list[int]) -> None:
    busy = np.concatenate([np.full(400, 90.0), np.zeros(400), np.full(400, 90.0)])
    seconds = np.arange(1200) * 0.5
    seconds[600:] += hole_s  # The telemetry gap is in the middle of the idle time.
    samples = DeviceSamples(0, None, START + (seconds * 1e9).astype(np.int64), {"util_pct": busy})
    assert [round((end - start) / 1e9) for start, end in _stretches(samples)] == idle_s
