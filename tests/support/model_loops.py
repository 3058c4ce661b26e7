"""Hand-built loops of whole layers, whose host queues their kernels ahead of the GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.anti_patterns import FLASH, FLOAT, HALF, loop
from tests.support.chrome_trace import ChromeTrace

ODD_GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_32x4_tn_align1>(cutlass::Params)"


def odd_width(trace: ChromeTrace, at: float, width: int, heads: int) -> float:
    """Add the forward pass of a layer and a vocabulary over 4 x 1024 tokens, then a wait for the GPU."""
    tokens, head, free = 4096, width // heads, at + 8

    def launch(name: str, dims: list[Any], kernel_us: float, kernel: str, **more: Any) -> None:
        nonlocal at, free
        trace.op(name, at, at + 9, dims, [HALF] * len(dims), **more)
        trace.launch((at + 2, at + 7), (free, free + kernel_us), kernel)
        at, free = at + 10, free + kernel_us

    products = (
        (width, 3 * width, 240),
        (width, width, 100),
        (width, 4 * width, 300),
        (4 * width, width, 300),
        (width, 50257, 8000),
    )
    for rows, columns, kernel_us in products:
        strides = {"Input Strides": [[rows, 1], [1, rows]]}
        launch("aten::mm", [[tokens, rows], [rows, columns]], kernel_us, ODD_GEMM, **strides)
    start, padded = at, -(-head // 8) * 8
    causal = {"Concrete Inputs": ["", "", "", "0.", "True", "False", ""]}
    launch("aten::_scaled_dot_product_flash_attention", [[4, heads, 1024, padded]] * 3, 200, FLASH, **causal)
    trace.op("aten::scaled_dot_product_attention", start - 0.4, at - 0.1, [[4, heads, 1024, head]] * 3, [HALF] * 3)
    trace.host("cuda_runtime", "cudaDeviceSynchronize", at, free)
    return free


def starved_in_fp32(trace: ChromeTrace, at: float) -> float:
    """Add 25 ms of waiting for the loader, then 1 ms of an FP32 product and 3 ms of other work."""
    trace.op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + 25_000)
    at, free = at + 25_000, at + 25_008
    for name, dims, kernel_us, kernel in (
        ("aten::mm", [[2048, 4096], [4096, 2048]], 1000.0, "ampere_sgemm_128x128_nn"),
        (
            "aten::relu",
            [[3000, 1000]],
            3000.0,
            "void at::native::vectorized_elementwise_kernel<4, at::native::relu<float>>(int)",
        ),
    ):
        trace.op(name, at, at + 9, dims, [FLOAT] * len(dims))
        trace.launch((at + 2, at + 7), (free, free + kernel_us), kernel)
        at, free = at + 10, free + kernel_us
    trace.host("cuda_runtime", "cudaDeviceSynchronize", at, free)
    return free


MODEL_LOOPS: dict[str, Callable[[Path], list[Path]]] = {
    "starved_in_fp32": partial(loop, add=starved_in_fp32),
    "odd_model_width": partial(loop, add=partial(odd_width, width=774, heads=6)),
}
