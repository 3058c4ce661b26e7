"""Tests of FP32 products in a trace without shapes, recognised by kernel names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.by_hand import analysed
from tests.support.chrome_trace import ChromeTrace


@pytest.mark.parametrize(
    ("kernel", "fires"),
    [
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x128x8_stage3_warpsize2x4x1_ffma_aligna4_alignc4_execute", True),
        ("volta_sgemm_64x64_nt", True),
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", False),  # 16 bit, on tensor cores
    ],
)
def test_kernel_names_show_fp32_products(tmp_path: Path, kernel: str, fires: bool) -> None:
    trace = ChromeTrace(record_shapes=0)
    for k in range(4):  # 60 of 100 µs are products
        at = 100 * k
        trace.op("aten::mm", at + 1, at + 9)
        trace.launch((at + 3, at + 6), (at + 10, at + 70), kernel)
        trace.op("aten::mul", at + 12, at + 20)
        trace.launch((at + 14, at + 17), (at + 70, at + 105), "void at::native::vectorized_elementwise_kernel<4, float>(int)")
        trace.step(k + 1, at, at + 100)
    result = analysed(tmp_path, trace)
    found = [f for f in result.findings if f.rule == "fp32-products"]
    assert bool(found) == fires
    assert ("fp32-products" in {skipped.rule for skipped in result.not_checked}) == (not fires)
    for finding in found:
        assert finding.predicted_step_ms is None and finding.ceiling_ms_per_step == pytest.approx(
            0.06 * (1 - 66.9 / 989.4), rel=0.01
        )
        assert result.findings[0] is finding
