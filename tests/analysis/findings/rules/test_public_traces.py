"""Tests of faults in public traces.

They are a disabled allocator, a GPU that cannot compile, a profiler's tensors, and the shapes of a few products.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.by_hand import ADDS, analysed
from tests.support.chrome_trace import H200, ChromeTrace

STEP_US = 20_000


@pytest.mark.parametrize(("uncached", "products"), [(True, 0), (False, 0), (False, 3)])
def test_a_disabled_allocator_is_not_reported_as_full_memory(tmp_path: Path, uncached: bool, products: int) -> None:
    """Without the allocator, every new tensor asks the driver.

    If only the empty tensors ask and not the results of products, the allocator is on.
    """
    trace = ChromeTrace()
    for at in trace.each_step(4, STEP_US, first=0):
        for i in range(10):
            here = at + i * STEP_US // 10
            trace.op("aten::add", here + 5, here + 1_500)
            trace.op("aten::empty", here + 10, here + 500)
            for call, name in enumerate(
                ("cudaFree", "cudaMalloc", "cudaFree", "cudaMalloc") if uncached or products or i == 0 else ()
            ):
                trace.host("cuda_runtime", name, here + 20 + 100 * call, here + 110 + 100 * call)
            trace.launch((here + 600, here + 610), (here + 620, here + 1_400), ADDS)
            for product in range(products):
                trace.op("aten::mm", here + 1_501 + 10 * product, here + 1_508 + 10 * product, [[64, 64], [64, 64]])
    found = [f for f in analysed(tmp_path, trace).findings if f.rule == "allocator-churn"]
    assert any("allocator is off" in f.title for f in found) == uncached
    assert all("PYTORCH_NO_CUDA_MEMORY_CACHING" in f.fix for f in found if uncached)


@pytest.mark.parametrize("returns", [False, True])
def test_steps_that_only_take_memory_keep_tensors(tmp_path: Path, returns: bool) -> None:
    trace = ChromeTrace()
    for k in range(5):
        at = k * STEP_US
        trace.step(k, at, at + STEP_US)
        for i in range(20):
            here = at + i * STEP_US // 20
            trace.op("aten::add", here + 5, here + 700)
            trace.op("aten::empty", here + 10, here + 300)
            trace.op("aten::empty", here + 310, here + 320)
            trace.host("cuda_runtime", "cudaMalloc", here + 20, here + 200)
            trace.launch((here + 330, here + 340), (here + 350, here + 450), ADDS)
        if returns and k == 2:
            trace.host("cuda_runtime", "cudaFree", at + STEP_US - 100, at + STEP_US - 10)
    (found,) = [f for f in analysed(tmp_path, trace).findings if f.rule == "allocator-churn"]
    assert found.title.startswith("Memory grows: every step takes more memory in 20 driver calls, and none returns") != returns
    assert ("append loss.detach() instead of loss" in found.fix) != returns and ("empty_cache" in found.fix) == returns


@pytest.mark.parametrize("major", [6, 9])
def test_compiling_is_advised_only_on_a_gpu_that_triton_supports(tmp_path: Path, major: int) -> None:
    trace = ChromeTrace(
        deviceProperties=[{**H200, "name": "Quadro GP100" if major < 7 else "NVIDIA H200", "computeMajor": major}]
    )
    for at in trace.each_step(4, 2_000, first=0):
        for i in range(20):
            here = at + i * 95
            trace.op("aten::mm" if i % 10 == 0 else "aten::add", here, here + 80, [[64, 64]] * 2, ["float"] * 2)
            trace.launch((here + 60, here + 70), (here + 75, here + 79), "sgemm" if i % 10 == 0 else ADDS)
    result = analysed(tmp_path, trace)
    advice = " ".join(f"{f.fix} {' '.join(c.after for c in f.changes)}" for f in result.findings)
    assert ("torch.compile(" in advice) == (major >= 7), advice
    assert ("elementwise-chains" in {skipped.rule for skipped in result.not_checked}) == (major < 7)
    assert any(f.rule == "launch-bound" for f in result.findings)


@pytest.mark.parametrize("handle", [True, False])
def test_the_handle_of_record_function_is_not_a_copied_tensor(tmp_path: Path, handle: bool) -> None:
    """Before PyTorch 1.12 it was made with aten::zeros, directly before the range."""
    trace = ChromeTrace()
    for at in trace.each_step(4, STEP_US, first=0):
        trace.op("aten::zeros", at + 20, at + 50)
        trace.host("user_annotation", "forward", at + (58 if handle else 10), at + 15_000)
        trace.op("aten::to", at + 100, at + 4_100, [[32, 3, 224, 224]], ["float"])
        trace.correlation += 1
        trace.host("cuda_runtime", "cudaMemcpyAsync", at + 110, at + 4_000, correlation=trace.correlation)
        trace.gpu(
            (at + 150, at + 4_000),
            "Memcpy HtoD (Pageable -> Device)",
            "gpu_memcpy",
            correlation=trace.correlation,
            bytes=19_267_584,
        )
        trace.op("aten::mm", at + 4_200, at + 4_300, [[1024, 1024]] * 2, ["float"] * 2)
        trace.launch((at + 4_210, at + 4_220), (at + 4_230, at + 19_000), "gemm")
    rules = {f.rule for f in analysed(tmp_path, trace).findings}
    assert ("tensors-made-on-cpu" in rules) != handle and ("pageable-copies" in rules) == handle


def test_products_without_shapes_are_fp32_by_name_although_others_have_shapes(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for at in trace.each_step(4, 1_000, first=0):
        trace.op("aten::mm", at + 1, at + 9, [[64, 64]] * 2, ["float"] * 2)
        trace.launch((at + 3, at + 6), (at + 10, at + 20), "volta_sgemm_64x64_nt")
        trace.op("aten::cudnn_convolution_backward", at + 12, at + 30)
        trace.launch(
            (at + 14, at + 17), (at + 20, at + 990), "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)"
        )
    (found,) = (f for f in analysed(tmp_path, trace).findings if f.rule == "fp32-products")
    assert "by their kernels' names" in found.title and found.ceiling_ms_per_step == pytest.approx(
        0.98 * (1 - 66.9 / 989.4), rel=0.02
    )
