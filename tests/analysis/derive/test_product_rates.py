"""Tests of FP32 products whose kernel names do not show their precision.

TF32 is stated if the kernel's rate proves it; otherwise only an upper bound is stated.
"""

from __future__ import annotations

import pytest

from sawtooth.analysis.run.model import RunResult
from tests.incomplete.claims import analysed
from tests.support.chrome_trace import ChromeTrace, matmul_loop

FLOPS = 2 * 2048**3  # The loop's product takes 257 µs at the 66.9 TFLOP/s of an H200's FP32 units, 35 µs at its 494.7 in TF32.


def loop(matmul_us: float, name: str, step_us: float = 1000) -> ChromeTrace:
    trace = matmul_loop(8, step_us=step_us, matmul_us=matmul_us, other_us=100)
    for event in trace.events:
        if event["name"] == "aten::mm":
            event["args"]["Input type"] = ["float", "float"]
            event["args"]["Input Dims"] = [[2048, 2048], [2048, 2048]]
        if event["name"].startswith("nvjet"):
            event["name"] = name
    if name.startswith("triton_"):  # The driver launches these kernels.
        correlations = {event["args"]["correlation"] for event in trace.events if event["name"] == name}
        for event in trace.events:
            if event["name"] == "cudaLaunchKernel" and event["args"]["correlation"] in correlations:
                event |= {"cat": "cuda_driver", "name": "cuLaunchKernelEx"}
    return trace


def result_of(trace: ChromeTrace) -> RunResult:
    result = analysed([("t.json", trace.json())])
    assert result is not None
    return result


@pytest.mark.parametrize("name", ["triton_mm", "triton_tem_fused_addmm_7", "my_gemm_kernel"])
@pytest.mark.parametrize("matmul_us", [60, 150])
def test_a_rate_above_the_fp32_peak_proves_tensor_cores(name: str, matmul_us: float) -> None:
    result = result_of(loop(matmul_us, name))
    share = result.metrics["mfu_at_dtype"]
    assert share.value == pytest.approx(FLOPS / 494.7e12 / 1e-3, rel=0.01) and share.bound is None
    assert result.metrics["tensor_core_time_share"].value == pytest.approx(matmul_us / (matmul_us + 100), rel=0.01)
    assert not [finding for finding in result.findings if "without tensor cores" in finding.title]


@pytest.mark.parametrize("matmul_us", [280, 700])
def test_a_rate_that_both_units_reach_is_an_upper_bound(matmul_us: float) -> None:
    result = result_of(loop(matmul_us, "triton_mm"))
    share = result.metrics["mfu_at_dtype"]
    assert share.value == pytest.approx(FLOPS / 66.9e12 / 1e-3, rel=0.01)
    assert (share.bound, share.trust) == ("most", "unusable")
    assert not [finding for finding in result.findings if "without tensor cores" in finding.title]


def test_kernel_name_with_a_dtype_needs_no_rate() -> None:
    share = result_of(loop(280, "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_ffma_kernel")).metrics["mfu_at_dtype"]
    assert share.value == pytest.approx(FLOPS / 66.9e12 / 1e-3, rel=0.01) and share.bound is None
