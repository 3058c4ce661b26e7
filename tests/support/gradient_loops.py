"""Hand-built loops that differ in how a backward pass handles gradients.

The gradients are cleared by different code, and are computed in different passes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.anti_patterns import GEMM, SLOW_US, loop, op
from tests.support.chrome_trace import ChromeTrace

REDUCE = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(int)"
SIZES = [[256, 256], [256, 256]]
MAIN, BACKWARD = 1, 2  # Threads of the host.
CLEARED, ADDED = "c", "a"  # A parameter whose gradient starts anew, and one whose gradient is added to the existing value.


def training_step(trace: ChromeTrace, at: float, passes: tuple[str, ...], **accumulated: Any) -> float:
    """Add a step of ``passes``, each with a forward pass and a backward pass.

    The letters of a pass say how the gradient of each parameter is handled, in order. Each product takes the host 24 µs.
    ``accumulated`` are further values of autograd's accumulations.
    """
    for letters in passes:
        trace.thread = MAIN
        for _ in letters:
            at = op(trace, at, "aten::mm", SIZES, kernel=GEMM, kernel_us=10, host_us=SLOW_US)
        at = op(trace, at, "aten::ones_like", [[]], host_us=SLOW_US)
        trace.thread = BACKWARD
        for letter in letters:
            start = at
            at = op(trace, at, "aten::mm", SIZES, kernel=GEMM, kernel_us=20, host_us=SLOW_US)
            trace.op("autograd::engine::evaluate_function: MmBackward0", start - 0.2, at - 0.2)
            start = at
            if letter == ADDED:
                at = op(trace, at + 0.5, "aten::add_", SIZES, host_us=SLOW_US)
            trace.op("torch::autograd::AccumulateGrad", start, at + 0.3, **accumulated)
            at += 1
    trace.thread = MAIN
    return op(trace, at, "aten::_fused_adamw_", [], kernel_us=10, host_us=SLOW_US)


def cleared_in_first_step(folder: Path) -> list[Path]:
    """Write a loop in which only the first of four steps clears gradients that the other steps accumulate.

    This is the pattern of a second optimizer that steps rarely.
    """
    kinds = iter(["cccc", "ccaa", "ccaa", "ccaa"])
    return loop(folder, lambda trace, at: training_step(trace, at, (next(kinds),)))


def gradient_summaries(trace: ChromeTrace, at: float, operator: str, every: bool = True, then: str = "") -> float:
    """Add a step of twelve layers, and a summary of each gradient or only of the first.

    ``then`` is what happens next: each gradient is scaled in place, the host reads each summary, or a backward pass uses it.
    """
    backward = partial(training_step, trace, passes=("cccccccccccc",), dims=SIZES[:1], types=["float"])
    at = at if then == "learn" else backward(at)
    for _ in range(12 if every else 1):
        at = op(trace, at, operator, SIZES[:1], kernel=REDUCE, host_us=SLOW_US)
        if then == "scale":
            at = op(trace, at, "aten::mul_", [*SIZES[:1], []], host_us=SLOW_US)
        elif then == "read":
            trace.op("aten::item", at, at + 30)
            trace.launch((at + 1, at + 3), (at + 4, at + 6), "Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", bytes=4)
            trace.host("cuda_runtime", "cudaStreamSynchronize", at + 4, at + 28)
            at += 31
    return backward(at) if then == "learn" else at


def norms_read(trace: ChromeTrace, at: float, tensors: int = 12, first: bool = True) -> float:
    """Add a step of twelve layers in which the host reads norms of gradients one by one.

    The norms are those of ``tensors`` gradients. They come ``first``, or after the optimizer's step.
    """

    def update(at: float) -> float:
        start, at = at, op(trace, at, "aten::_fused_adamw_", [], kernel_us=10, host_us=SLOW_US)
        trace.host("user_annotation", "Optimizer.step#AdamW.step", start - 0.3, at - 0.1)
        return at

    at = training_step(trace, at, ("cccccccccccc",), dims=SIZES[:1], types=["float"])
    at = at if first else update(at)
    for _ in range(tensors):
        at = op(trace, at, "aten::linalg_vector_norm", SIZES[:1], kernel=REDUCE, host_us=SLOW_US)
        trace.op("aten::item", at, at + 30)
        trace.launch((at + 1, at + 3), (at + 4, at + 6), "Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", bytes=4)
        trace.host("cuda_runtime", "cudaStreamSynchronize", at + 4, at + 28)
        at += 31
    return update(at) if first else at


def weight_averages(
    trace: ChromeTrace, at: float, operators: tuple[str, ...], place: str = "after", tensors: int = 12, norms: bool = False
) -> float:
    """Add a step of twelve layers and ``operators`` for each of ``tensors`` weights.

    ``place`` says whether these operators come after the optimizer's step, before it or inside it. With ``norms``, a norm of each gradient
    comes first.
    """

    def update(at: float) -> float:
        for _ in range(tensors):
            for operator in operators:
                second = [] if operator.startswith("aten::mul") else SIZES[0]
                at = op(trace, at, operator, [SIZES[0], second], host_us=SLOW_US)
        return at

    at = training_step(trace, at, ("cccccccccccc",), dims=SIZES[:1], types=["float"])
    for _ in range(12 if norms else 0):
        at = op(trace, at, "aten::linalg_vector_norm", SIZES[:1], kernel=REDUCE, host_us=SLOW_US)
    at = update(at) if place == "before" else at
    start, at = at, op(trace, at, "aten::_fused_adamw_", [], kernel_us=10, host_us=SLOW_US)
    at = update(at) if place == "inside" else at
    trace.host("user_annotation", "Optimizer.step#AdamW.step", start - 0.3, at - 0.1)
    return update(at) if place == "after" else at


GRADIENT_LOOPS: dict[str, Callable[[Path], list[Path]]] = {
    "trained_above": partial(loop, add=partial(training_step, passes=("ccaaaa",))),
    "trained_above_twice": partial(loop, add=partial(training_step, passes=("ccaaaa", "ccaaaa"))),
    "all_trained": partial(loop, add=partial(training_step, passes=("cccccc",))),
    "never_cleared": partial(loop, add=partial(training_step, passes=("aaaaaa",))),
    "trained_below": partial(loop, add=partial(training_step, passes=("aaaacc",))),
    "norms_of_all": partial(loop, add=partial(gradient_summaries, operator="aten::linalg_vector_norm")),
    "histograms_of_all": partial(loop, add=partial(gradient_summaries, operator="aten::histc")),
    "norm_of_one": partial(loop, add=partial(gradient_summaries, operator="aten::linalg_vector_norm", every=False)),
    "norms_to_scale": partial(loop, add=partial(gradient_summaries, operator="aten::linalg_vector_norm", then="scale")),
    "norms_in_the_loss": partial(loop, add=partial(gradient_summaries, operator="aten::linalg_vector_norm", then="learn")),
    "norms_read": partial(loop, add=partial(gradient_summaries, operator="aten::linalg_vector_norm", then="read")),
    "norms_read_before_update": partial(loop, add=norms_read),
    "norms_read_after_update": partial(loop, add=partial(norms_read, first=False)),
    "few_norms_read_before_update": partial(loop, add=partial(norms_read, tensors=5)),
    "weights_averaged": partial(loop, add=partial(weight_averages, operators=("aten::mul_", "aten::add_"))),
    "weights_averaged_by_lerp": partial(loop, add=partial(weight_averages, operators=("aten::lerp_",))),
    "weights_averaged_in_a_copy": partial(
        loop, add=partial(weight_averages, operators=("aten::mul", "aten::mul", "aten::add", "aten::copy_"))
    ),
    "weights_averaged_and_norms_logged": partial(
        loop, add=partial(weight_averages, operators=("aten::mul_", "aten::add_"), norms=True)
    ),
    "weights_averaged_at_once": partial(loop, add=partial(weight_averages, operators=("aten::_foreach_lerp_",), tensors=1)),
    "few_weights_averaged": partial(loop, add=partial(weight_averages, operators=("aten::mul_", "aten::add_"), tensors=4)),
    "weights_decayed": partial(loop, add=partial(weight_averages, operators=("aten::mul_",))),
    "weights_moved_by_momentum": partial(
        loop, add=partial(weight_averages, operators=("aten::mul_", "aten::add_", "aten::add_"))
    ),
    "weights_updated_by_the_optimizer": partial(
        loop, add=partial(weight_averages, operators=("aten::mul_", "aten::add_"), place="inside")
    ),
    "gradients_changed_before_the_optimizer": partial(
        loop, add=partial(weight_averages, operators=("aten::mul_", "aten::add_"), place="before")
    ),
    "gathered": partial(loop, add=partial(training_step, passes=("cccccc", "aaaaaa"))),
    "gathered_of_experts": partial(loop, add=partial(training_step, passes=("cccccc", "caaaaa"))),
    "cleared_rarely": cleared_in_first_step,
}
