"""Loops built by hand over what a backward pass does with gradients: who clears them, and in which passes they are computed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.support.anti_patterns import GEMM, SLOW_US, loop, op
from tests.support.chrome_trace import ChromeTrace

SIZES = [[256, 256], [256, 256]]
MAIN, BACKWARD = 1, 2  # threads
CLEARED, ADDED = "c", "a"  # a parameter whose gradient starts anew, and one whose gradient is added to what was there


def steps_of(trace: ChromeTrace, at: float, passes: tuple[str, ...]) -> float:
    """Add a step of ``passes``, each a forward pass and a backward one in which parameters follow each other as its letters say, 24 µs of the host a product."""
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
    """Write a loop whose first step of four clears what the others add up: a second optimizer, which steps rarely."""
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
