"""Tests of the sampler with a fake NVML and a fake clock, which advances only while the sampler waits."""

from __future__ import annotations

import ast
import json
import os
import sys
from pathlib import Path

import pytest

from sawtooth.ingest import sampler
from sawtooth.ingest.sampler.nvml.driver import DriverLostError, NvmlDriver
from sawtooth.ingest.sampler.nvml.fields import COLUMNS
from sawtooth.ingest.sampler.step_rate import StepRateReader
from tests.support.fake_nvml import FakeClock, FakeNvml
from tests.support.sampler_bench import Bench


def test_a_tick_has_every_gpu_and_only_finite_numbers() -> None:
    bench = Bench()
    memory = bench.run(1.05)
    ticks = memory.ticks()
    assert len(ticks) == 11
    assert [round((t["m"] - bench.start_ns) / 1e8) for t in ticks] == list(range(11))
    assert bench.value(ticks[0], "util_pct") == 71
    assert bench.value(ticks[0], "power_w", 1) == 506.727
    assert bench.value(ticks[0], "tensor_active_pct") is None  # GPM has no value before the end of the first window.
    assert bench.value(ticks[1], "dram_active_pct") is None  # NaN in the first window
    assert bench.value(ticks[2], "dram_active_pct") == 10.0
    assert bench.value(ticks[1], "tensor_active_pct") == 5.0
    assert bench.value(ticks[1], "pcie_rx_bps") is None  # The slower group has one value per second.
    assert bench.value(ticks[10], "pcie_rx_bps") == 21 * 1048576
    json.dumps(ticks, allow_nan=False)
    assert memory.records[-1]["k"] == "end"


def test_capabilities_name_the_source_of_a_value_or_the_reason_against_it() -> None:
    bench = Bench(gpm=False)
    bench.nvml.fail[("field 186", "GPU-a")] = 3
    bench.nvml.fail[("field 186", "GPU-b")] = 3
    bench.nvml.fail[("nvmlDeviceGetTotalEnergyConsumption", "GPU-b")] = 3
    bench.nvml.fail[("nvmlDeviceGetTotalEccErrors", "GPU-b")] = 3  # A card without ECC.
    memory = bench.run(0.5)
    first, second = memory.heads[0]
    assert first["capabilities"]["power_w"]["source"].startswith("nvmlDeviceGetPowerUsage")
    assert "Hopper" in first["capabilities"]["tensor_active_pct"]["reason"]
    assert "code 3" in second["capabilities"]["energy_j"]["reason"]
    assert bench.value(memory.ticks()[0], "energy_j", 1) is None
    state = ("ecc_corrected_count", "ecc_uncorrected_count", "pcie_gen", "pcie_width", "pcie_max_width", "power_limit_w")
    assert [bench.value(memory.ticks()[0], column) for column in state] == [7, 0, 5, 8, 16, 650]
    assert [bench.value(memory.ticks()[0], column, 1) for column in state[:3]] == [None, None, 5]
    assert bench.value(memory.ticks()[0], "power_w", 1) == 480.0
    for gpu in (first, second):
        for column, capability in gpu["capabilities"].items():
            assert column in COLUMNS
            assert (capability["source"] is None) == (capability["reason"] is not None), column


def test_an_unsupported_gpm_metric_is_tried_once_and_reported() -> None:
    memory = Bench(("GPU-a",)).run(3.0)
    assert {e["column"] for e in memory.events("capability")} == {"nvlink_rx_bps", "nvlink_tx_bps"}


def test_values_of_driver_buffers_keep_their_times() -> None:
    bench = Bench(("GPU-a",))
    wall_us = (bench.time.m + bench.time.offset) // 1000
    rows = [(wall_us + i * 20_000, 500_000 + i) for i in range(-50, 200)]

    def fill() -> None:
        now = (bench.time.m + bench.time.offset) // 1000
        bench.nvml.buffer[("GPU-a", 0)] = [r for r in rows if r[0] <= now]

    fill()
    memory = bench.run(4.05, *((k * 0.1, fill) for k in range(41)))
    times = [t for tick in memory.ticks() for s in tick.get("s", []) if s[1] == "power_w" for t in s[2]]
    assert times == sorted(set(times))
    assert all(t > wall_us for t in times)  # Samples from before the session are left out.
    assert len(times) >= 100
    values = [v for tick in memory.ticks() for s in tick.get("s", []) for v in s[3]]
    assert 500.0 < values[0] < 500.3


def test_each_change_of_the_step_rate_is_recorded(tmp_path: Path) -> None:
    bench, file = Bench(("GPU-a",)), tmp_path / "pace.json"
    bench.sampler.step_rate = StepRateReader(file)
    known = {"step": 10, "p50_ms": 9.0, "p95_ms": 9.5, "per_s": 110.0}

    def write(step: int) -> None:
        file.write_text(json.dumps({**known, "step": step, "samples": None}))
        os.utime(file, ns=(step, step))

    memory = bench.run(6, (1.5, lambda: write(10)), (3.5, lambda: write(20)))
    records = [record for record in memory.records if record["k"] == "pace"]
    assert [{key: record[key] for key in known} for record in records] == [known, {**known, "step": 20}]
    assert len(memory.ticks()) == len(Bench(("GPU-a",)).run(6).ticks())


def test_mig_instances_are_separate_devices() -> None:
    bench = Bench(("GPU-a",))
    bench.nvml.mig = [("MIG-1", 3), ("MIG-2", 5)]
    memory = bench.run(0.5)
    assert [g["uuid"] for g in memory.heads[0]] == ["GPU-a", "MIG-1", "MIG-2"]
    assert "MIG" in memory.heads[0][1]["capabilities"]["util_pct"]["reason"]
    tick = memory.ticks()[2]
    assert bench.value(tick, "util_pct", 1) is None
    assert bench.value(tick, "tensor_active_pct", 1) == 5.0
    assert bench.value(memory.ticks()[0], "mem_used_bytes", 2) == 5_146_279_936


def test_gpus_are_chosen_by_index_or_uuid() -> None:
    time = FakeClock()
    driver = NvmlDriver(FakeNvml(time), time.clock(), ["GPU-b"])
    assert [(g.device, g.uuid) for g in driver.open()] == [(0, "GPU-b")]
    with pytest.raises(DriverLostError, match="The GPUs are 0 "):
        NvmlDriver(FakeNvml(time), time.clock(), ["7"]).open()


def test_the_sampler_imports_only_the_standard_library_and_nvml() -> None:
    for path in Path(sampler.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = (
                    [f"{node.module}.{a.name}" for a in node.names] if node.module == "sawtooth.ingest" else [node.module or ""]
                )
            for name in names:
                top = name.split(".")[0]
                ours = name.startswith(
                    (
                        "sawtooth.ingest.sampler",
                        "sawtooth.ingest.quantities",
                        "sawtooth.ingest.children",
                        "sawtooth.ingest.loop.cores",  # Needs only the standard library.
                        "sawtooth.ingest.json_checksum",
                        "sawtooth.installation",
                    )
                )
                assert ours or top in sys.stdlib_module_names or top == "pynvml", (path.name, name)
