"""Tests of GPU identification and of the GPUs' peak rates."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from sawtooth.analysis.knowledge import hardware
from sawtooth.analysis.knowledge.hardware import DTYPES, _tables, identify

GIB = 1 << 30
ROWS = tomllib.loads((Path(hardware.__file__).parent / "hardware.toml").read_text(encoding="utf-8"))["gpu"]


@pytest.mark.parametrize(
    ("name", "major", "minor", "sms", "memory", "vendor", "found", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 9, 0, 132, 85018279936, "nvidia", "H100 SXM5", 989.4),
        ("NVIDIA H100 PCIe", 9, 0, 114, 85e9, "nvidia", "H100 PCIe", 756),
        ("NVIDIA H100 NVL", 9, 0, 132, 100e9, "nvidia", "H100 NVL", 835.5),
        ("NVIDIA H200", 9, 0, 132, 150109880320, "nvidia", "H200 SXM", 989.4),
        ("NVIDIA H200 NVL", 9, 0, 132, 150109880320, "nvidia", "H200 NVL", 835.5),
        ("NVIDIA GH200 480GB", 9, 0, 132, 102e9, "nvidia", "GH200 96GB", 989.4),
        ("NVIDIA A100-PG509-200", 8, 0, 108, 42e9, "nvidia", "A100 SXM4 40GB", 312),
        ("NVIDIA A100-SXM4-80GB", 8, 0, 108, 85e9, None, "A100 SXM4 80GB", 312),
        ("A100-SXM4-40GB", 8, 0, 108, 42e9, None, "A100 SXM4 40GB", 312),
        ("NVIDIA A10G", 8, 6, 80, 23e9, "nvidia", "A10G", 70),
        ("NVIDIA A10", 8, 6, 72, 23e9, "nvidia", "A10", 125),
        ("NVIDIA L40S", 8, 9, 142, 48e9, "nvidia", "L40S", 362.05),
        ("NVIDIA L40", 8, 9, 142, 48e9, "nvidia", "L40", 181.05),
        ("NVIDIA L4", 8, 9, 58, 24e9, "nvidia", "L4", 121),
        ("NVIDIA GeForce RTX 3090", 8, 6, 82, 25e9, "nvidia", "GeForce RTX 3090", 71.2),
        ("NVIDIA GeForce RTX 3090 Ti", 8, 6, 84, 25e9, "nvidia", "GeForce RTX 3090 Ti", 80),
        ("NVIDIA RTX 6000 Ada Generation", 8, 9, 142, 51e9, "nvidia", "RTX 6000 Ada", 364.2),
        ("Quadro RTX 6000", 7, 5, 72, 24e9, "nvidia", "Quadro RTX 6000 / 8000", 130.5),
        ("Tesla V100-SXM2-32GB", 7, 0, 80, 34079637504, "nvidia", "V100 SXM2", 125),
        ("Tesla V100-DGXS-32GB", 7, 0, 80, 34084028416, "nvidia", "V100 SXM2", 125),
        ("Tesla T4", 7, 5, 40, 15.8e9, "nvidia", "T4", 65),
        ("NVIDIA B200", 10, 0, 148, 191503138816, "nvidia", "B200", 2250),
        ("NVIDIA GB200", 10, 0, 152, 198e9, "nvidia", "GB200", 2500),
        ("NVIDIA B300 SXM6 AC", 10, 3, 148, 288e9, "nvidia", "B300", 2250),
        ("AMD Instinct MI300X VF", 9, 4, 304, 205571227648, "amd", "Instinct MI300X", 1307.4),
        ("AMD Instinct MI300X", 9, 4, 304, 206141652992, None, "Instinct MI300X", 1307.4),
        ("", 9, 4, 304, 206141652992, None, "Instinct MI300X", 1307.4),
        ("AMD Radeon Graphics", 9, 0, 104, 68702699520, "amd", "Instinct MI250, one GCD", 181),
        ("AMD Instinct MI250X / MI250", 9, 0, 104, 68702699520, "amd", "Instinct MI250, one GCD", 181),
        ("AMD Instinct MI250X/MI250", 9, 0, 110, 68702699520, "amd", "Instinct MI250X, one GCD", 191.5),
        ("AMD Instinct MI355X", 9, 5, 256, 309e9, "amd", "Instinct MI355X", 2516.6),
        (None, 9, 0, 132, 85018279936, "nvidia", "H100 SXM5", 989.4),
        ("", 9, 0, 132, 150109880320, None, "H200 SXM", 989.4),
        ("", 8, 0, 108, 42e9, None, "A100 SXM4 40GB", 312),
    ],
)  # fmt: skip
def test_identify_names_seen_in_traces(name, major, minor, sms, memory, vendor, found, peak):
    gpu = identify(name, major, minor, sms, int(memory), vendor)
    assert gpu is not None
    assert gpu.name == found
    assert gpu.peak_16bit_tflops == pytest.approx(peak)


def test_a_slice_is_scaled_by_its_sms():
    gpu = identify("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 8, 0, 42, 20 * GIB, "nvidia")
    assert gpu is not None
    assert gpu.peak_16bit_tflops == pytest.approx(312 * 42 / 108)
    assert gpu.bandwidth_bytes_per_s == pytest.approx(1555e9 / 2)  # The instance has half of the memory slices.
    assert gpu.quoted_clock_mhz == pytest.approx(312e6 / (2048 * 108))  # The clock does not change.
    assert "42 of 108 SMs" in (gpu.note or "")


def test_a_cpx_partition_is_scaled():
    gpu = identify("AMD Instinct MI300X", 9, 4, 38, 24 * GIB, "amd")
    assert gpu is not None
    assert gpu.peak_16bit_tflops == pytest.approx(1307.4 / 8)


def test_an_unknown_name_falls_back_to_the_formula():
    gpu = identify("NVIDIA Z999", 9, 0, 100, 64 * GIB, "nvidia")
    assert gpu is not None
    assert gpu.identified_by == "formula"
    assert gpu.peak_16bit_tflops == pytest.approx(4096 * 100 * 1830 / 1e6)
    assert "estimated" in (gpu.note or "")
    assert gpu.bandwidth_bytes_per_s is None


def test_a_laptop_is_not_its_desktop_namesake():
    gpu = identify("NVIDIA GeForce RTX 4090 Laptop GPU", 8, 9, 76, 16 * GIB, "nvidia")
    assert gpu is not None
    assert gpu.identified_by == "formula"
    assert gpu.peak_16bit_tflops == pytest.approx(512 * 76 * 2500 / 1e6)


def test_vendor_decides_the_meaning_of_compute_capability_9_0():
    amd = identify("", 9, 0, 132, None, "amd")
    nvidia = identify("", 9, 0, 132, None, "nvidia")
    assert amd is not None and nvidia is not None
    assert amd.vendor == "amd" and amd.identified_by == "formula"
    assert nvidia.name == "H100 SXM5"


@pytest.mark.parametrize("args", [("ARTEMIS", None, None, None, None, "meta"), (None, None, None, None, None, None)])
def test_unknown_gpu_is_none(args):
    assert identify(*args) is None


def test_at_least_forty_gpus_have_complete_rows():
    assert len(ROWS) >= 40
    names = [row["name"] for row in ROWS]
    assert len(set(names)) == len(names)
    for row in ROWS:
        assert len(row["source"]) > 20, row["name"]
        assert set(row["peaks"]) <= set(DTYPES), row["name"]
        assert {"fp16", "fp32"} <= set(row["peaks"]), row["name"]
        assert all(value > 0 for value in row["peaks"].values())
        assert row["bandwidth_gb_s"] > 100 and row["power_w"] > 50
        assert row.get("flop_per_sm_clock") or row.get("note"), row["name"]
        for pattern in row["match"]:
            re.compile(pattern)


def test_every_gpu_is_found_by_its_properties():
    for row in ROWS:
        for gb in row["memory_gb"]:
            gpu = identify("", *row["compute"], row["sms"], gb * GIB, row["vendor"])
            assert gpu is not None and gpu.identified_by == "shape", row["name"]
            assert gpu.vendor == row["vendor"]


def test_quoted_clocks_are_possible_clocks():
    # A wrong SM count or rate, or a rate for sparse products, gives a clock at which no GPU runs.
    for gpu in (row.gpu for row in _tables()[0]):
        if gpu.quoted_clock_mhz is not None:
            assert 1290 <= gpu.quoted_clock_mhz <= 3000, gpu.name


@pytest.mark.parametrize(("wide", "narrow"), [("fp8", "bf16"), ("fp4", "fp8")])
def test_tensor_rates_double_as_the_width_halves(wide, narrow):
    # Not B300’s FP4 (three times its FP8) nor GeForce’s (not halved by FP32 accumulation); elsewhere a sparse figure would stand out.
    for gpu in (row.gpu for row in _tables()[0]):
        if wide in gpu.peaks and narrow in gpu.peaks and not (wide == "fp4" and re.search("B300|GeForce", gpu.name)):
            assert gpu.peaks[wide] / gpu.peaks[narrow] == pytest.approx(2.0, rel=0.02), gpu.name


def test_h200_figures_of_the_datasheet():
    gpu = identify("NVIDIA H200", 9, 0, 132, 150109880320, "nvidia")
    assert gpu is not None
    assert gpu.quoted_clock_mhz == pytest.approx(1830, abs=1)  # 989.4e12 / (4096 * 132)
    assert gpu.bandwidth_bytes_per_s == 4.8e12
    assert gpu.peak_tflops("fp4") is None
