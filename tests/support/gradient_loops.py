"""Hand-built loops that differ in how a backward pass handles gradients.

The gradients are cleared by different code, and are computed in different passes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.support.anti_patterns import GEMM, SLOW_US, loop, op
from tests.support.chrome_trace import ChromeTrace

SIZES = [[256, 256], [256, 256]]
MAIN, BACKWARD = 1, 2  # Threads of the host.
CLEARED, ADDED = "c", "a"  # A parameter whose gradient starts anew, and one whose gradient is added to the existing value.


def steps_of(trace: ChromeTrace, at: float, passes: tuple[str, ...]) -> float:
    """Add a step of ``passes``, each with a forward pass and a backward pass.

    The letters of a pass say how the gradient of each parameter is handled, in order. Each product takes the host 24 µs.
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
            trace.op("torch::autograd::AccumulateGrad", start, at + 0.3)
            at += 1
    trace.thread = MAIN
    return op(trace, at, "aten::_fused_adamw_", [], kernel_us=10, host_us=SLOW_US)


def rarely(folder: Path) -> list[Path]:
    """Write a loop in which only the first of four steps clears gradients that the other steps accumulate.

    This is the pattern of a second optimizer that steps rarely.
    """
    kinds = iter(["cccc", "ccaa", "ccaa", "ccaa"])
    return loop(folder, lambda trace, at: steps_of(trace, at, (next(kinds),)))


GRADIENT_LOOPS: dict[str, Callable[[Path], list[Path]]] = {
    "trained_above": partial(loop, add=partial(steps_of, passes=("ccaaaa",))),
    "trained_above_twice": partial(loop, add=partial(steps_of, passes=("ccaaaa", "ccaaaa"))),
    "all_trained": partial(loop, add=partial(steps_of, passes=("cccccc",))),
    "never_cleared": partial(loop, add=partial(steps_of, passes=("aaaaaa",))),
    "trained_below": partial(loop, add=partial(steps_of, passes=("aaaacc",))),
    "gathered": partial(loop, add=partial(steps_of, passes=("cccccc", "aaaaaa"))),
    "gathered_of_experts": partial(loop, add=partial(steps_of, passes=("cccccc", "caaaaa"))),
    "cleared_rarely": rarely,
}
