"""Tests of the sampler's cost. Slow calls become rarer."""

from __future__ import annotations

import pytest

from tests.support.sampler_bench import Bench


def test_slow_calls_are_spread_out_and_processes_are_rare() -> None:
    bench = Bench(("GPU-a",))
    bench.nvml.cost_s["nvmlDeviceGetTotalEnergyConsumption"] = 0.004  # The budget of 0.04 % allows 4 ms once in 10 s.
    memory = bench.run(30)
    energies = [bench.value(t, "energy_j") for t in memory.ticks()]
    assert 3 <= sum(e is not None for e in energies) <= 4
    assert sum("p" in t for t in memory.ticks()) == 3
    assert memory.ticks()[0]["p"] == [[0, 4_000_000_000, None, None]]


def test_expensive_sampling_becomes_rarer_and_is_reported() -> None:
    bench = Bench(("GPU-a",))

    def burn() -> None:
        bench.time.cpu = int((bench.time.m - bench.start_ns) * 0.06)

    memory = bench.run(65, *((k * 0.5, burn) for k in range(130)))
    overhead = memory.events("overhead")
    assert overhead[0]["cpu_share"] == pytest.approx(0.06, rel=0.1)
    slowed = memory.events("slowed")
    # At first everything but GPM becomes rarer, three times. Then the ticks become rarer.
    assert [e.get("stretch") for e in slowed[:3]] == [2, 4, 8]
    assert [e.get("interval_ns") for e in slowed[3:5]] == [200_000_000, 400_000_000]


def test_costs_of_an_h200_stay_within_the_budget() -> None:
    bench = Bench(("GPU-a",))
    bench.nvml.cost_s |= {"nvmlGpmSampleGet": 0.00012, "nvmlGpmMetricsGet": 0.000006, "nvmlDeviceGetUtilizationRates": 0.00004}
    bench.nvml.cost_s |= {
        "nvmlDeviceGetFieldValues": 0.00003,
        "nvmlDeviceGetMemoryInfo": 0.00007,
        "nvmlDeviceGetTotalEnergyConsumption": 0.0045,
        "nvmlDeviceGetSamples": 0.0015,
    }
    memory = bench.run(60)
    assert memory.events("overhead")[-1]["nvml_ms_per_gpu_tick"] <= 0.5
    # SM activity is always sampled, because it shows the sawtooth.
    assert all(bench.value(t, "sm_active_pct") is not None for t in memory.ticks()[1:])
    assert all(1 not in request for request in bench.nvml.gpm_requests)  # Metric 1 is graphics utilization, which takes 1.5 ms.
    assert "1.5 ms" in memory.heads[0][0]["capabilities"]["gr_active_pct"]["reason"]
    ticks_with_rest = [t for t in memory.ticks() if bench.value(t, "fp32_pct") is not None]
    assert 58 <= len(ticks_with_rest) <= 60


def test_expensive_metrics_of_the_slow_group_become_rarer() -> None:
    bench = Bench(("GPU-a",))
    # The group's 12 metrics take 1.3 ms, which the budget allows every 2.6 s.
    bench.nvml.cost_s |= {"nvmlGpmSampleGet": 0.0001, "a GPM metric": 0.0001}
    memory = bench.run(60)
    ticks_with_rest = [t for t in memory.ticks() if bench.value(t, "fp32_pct") is not None]
    assert 20 <= len(ticks_with_rest) <= 26
