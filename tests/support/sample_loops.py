"""Hand-built loops over the samples of a batch.

A step calls a model once per sample, or calls layers that each have their own weights. In other loops, the samples are prepared
before the model runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tests.support.anti_patterns import GEMM, SLOW_US, loop, op
from tests.support.chrome_trace import ChromeTrace

WEIGHT = [256, 256]
SAMPLES = 16
NUMBERS = itertools.count(100, 100)  # Sequence numbers of autograd, which no two steps share.


def called(
    trace: ChromeTrace, at: float, batch: int, weights: int, read: bool = False, tokens: Sequence[int] = (64,) * SAMPLES
) -> float:
    """Add SAMPLES linear layers over ``batch`` sequences of 64 tokens, with their backward passes.

    ``weights`` of the layers get a gradient. If ``read``, the host reads a value before each layer. ``tokens`` are the lengths
    of the sequences.
    """
    first = next(NUMBERS)
    for i in range(SAMPLES):
        rows = [batch * tokens[i], 256]
        if read:
            trace.op("aten::_local_scalar_dense", at, at + 30, [[]], ["float"])
            trace.launch((at + 5, at + 25), (at + 15, at + 17), "Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", bytes=4)
            at += 32
        start, facts = at, {"Sequence number": first + i}
        at = op(trace, at, "aten::mm", [rows, WEIGHT], kernel=GEMM, kernel_us=5, host_us=SLOW_US, **facts)
        for margin in (0.2, 0.3):  # Autocast calls an operator again inside itself.
            trace.op("aten::linear", start - margin, at - 0.4 + margin, [[batch, tokens[i], 256], WEIGHT, [256]], ["float"] * 3)
    for i in reversed(range(SAMPLES)):
        start, rows = at, [batch * tokens[i], 256]
        at = op(trace, at, "aten::mm", [rows, WEIGHT], kernel=GEMM, kernel_us=5, host_us=SLOW_US)
        at = op(trace, at, "aten::mm", [[256, rows[0]], rows], kernel=GEMM, kernel_us=5, host_us=SLOW_US)
        if weights == 1 and i < SAMPLES - 1:
            at = op(trace, at, "aten::add_", [WEIGHT, WEIGHT], host_us=SLOW_US)
        trace.op("autograd::engine::evaluate_function: MmBackward0", start - 0.2, at - 0.2, **{"Sequence number": first + i})
    for _ in range(weights):
        trace.op("torch::autograd::AccumulateGrad", at, at + 2, [WEIGHT], ["float"])
        at += 3
    return at


def prepared(trace: ChromeTrace, at: float, samples: int, product: bool = False, learned: bool = False) -> float:
    """Split a batch of images, process each image, stack the results and run a layer.

    Each image gets two operators, and a product if ``product``. With ``learned``, the layer gets a gradient.
    """
    first = next(NUMBERS)
    trace.op("aten::unbind", at, at + 3, [[samples, 3, 64, 64], []], ["float", "Scalar"])
    at += 4
    for i in range(samples):
        facts = {"Sequence number": first + i} if learned else {}
        at = op(trace, at, "aten::mul", [[3, 64, 64], []], host_us=SLOW_US)
        if i % 2:  # Random operations make the operators of two samples differ.
            at = op(trace, at, "aten::flip", [[3, 64, 64], []], host_us=SLOW_US)
        if product:
            at = op(trace, at, "aten::mm", [[192, 64], [64, 64]], kernel=GEMM, kernel_us=5, host_us=SLOW_US)
        at = op(trace, at, "aten::sub", [[3, 64, 64], [3, 1, 1]], host_us=SLOW_US, **facts)
    at = op(trace, at, "aten::stack", [[], []])
    at = op(trace, at, "aten::mm", [[samples * 192, 64], [64, 256]], kernel=GEMM, kernel_us=50)
    for i in reversed(range(samples if learned else 0)):
        start = at
        at = op(trace, at, "aten::neg", [[3, 64, 64]], host_us=SLOW_US)
        trace.op("autograd::engine::evaluate_function: SubBackward0", start - 0.2, at - 0.2, **{"Sequence number": first + i})
    return at


def made_on_host(trace: ChromeTrace, at: float, filled: bool) -> float:
    """Add a tensor of zeros on the host that is copied to the GPU while the host waits, and a product.

    If ``filled``, 40 rows of Python numbers are written into the tensor before the copy.
    """
    trace.op("aten::zeros", at, at + 120, [[]], ["ScalarList"])
    at += 125
    for _ in range(40 if filled else 0):
        trace.op("aten::lift_fresh", at, at + 1, [[64]], ["long int"])
        trace.op("aten::select", at + 2, at + 5, [[SAMPLES, 64]], ["long int"])
        trace.op("aten::copy_", at + 6, at + 9, [[64], [64]], ["long int"] * 2)
        at += 20
    for name, before in (("aten::to", 2), ("aten::_to_copy", 1), ("aten::copy_", 0)):
        trace.op(name, at + 10 - before, at + 60 + before, [[SAMPLES, 64]], ["long int"])
    trace.launch((at + 15, at + 40), (at + 25, at + 35), "Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", bytes=8192)
    trace.host("cuda_runtime", "cudaStreamSynchronize", at + 42, at + 55)
    return op(trace, at + 65, "aten::mm", [[1024, 1024], [1024, 1024]], kernel=GEMM, kernel_us=200)


SAMPLE_LOOPS: dict[str, Callable[[Path], list[Path]]] = {
    "called_sample_by_sample": partial(loop, add=partial(called, batch=1, weights=1)),
    "called_after_reads": partial(loop, add=partial(called, batch=1, weights=1, read=True)),
    "called_as_it_grows": partial(loop, add=partial(called, batch=1, weights=1, read=True, tokens=range(50, 50 + SAMPLES))),
    "called_with_several_sizes": partial(
        loop, add=partial(called, batch=1, weights=1, read=True, tokens=[60 + 7 * i % 16 for i in range(SAMPLES)])
    ),
    "layers_of_one_sample": partial(loop, add=partial(called, batch=1, weights=SAMPLES)),
    "called_batch_by_batch": partial(loop, add=partial(called, batch=8, weights=1)),
    "prepared_one_by_one": partial(loop, add=partial(prepared, samples=SAMPLES)),
    "zeros_copied": partial(loop, add=partial(made_on_host, filled=False)),
    "zeros_filled_and_copied": partial(loop, add=partial(made_on_host, filled=True)),
    "few_prepared": partial(loop, add=partial(prepared, samples=6)),
    "states_one_by_one": partial(loop, add=partial(prepared, samples=SAMPLES, product=True)),
    "learned_one_by_one": partial(loop, add=partial(prepared, samples=SAMPLES, learned=True)),
}
