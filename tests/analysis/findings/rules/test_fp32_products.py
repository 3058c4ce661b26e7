"""Tests of choosing the FP32 products that autocast makes faster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.by_hand import analysed
from tests.support.chrome_trace import ChromeTrace

PLAIN = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_ffma_kernel"
SPARSE = "void cusparse::csrmm_v2_kernel<int, int, float, float>(cusparse::KernelParams)"


@pytest.mark.parametrize(
    ("around", "kernel", "strides", "found"),
    [
        ("MmBackward0", PLAIN, [[1024, 1], [1024, 1]], {"fp32-products", "tf32-off"}),
        ("aten::linalg_multi_dot", PLAIN, None, {"fp32-products", "tf32-off"}),  # only multiplies
        ("LinalgCholeskyExBackward0", PLAIN, None, {"tf32-off"}),
        ("LinalgLuFactorExBackward0", PLAIN, None, {"tf32-off"}),
        ("CholeskyInverseBackward0", PLAIN, None, {"tf32-off"}),
        ("aten::linalg_pinv", PLAIN, None, {"tf32-off"}),
        ("Optimizer.step#Shampoo.step", PLAIN, None, {"tf32-off"}),
        ("MmBackward0", PLAIN, [[], [1024, 1]], set()),  # A sparse operand has no strides.
        ("MmBackward0", SPARSE, None, set()),
    ],
)
def test_advice_covers_only_the_products_that_it_reaches(
    tmp_path: Path, around: str, kernel: str, strides: list[list[int]] | None, found: set[str]
) -> None:
    trace, more = ChromeTrace(), {"Input Strides": strides} if strides else {}
    for at in trace.each_step(4, 1000):
        trace.host("user_annotation" if around.startswith("Optimizer") else "cpu_op", around, at + 5, at + 70)
        trace.op("aten::mm", at + 10, at + 60, [[1024, 1024], [1024, 1024]], ["float", "float"], **more)
        trace.launch((at + 20, at + 25), (at + 30, at + 990), kernel)
    result = analysed(tmp_path, trace)
    assert {finding.rule for finding in result.findings} & {"fp32-products", "tf32-off"} == found
    assert (not result.metrics["flops_per_step"].value) == (not found), "dense FLOPs are none of a sparse product's"


def test_tf32_covers_products_inside_cudnns_recurrent_layers(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for at in trace.each_step(4, 1000):
        trace.op("aten::_cudnn_rnn", at + 10, at + 60, [[256, 48, 96]], ["float"])
        trace.launch((at + 20, at + 25), (at + 30, at + 990), PLAIN)
    (found,) = [finding for finding in analysed(tmp_path, trace).findings if finding.rule == "tf32-off"]
    assert found.predicted_step_ms is None and "no recorded shapes" in found.prediction_note
    assert 0.8 < (found.ceiling_ms_per_step or 0.0) / 0.96 < 0.95, "960 µs, at most by the ratio of both peaks"
