"""Hand-built loops, each with one anti-pattern that costs time.

Each loop has four steps, on a host that launches about as fast as the GPU works.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.chrome_trace import ChromeTrace

HALF, FLOAT = "c10::BFloat16", "float"
KERNEL = "void at::native::vectorized_elementwise_kernel<4, at::native::{}<float>>(int)"
GEMM = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NNT"
FLASH = "pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits>"
OP_US, KERNEL_US = 6.0, 4.0  # Time of one small operator on the host and on the GPU. The kernel begins 3 µs after its launch.
SLOW_US = 24.0  # Time of one small operator on a host that is slower than the GPU.

Add = Callable[[ChromeTrace, float], float]  # It takes the start of the first operator, and returns the end of the last one.


def op(
    trace: ChromeTrace,
    at: float,
    name: str,
    dims: list[Any],
    kind: str = FLOAT,
    kernel_us: float = KERNEL_US,
    kernel: str = "",
    host_us: float = OP_US,
    **more: Any,
) -> float:
    """Add an operator that launches one kernel, and return the time at which the host continues."""
    trace.op(name, at, at + host_us - 0.5, dims, [kind] * len(dims), **more)
    called = at + host_us - 5
    trace.launch(
        (called, called + 2), (called + 3, called + 3 + kernel_us), kernel or KERNEL.format(name.removeprefix("aten::"))
    )
    return at + max(host_us, kernel_us)


def loop(folder: Path, add: Add, steps: int = 4) -> list[Path]:
    """Write a trace of ``steps`` steps, each with the operators that ``add`` adds."""
    trace, at = ChromeTrace(made_for=folder.name), 0.0  # Different bytes make the trace a different run.
    for k in range(steps):
        end = add(trace, at + 10)
        trace.step(k + 1, at, end + 5)
        at = end + 5
    return [trace.write(folder / "trace.json")]


def cells(trace: ChromeTrace, at: float, count: int) -> float:
    """Add ``count`` LSTM cells over 32 rows with their backward passes."""
    rows, width, gates = 32, 512, 2048
    for i in range(count):
        start, number = at, 100 + i
        for _ in range(2):  # One product of the input and one of the hidden state.
            at = op(
                trace, at, "aten::mm", [[rows, width], [width, gates]], kernel=GEMM, kernel_us=5, **{"Sequence number": number}
            )
        at = op(trace, at, "aten::_thnn_fused_lstm_cell", [[rows, gates], [rows, gates]])
        trace.op("aten::lstm_cell", start - 0.2, at - 0.2)
    for i in reversed(range(count)):
        start, number = at, {"Sequence number": 100 + i}
        for _ in range(2):
            at = op(trace, at, "aten::mm", [[rows, gates], [gates, width]], kernel=GEMM, kernel_us=5)
            at = op(trace, at, "aten::mm", [[gates, rows], [rows, width]], kernel=GEMM, kernel_us=5)
            at = op(trace, at, "aten::add_", [[gates, width], [gates, width]])
        trace.op("autograd::engine::evaluate_function: MmBackward0", start - 0.2, at - 0.2, **number)
    return at


def math_attention(trace: ChromeTrace, at: float, math: bool) -> float:
    """Add attention of 4 heads over 256 tokens, as PyTorch's math backend or as user code."""
    start, scores = at, [4, 256, 256]
    at = op(trace, at, "aten::bmm", [[4, 256, 64], [4, 64, 256]], HALF, 60, GEMM)
    at = op(trace, at, "aten::mul", [scores, []], HALF, 80)
    at = op(
        trace,
        at,
        "aten::_softmax",
        [scores, [], []],
        HALF,
        120,
        "void softmax_warp_forward<float, float, float, 8, false, false>(int)",
    )
    at = op(trace, at, "aten::bmm", [scores, [4, 256, 64]], HALF, 60, GEMM)
    if math:
        trace.op("aten::_scaled_dot_product_attention_math", start - 0.2, at - 0.2)
        trace.op("aten::scaled_dot_product_attention", start - 0.4, at - 0.1)
    return at


def padded_attention(trace: ChromeTrace, at: float, padded: bool) -> float:
    """Add fused attention with a head size of 60 padded to 64, or with a head size of 64."""
    start = at
    if padded:
        for _ in range(3):
            inner = at
            at = op(trace, at, "aten::copy_", [[4, 256, 60]], HALF, 40)
            trace.op("aten::constant_pad_nd", inner - 0.2, at - 0.3)
    heads = [[1, 4, 256, 64]] * 3
    at = op(
        trace,
        at,
        "aten::_scaled_dot_product_flash_attention",
        heads,
        HALF,
        200,
        FLASH,
    )
    trace.op("aten::scaled_dot_product_attention", start - 0.4, at - 0.1)
    return at


def copies_in(trace: ChromeTrace, at: float, count: int, size: int) -> float:
    """Add ``count`` copies of ``size`` bytes from pinned memory at 50 GB/s, then a product."""
    takes = max(1.0, size / 50_000)
    for _ in range(count):
        trace.op("aten::copy_", at, at + 9, [[size // 4]], [FLOAT])
        trace.launch((at + 2, at + 7), (at + 8, at + 8 + takes), "Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", bytes=size)
        at += max(10.0, takes)
    return op(trace, at, "aten::mm", [[1024, 1024], [1024, 1024]], HALF, 500, GEMM)


def fills(trace: ChromeTrace, at: float, below: str) -> float:
    """Add 20 results that the operator ``below`` fills before they are computed."""
    for _ in range(20):
        start = at
        at = op(trace, at, "aten::fill_", [[1024, 1024]], kernel_us=8, kernel=KERNEL.format("FillFunctor"))
        trace.op(below, start - 0.2, at - 0.2)
        at = op(trace, at, "aten::add", [[1024, 1024], [1024, 1024]], kernel_us=12)
    return at


def clipping(trace: ChromeTrace, at: float, scaled: bool) -> float:
    """Add a norm for each of 30 gradients, and a scaling of each if ``scaled``."""
    for _ in range(30):
        at = op(
            trace,
            at,
            "aten::linalg_vector_norm",
            [[256, 256]],
            kernel="void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(int)",
            host_us=SLOW_US,
        )
        if scaled:
            at = op(trace, at, "aten::mul_", [[256, 256], []], host_us=SLOW_US)
    return at


def experts(trace: ChromeTrace, at: float, rows: tuple[int, ...], read_us: float = 0.0) -> float:
    """Add one expert of two products for each entry of ``rows``, after a read of ``read_us``."""
    for count in rows:
        if read_us:
            trace.op("aten::_local_scalar_dense", at, at + read_us, [[]], [FLOAT])
            trace.launch((at + 4, at + 6), (at + 8, at + 9), "Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", bytes=8)
            trace.host("cuda_runtime", "cudaStreamSynchronize", at + 7, at + read_us - 1)
            at += read_us
        at = op(
            trace, at, "aten::index", [[1024, 256]], HALF, kernel="void at::native::vectorized_gather_kernel<16, long>(int)"
        )
        at = op(trace, at, "aten::mm", [[count, 256], [256, 1024]], HALF, kernel=GEMM, host_us=SLOW_US)
        at = op(trace, at, "aten::gelu", [[count, 1024]], HALF, host_us=SLOW_US)
        at = op(trace, at, "aten::mm", [[count, 1024], [1024, 256]], HALF, kernel=GEMM, host_us=SLOW_US)
        adding = "void at::native::indexFuncLargeIndex<float>(int)"
        at = op(trace, at, "aten::index_add", [[1024, 256]], HALF, kernel=adding, host_us=SLOW_US)
    return at


def rows_one_by_one(trace: ChromeTrace, at: float, count: int) -> float:
    """Add a loop that writes ``count`` rows of a tensor, then a product."""
    for _ in range(count):
        trace.op("aten::select", at, at + 2, [[64, 1024], [], []], [FLOAT, "Scalar", "Scalar"])
        at = op(trace, at + 2.5, "aten::mul", [[1024], []], host_us=SLOW_US)
        trace.op("aten::select", at, at + 2, [[64, 1024], [], []], [FLOAT, "Scalar", "Scalar"])
        at = op(trace, at + 2.5, "aten::copy_", [[1024], [1024]], host_us=SLOW_US)
    return op(trace, at, "aten::mm", [[1024, 1024], [1024, 1024]], HALF, 200, GEMM)


def bias_and_norm(trace: ChromeTrace, at: float, follows: str) -> float:
    """Add a convolution with a bias, then the operator ``follows``."""
    start, image = at, [32, 64, 56, 56]
    at = op(
        trace,
        at,
        "aten::cudnn_convolution",
        [image, [64, 64, 3, 3]],
        HALF,
        200,
        "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwc_kernel",
    )
    at = op(trace, at, "aten::add_", [image, [1, 64, 1, 1]], HALF, 60)
    trace.op("aten::conv2d", start - 0.2, at - 0.2, [image, [64, 64, 3, 3], [64]], [HALF] * 3)
    return op(trace, at, follows, [image, [64]], HALF, 100)


def graph_capture(trace: ChromeTrace, at: float, captures: bool) -> float:
    """Add products, a graph capture of 400 µs whose launches do not run, a graph launch and a product."""
    for _ in range(4):  # The capture takes less than half of the step. Otherwise, the trace would not show the run.
        at = op(trace, at, "aten::mm", [[1024, 1024], [1024, 1024]], HALF, 100, GEMM)
    if captures:
        trace.host("cuda_runtime", "cudaStreamBeginCapture", at, at + 5)
        for i in range(20):
            trace.host("cuda_runtime", "cudaLaunchKernel", at + 10 + 18 * i, at + 14 + 18 * i, correlation=9_000 + i)
        trace.host("cuda_runtime", "cudaStreamEndCapture", at + 380, at + 385)
        trace.host("cuda_runtime", "cudaGraphInstantiate", at + 386, at + 400)
        trace.correlation += 1
        trace.host("cuda_runtime", "cudaGraphLaunch", at + 401, at + 409, correlation=trace.correlation)
        for i in range(20):
            trace.gpu((at + 412 + 4 * i, at + 415 + 4 * i), "captured", correlation=trace.correlation)
        at += 100
    return op(trace, at + 400, "aten::mm", [[1024, 1024], [1024, 1024]], HALF, 100, GEMM)


def link_copies(trace: ChromeTrace, at: float, busy: float, pattern: str = "HtoD (Pinned -> Device)") -> float:
    """Add 1 ms in which the link to the host is busy for the share ``busy``, and a product of 0.3 ms.

    The copies run at 55 GB/s. The product runs at the same time.
    """
    trace.op("aten::copy_", at, at + 9, [[1024, 1024]], [FLOAT])
    copied = {"bytes": int(busy * 1e-3 * 55e9)}
    trace.launch((at + 2, at + 7), (at + 8, at + 8 + 1000 * busy), f"Memcpy {pattern}", "gpu_memcpy", stream=9, **copied)
    op(trace, at + 10, "aten::mm", [[1024, 1024], [1024, 1024]], HALF, 300, GEMM)
    trace.host("cuda_runtime", "cudaDeviceSynchronize", at + 20, at + 90 + 1000 * busy)
    return at + 1000


def both_ways(trace: ChromeTrace, at: float) -> float:
    """Add ``link_copies`` in both directions at the same time.

    The copies to the host take 0.9 of the millisecond, the copies from the host 0.8 of it.
    """
    copied = {"bytes": int(0.8e-3 * 55e9)}
    trace.launch((at + 9.2, at + 9.6), (at + 12, at + 812), "Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", stream=10, **copied)
    return link_copies(trace, at, 0.9, "DtoH (Device -> Pinned)")


def compiled_products(trace: ChromeTrace, at: float, kernel_us: float, kernel: str = GEMM) -> float:
    """Add compiled code with ten products of 16 × 4096 by 4096² in bf16.

    The kernel model predicts about 10 µs for each.
    """
    start = at
    for _ in range(10):
        at = op(trace, at, "aten::mm", [[16, 4096], [4096, 4096]], HALF, kernel_us, kernel)
        at = op(trace, at, "triton_poi_fused_gelu_0", [[16, 4096]], HALF, kernel="triton_poi_fused_gelu_0")
    trace.host("user_annotation", "Torch-Compiled Region: 0/0", start - 0.2, at)
    return at


def scripted_functions(trace: ChromeTrace, at: float, name: str) -> float:
    """Add two operators inside an event called ``name``."""
    start = at
    at = op(trace, at, "aten::tanh", [[1024, 1024]])
    at = op(trace, at, "aten::mul", [[1024, 1024], [1024, 1024]])
    trace.op(name, start - 0.2, at)
    return op(trace, at, "aten::mm", [[1024, 1024], [1024, 1024]], HALF, 200, GEMM)


ANTI_PATTERNS: dict[str, Callable[[Path], list[Path]]] = {
    "lstm_cells": partial(loop, add=partial(cells, count=12)),
    "few_lstm_cells": partial(loop, add=partial(cells, count=4)),
    "math_backend": partial(loop, add=partial(math_attention, math=True)),
    "attention_by_hand": partial(loop, add=partial(math_attention, math=False)),
    "padded_heads": partial(loop, add=partial(padded_attention, padded=True)),
    "aligned_heads": partial(loop, add=partial(padded_attention, padded=False)),
    "many_small_copies": partial(loop, add=partial(copies_in, count=40, size=4096)),
    "large_copies": partial(loop, add=partial(copies_in, count=40, size=1 << 20)),
    "two_small_copies": partial(loop, add=partial(copies_in, count=2, size=4096)),
    "filled_memory": partial(loop, add=partial(fills, below="aten::empty")),
    "zeros_asked_for": partial(loop, add=partial(fills, below="aten::zeros")),
    "clipped_one_by_one": partial(loop, add=partial(clipping, scaled=True)),
    "norms_logged": partial(loop, add=partial(clipping, scaled=False)),
    "expert_loop": partial(loop, add=partial(experts, rows=(128, 96, 160, 112, 144, 128, 80, 176))),
    "expert_loop_with_reads": partial(loop, add=partial(experts, rows=(128, 96, 160, 112, 144, 128, 80, 176), read_us=40.0)),
    "equal_layers": partial(loop, add=partial(experts, rows=(128,) * 8)),
    "rows_in_a_loop": partial(loop, add=partial(rows_one_by_one, count=24)),
    "few_rows": partial(loop, add=partial(rows_one_by_one, count=8)),
    "bias_before_norm": partial(loop, add=partial(bias_and_norm, follows="aten::batch_norm")),
    "bias_before_relu": partial(loop, add=partial(bias_and_norm, follows="aten::relu")),
    "graph_captured": partial(loop, add=partial(graph_capture, captures=True)),
    "nothing_captured": partial(loop, add=partial(graph_capture, captures=False)),
    "link_full": partial(loop, add=partial(link_copies, busy=0.9)),
    "link_full_to_host": partial(loop, add=partial(link_copies, busy=0.9, pattern="DtoH (Device -> Pinned)")),
    "link_full_both_ways": partial(loop, add=both_ways),
    "link_half_used": partial(loop, add=partial(link_copies, busy=0.5)),
    "slow_compiled_products": partial(loop, add=partial(compiled_products, kernel_us=60)),
    "quick_compiled_products": partial(loop, add=partial(compiled_products, kernel_us=9)),
    "autotuned_products": partial(loop, add=partial(compiled_products, kernel_us=60, kernel="triton_tem_fused_mm_1")),
    "scripted_functions": partial(loop, add=partial(scripted_functions, name="<forward op>")),
    "functions_called_forward": partial(loop, add=partial(scripted_functions, name="forward")),
}
