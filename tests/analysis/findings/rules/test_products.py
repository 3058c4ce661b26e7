"""Tests of findings about matrix products: precision and alignment."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.run.model import RunResult
from tests.support.by_hand import FLOAT, analysed, of_rule
from tests.support.chrome_trace import ChromeTrace
from tests.support.findings_of import finding, result_of

STEP_US = 1000
HALF = ["c10::BFloat16", "c10::BFloat16"]
TOKENS, WIDTH, ODD_WIDTH = 788, 768, 774  # 788 = 4 images of 197 tokens. It is not a multiple of 8, and not a setting.
CUTLASS = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_32x4_tn_align{}>(cutlass::Params)"


@pytest.mark.parametrize(
    ("first", "second", "strides", "align", "words"),
    [
        ([TOKENS, WIDTH], [WIDTH, 3072], [[WIDTH, 1], [1, WIDTH]], 8, None),  # x · Wᵀ
        ([3072, TOKENS], [TOKENS, WIDTH], [[1, 3072], [WIDTH, 1]], 8, None),  # dyᵀ · x: a sum over 788
        ([3072, TOKENS], [TOKENS, WIDTH], None, 8, None),
        ([TOKENS, ODD_WIDTH], [ODD_WIDTH, 3072], [[ODD_WIDTH, 1], [1, ODD_WIDTH]], 2, "774"),
        ([TOKENS, WIDTH], [WIDTH, 50257], [[WIDTH, 1], [1, WIDTH]], 1, "50257"),  # The result's rows.
        ([TOKENS, WIDTH], [WIDTH, 50257], [[WIDTH, 1], [1, WIDTH]], 8, None),  # The name shows whole tiles.
    ],
)  # fmt: skip
def test_only_the_contiguous_dimension_of_a_product_must_be_aligned(
    tmp_path: Path, first: list[int], second: list[int], strides: list[list[int]] | None, align: int, words: str | None
) -> None:
    trace = ChromeTrace()
    more = {"Input Strides": strides} if strides else {}
    for at in trace.each_step(4, STEP_US):
        trace.op("aten::mm", at + 10, at + 60, [first, second], HALF, **more)
        trace.launch((at + 20, at + 25), (at + 30, at + 990), CUTLASS.format(align))
    found = of_rule(analysed(tmp_path, trace), "misaligned-dimensions")
    assert (found is None) if words is None else (found is not None and words in found.title)


def run_of_products(folder: Path, kernel: str) -> RunResult:
    """Return a run of four steps, each with one FP32 product of 1024 × 1024 × 1024 that fills it."""
    trace = ChromeTrace()
    for at in trace.each_step(4, STEP_US):
        trace.op("aten::mm", at + 10, at + 60, [[1024, 1024], [1024, 1024]], FLOAT)
        trace.launch((at + 20, at + 25), (at + 30, at + 990), kernel)
    return analysed(folder, trace)


def test_a_chosen_precision_is_not_a_critical_finding(tmp_path: Path) -> None:
    found = of_rule(
        run_of_products(tmp_path, "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage4_tensor16x8x8_kernel"),
        "fp32-products",
    )
    assert found is not None and found.severity == "warning"


def test_one_cause_gives_one_critical_finding(tmp_path: Path) -> None:
    result = run_of_products(tmp_path, "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_ffma_kernel")
    assert [f.rule for f in result.findings if f.severity == "critical"] == ["tf32-off"]  # For one product, casts cost more.
    second = of_rule(result, "fp32-products")
    assert second is not None and second.severity == "warning" and "gains do not add up" in second.prediction_note


def test_tf32_for_a_step_that_factorizes_matrices_is_not_critical() -> None:
    # In a Gaussian process with a Cholesky factor, products in TF32 would save a fifth of the step, but the likelihood
    # may need FP32.
    result = result_of("curves")
    for rule in ("tf32-off", "fp32-products"):
        found = of_rule(result, rule)
        assert found is not None and found.severity != "critical" and "may need all bits of FP32" in found.risk
    plain = finding("gpt_fp32", "fp32-products")
    assert plain is not None and plain.severity == "critical" and "bits of FP32" not in plain.risk


def test_autocast_names_the_fourier_transforms_that_refuse_bf16() -> None:
    """torch.fft raises "Unsupported dtype BFloat16", and CUDA autocast does not cast its input.

    The list AT_FORALL_FP32 of PyTorch 2.13 has no transform.
    """
    found, plain = finding("fields", "fp32-products"), finding("gpt_tf32", "fp32-products")
    assert found is not None and found.risk.endswith("pass x.float() to it.")
    assert plain is not None and "torch.fft" not in plain.risk
