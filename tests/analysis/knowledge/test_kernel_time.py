"""Tests of the kernel-time model on the quarter of the measured kernels outside its fit."""

import pytest

from sawtooth.analysis.knowledge.hardware import GpuPeaks, identify
from sawtooth.analysis.knowledge.kernel_time import KernelWork, Product, estimate, fitted_kernels
from sawtooth.analysis.knowledge.kernel_work import (
    attention_work,
    convolution_work,
    moving_work,
    optimizer_work,
    product_work,
    recorded_attention,
)
from sawtooth.sample_traces.fit_kernel_time import left_out, read
from tests.support.paths import ROOT

GRIDS = sorted((ROOT / "tests" / "kernel_grids").glob("*.jsonl.gz"))
# Limits of the median and the 80 % quantile of |estimated ÷ measured − 1| on the cases that were left out.
LIMITS = {
    "gemm": (0.09, 0.18),  # 7 % and 14 % were measured.
    "attention": (0.18, 0.30),  # 15 % and 26 % were measured.
    "conv": (0.22, 0.45),  # 18 % and 39 % were measured.
}


def gpu_named(name: str) -> GpuPeaks:
    gpu = identify(name, None, None, None, None)
    assert gpu is not None
    return gpu


H200 = gpu_named("NVIDIA H200")


@pytest.fixture(scope="module")
def held_out() -> dict[str, list[tuple[KernelWork, float]]]:
    grids = read(GRIDS)
    del grids["gemm.tf32.any"]  # It pools the cases of all layouts, which would count twice.
    return {name: held_out for name, cases in grids.items() if (held_out := left_out(cases))}


@pytest.mark.parametrize("family", LIMITS)
def test_error_on_held_out_cases(held_out: dict[str, list[tuple[KernelWork, float]]], family: str) -> None:
    pairs = [(estimate(work, H200), ms) for name, cases in held_out.items() if name.startswith(family) for work, ms in cases]
    estimates = [(e, ms) for e, ms in pairs if e is not None]
    off = sorted(abs(e.ms / ms - 1) for e, ms in estimates)
    median_limit, p80_limit = LIMITS[family]
    assert len(estimates) == len(pairs) > 30
    assert off[len(off) // 2] <= median_limit
    assert off[int(0.8 * len(off))] <= p80_limit
    assert sum(e.low <= ms <= e.high for e, ms in estimates) >= 0.7 * len(estimates)


def test_every_row_has_residuals() -> None:
    for row in fitted_kernels().values():
        assert row.residuals["n"] >= 6
        assert 0 <= row.residuals["median"] <= row.residuals["p80"] <= row.residuals["worst"]
        assert row.log_low < row.log_high


def ms_of(work: KernelWork | None, gpu: GpuPeaks = H200) -> float:
    assert work is not None
    answer = estimate(work, gpu)
    assert answer is not None
    return answer.ms


def test_product_with_a_sparse_operand_has_no_dense_work() -> None:
    dims = [[1024, 1024], [1024, 1024]]
    assert product_work("aten::mm", dims, [[], [1024, 1]], "bf16") is None
    assert product_work("aten::mm", dims, [[1024, 1], [1024, 1]], "bf16") is not None
    assert product_work("aten::mm", dims, None, "bf16") is not None  # Strides were not recorded.


def test_only_the_contiguous_dimension_must_be_aligned() -> None:
    rows_odd = product_work("aten::mm", [[4093, 1024], [1024, 1024]], [[1024, 1], [1, 1024]], "bf16")
    columns_odd = product_work("aten::mm", [[4096, 1021], [1021, 1024]], [[1021, 1], [1024, 1]], "bf16")
    assert rows_odd is not None and rows_odd.kind == "gemm.16bit"
    assert columns_odd is not None and columns_odd.kind == "gemm.16bit.odd"


def test_padding_is_faster_and_counts_the_larger_size() -> None:
    dims, strides = [[8192, 768], [768, 50257]], [[768, 1], [50257, 1]]
    padded = product_work("aten::mm", dims, strides, "bf16", resized={50257: 50304})
    assert padded is not None and padded.products == (Product(1, 8192, 50304, 768),)
    assert ms_of(padded) < 0.5 * ms_of(product_work("aten::mm", dims, strides, "bf16"))


def test_lower_precision_is_faster() -> None:
    dims, strides = [[8192, 2048], [2048, 8192]], [[2048, 1], [8192, 1]]
    times = [ms_of(product_work("aten::mm", dims, strides, dtype)) for dtype in ("fp32", "tf32", "bf16", "fp8")]
    assert times == sorted(times, reverse=True)
    assert times[0] > 8 * times[2]


def test_one_more_tile_than_full_waves_takes_another_wave() -> None:
    """An H200 has 132 SMs. In tiles of 256 × 128, the products have 66, 264 and 266 tiles."""
    half_wave = KernelWork("gemm.16bit", "bf16", 1.0, (Product(1, 128 * 132, 128, 8192),))
    two_waves = KernelWork("gemm.16bit", "bf16", 1.0, (Product(1, 256 * 132, 256, 8192),))
    third_wave = KernelWork("gemm.16bit", "bf16", 1.0, (Product(1, 256 * 132 + 1, 256, 8192),))
    assert ms_of(half_wave) < ms_of(two_waves) < ms_of(third_wave)


def test_other_gpus_scale_and_have_wider_intervals() -> None:
    work = product_work("aten::mm", [[8192, 4096], [4096, 8192]], None, "bf16")
    assert work is not None
    h200, h100, a100 = (
        estimate(work, gpu_named(name)) for name in ("NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB")
    )
    assert h200 and h100 and a100
    assert a100.ms / h200.ms == pytest.approx(989.4 / 312, rel=0.2)  # Peak TFLOPS of both in bf16.
    assert h200.high / h200.low < h100.high / h100.low < a100.high / a100.low


def test_unknown_peak_or_kind_gives_no_estimate() -> None:
    fp8 = product_work("aten::_scaled_mm", [[64, 64], [64, 64]], None, "fp8")
    assert fp8 is not None
    assert estimate(fp8, gpu_named("NVIDIA A100-SXM4-80GB")) is None
    assert estimate(moving_work("aten::nothing_like_it", 1e6, "fp32"), H200) is None
    assert product_work("aten::mm", None, None, "bf16") is None
    assert product_work("aten::mm", [[4]], None, "bf16") is None


def test_convolution_work_from_recorded_arguments() -> None:
    arguments = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    dims = [[32, 64, 56, 56], [128, 64, 3, 3], []]
    work = convolution_work("aten::convolution", dims, [[200704, 1, 3584, 64], [576, 1, 192, 64]], arguments, "bf16")
    assert work is not None and work.kind == "conv.16bit.NHWC.spatial.forward"
    assert work.products == (Product(1, 32 * 56 * 56, 128, 64 * 9),)
    back = ["", "", "", "[0]", *arguments[3:], "[True, False, False]"]
    first = [[32, 128, 56, 56], *dims]
    one = convolution_work("aten::convolution_backward", first, None, back, "bf16")
    assert one is not None and len(one.products) == 1 and one.kind.endswith("NCHW.spatial.backward")
    assert one.products[0].flops == work.products[0].flops
    transposed = [*arguments[:6], "True", *arguments[7:]]
    assert convolution_work("aten::convolution", dims, None, transposed, "bf16") is None


def test_attention_work_from_recorded_arguments() -> None:
    shape = [16, 12, 1024, 64]
    concrete = ["", "", "", "0.", "True", "False", ""]
    causal = recorded_attention("aten::_scaled_dot_product_flash_attention", [shape] * 3, concrete, "bf16")
    complete = attention_work(shape, shape, "bf16", backend="flash", causal=False, backward=False)
    assert causal is not None and complete is not None
    assert causal.flops == complete.flops / 2 == 2.0 * 16 * 12 * 1024 * 1024 * 64
    assert ms_of(causal) < ms_of(complete)
    assert recorded_attention("aten::bmm", [shape] * 3, concrete, "bf16") is None


def test_fused_optimizer_reaches_three_quarters_of_the_bandwidth() -> None:
    values, bytes_per_value, bandwidth, slowdown = 100e6, 28, 4.8e12, 1.37  # 1 / 1.37 is about three quarters
    foreach, fused = (ms_of(optimizer_work("AdamW", kind, values)) for kind in ("foreach", "fused"))
    assert fused < foreach / 1.5
    assert fused == pytest.approx(slowdown * values * bytes_per_value / bandwidth * 1e3, rel=0.1)  # 0.80 ms were measured
