"""Loops built by hand that call a model often in a step: with sample after sample, or with layers that have weights of their own."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.support.anti_patterns import GEMM, SLOW_US, loop, op
from tests.support.chrome_trace import ChromeTrace

WEIGHT = [256, 256]
SAMPLES = 16


NUMBERS = itertools.count(100, 100)  # autograd's, which no two steps share


def called(trace: ChromeTrace, at: float, batch: int, weights: int) -> float:
    """Add SAMPLES linear layers over ``batch`` sequences of 64 tokens with their backward passes; ``weights`` of them get a gradient."""
    rows, first = [batch * 64, 256], next(NUMBERS)
    for i in range(SAMPLES):
        start, facts = at, {"Sequence number": first + i}
        at = op(trace, at, "aten::mm", [rows, WEIGHT], kernel=GEMM, kernel_us=5, host_us=SLOW_US, **facts)
        for around in (0.2, 0.3):  # autocast calls an operator again inside itself
            trace.op("aten::linear", start - around, at - around, [[batch, 64, 256], WEIGHT, [256]], ["float"] * 3)
    for i in reversed(range(SAMPLES)):
        start = at
        at = op(trace, at, "aten::mm", [rows, WEIGHT], kernel=GEMM, kernel_us=5, host_us=SLOW_US)
        at = op(trace, at, "aten::mm", [[256, rows[0]], rows], kernel=GEMM, kernel_us=5, host_us=SLOW_US)
        if weights == 1 and i < SAMPLES - 1:
            at = op(trace, at, "aten::add_", [WEIGHT, WEIGHT], host_us=SLOW_US)
        trace.op("autograd::engine::evaluate_function: MmBackward0", start - 0.2, at - 0.2, **{"Sequence number": first + i})
    for _ in range(weights):
        trace.op("torch::autograd::AccumulateGrad", at, at + 2, [WEIGHT], ["float"])
        at += 3
    return at


SAMPLE_LOOPS: dict[str, Callable[[Path], list[Path]]] = {
    "called_sample_by_sample": partial(loop, add=partial(called, batch=1, weights=1)),
    "layers_of_one_sample": partial(loop, add=partial(called, batch=1, weights=SAMPLES)),
    "called_batch_by_batch": partial(loop, add=partial(called, batch=8, weights=1)),
}
