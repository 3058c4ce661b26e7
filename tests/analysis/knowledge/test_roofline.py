"""The roofline by hand on an H200: 989.4 TFLOP/s bf16, 66.9 fp32, 494.7 tf32, 4.8 TB/s."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from sawtooth.analysis.knowledge.hardware import identify
from sawtooth.analysis.knowledge.roofline import COLUMNS, roofline

H200 = identify("NVIDIA H200", 9, 0, 132, 150109880320, "nvidia")
N = 8192
BF16 = ["c10::BFloat16", "c10::BFloat16"]


def operators(*rows: dict) -> pd.DataFrame:
    base = {
        "device": 0,
        "gpu_calls": 1,
        "gpu_self_ns": 0,
        "gpu_total_ns": 0,
        "tensor_core_ns": 0,
        "flops": None,
        "concrete_inputs": None,
    }
    return pd.DataFrame([{**base, **row} for row in rows])


def mm(n: int, ns: int, types: list[str] | None = None, **more: object) -> dict:
    return {
        "name": "aten::mm", "input_dims": json.dumps([[n, n], [n, n]]), "input_types": json.dumps(types or BF16),
        "gpu_self_ns": ns, "gpu_total_ns": ns, "flops": 2.0 * n**3, **more,
    }  # fmt: skip


def test_a_large_product_is_bound_by_compute():
    table = roofline(operators(mm(N, 2_000_000, tensor_core_ns=2_000_000)), H200)
    row = table.iloc[0]
    assert row["bound"] == "compute"
    assert row["dtype"] == "bf16"
    assert row["intensity"] == pytest.approx(2 * N**3 / (3 * 2 * N * N))  # = N/3
    assert row["attainable_tflops"] == pytest.approx(989.4)
    assert row["achieved_tflops"] == pytest.approx(2 * N**3 / 2e-3 / 1e12)  # 549.8
    least_ns = 2 * N**3 / 989.4e12 * 1e9  # 1,111,290
    assert row["attainable_ns"] == pytest.approx(least_ns)
    assert row["attained_share"] == pytest.approx(least_ns / 2e6)
    assert row["opportunity_ns"] == pytest.approx(2e6 - least_ns)


def test_an_elementwise_operator_is_bound_by_memory():
    gelu = {
        "name": "aten::gelu",
        "input_dims": [[N, N]],
        "input_types": ["c10::BFloat16"],
        "gpu_self_ns": 100_000,
        "gpu_total_ns": 100_000,
        "gpu_calls": 2,
    }
    row = roofline(operators(gelu), H200).iloc[0]
    moved = 2 * 2 * 2 * N * N  # Two calls, read and write, two bytes.
    assert row["bound"] == "memory"
    assert row["category"] == "elementwise"
    assert row["bytes"] == moved
    assert row["intensity"] == 0
    assert row["attainable_ns"] == pytest.approx(moved / 4.8e12 * 1e9)
    assert pd.isna(row["achieved_tflops"])


def test_a_thin_product_is_bound_by_memory():
    thin = mm(N, 50_000) | {"input_dims": [[8, N], [N, N]], "flops": 2.0 * 8 * N * N}
    row = roofline(operators(thin), H200).iloc[0]
    assert row["bound"] == "memory"
    assert row["attainable_tflops"] == pytest.approx(row["intensity"] * 4.8e12 / 1e12)


def test_fp32_is_compared_with_the_precision_it_ran_in():
    fp32 = ["float", "float"]
    plain = roofline(operators(mm(N, 20_000_000, fp32)), H200).iloc[0]
    tensor = roofline(operators(mm(N, 4_000_000, fp32, tensor_core_ns=4_000_000)), H200).iloc[0]
    unmarked = roofline(operators(mm(N, 4_000_000, fp32)), H200).iloc[0]  # 275 TFLOP/s: more than FP32 units can
    assert (plain["dtype"], tensor["dtype"], unmarked["dtype"]) == ("fp32", "tf32", "tf32")
    assert plain["attained_share"] == pytest.approx(2 * N**3 / 66.9e12 / 20e-3)


def test_cached_time_is_not_a_negative_opportunity():
    gelu = {
        "name": "aten::gelu",
        "input_dims": [[1024, 1024]],
        "input_types": ["float"],
        "gpu_self_ns": 1_000,
        "gpu_total_ns": 1_000,
    }
    row = roofline(operators(gelu), H200).iloc[0]
    assert row["attained_share"] > 1
    assert row["opportunity_ns"] == 0


def test_rows_without_time_bytes_or_flops_are_not_on_the_roofline():
    rows = [
        mm(64, 0),
        mm(64, 1000) | {"flops": None},  # The FLOPs count in the operator around it.
        {
            "name": "aten::embedding",
            "input_dims": [[9, 9], [3]],
            "input_types": ["float", "long int"],
            "gpu_self_ns": 9,
            "gpu_total_ns": 9,
        },
        {"name": "mylib::op", "input_dims": None, "input_types": None, "gpu_self_ns": 9, "gpu_total_ns": 9},
    ]
    assert len(roofline(operators(*rows), H200)) == 0


def test_unknown_bandwidth_gives_no_roof():
    unknown = identify("NVIDIA Z1", 9, 0, 99, None, "nvidia")
    table = roofline(operators(mm(64, 1000)), unknown)
    assert len(table) == 0
    assert set(COLUMNS) <= set(table.columns)


def test_the_largest_opportunity_comes_first():
    gelu = {
        "name": "aten::gelu",
        "input_dims": [[N, N]],
        "input_types": ["c10::BFloat16"],
        "gpu_self_ns": 90_000,
        "gpu_total_ns": 90_000,
    }
    placed = roofline(operators(gelu, mm(N, 2_000_000), mm(N, 3_000_000)), H200)
    assert placed["opportunity_ns"].is_monotonic_decreasing
