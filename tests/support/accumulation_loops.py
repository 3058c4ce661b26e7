"""Hand-built loops that accumulate the gradients of several micro-batches, in microseconds."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.support.anti_patterns import FLOAT, GEMM, SLOW_US, loop, op
from tests.support.chrome_trace import BASE_NS, ChromeTrace

MAIN, BACKWARD = 1, 2  # Threads of the host.
LAYERS, PRODUCT_US, WIDTH, USUAL_SAMPLES = 6, 2.0, 256, 32
MEMORY_BYTES = 140e9


def _product(trace: ChromeTrace, at: float, rows: int) -> float:
    sizes = [[rows, WIDTH], [WIDTH, WIDTH]]
    return op(trace, at, "aten::mm", sizes, kernel=GEMM, kernel_us=PRODUCT_US, host_us=SLOW_US)


def micro_batches(
    trace: ChromeTrace,
    at: float,
    samples: tuple[int, ...] = (USUAL_SAMPLES,) * 4,
    own_gradients: bool = False,
    updates: bool = False,
    reduces: bool = False,
) -> float:
    """Add a step of LAYERS layers that runs micro-batches of ``samples`` one after the other.

    Each has 6 launches in its forward pass and 6 in its backward pass. All but the first also add 6 gradients. A launch takes 24 µs. With
    ``own_gradients``, each micro-batch belongs to another model, so that nothing is added. With ``updates``, the optimizer steps after each one.
    With ``reduces``, ranks reduce gradients after each one.
    """

    def update(at: float) -> float:
        start, at = at, op(trace, at, "aten::_fused_adamw_", [], kernel_us=PRODUCT_US, host_us=SLOW_US)
        trace.host("user_annotation", "Optimizer.step#AdamW.step", start - 0.3, at - 0.1)
        return at

    for index, rows in enumerate(samples):
        trace.thread = MAIN
        for _ in range(LAYERS):
            at = _product(trace, at, rows)
        trace.thread = BACKWARD
        for _ in range(LAYERS):
            start, at = at, _product(trace, at, rows)
            trace.op("autograd::engine::evaluate_function: MmBackward0", start - 0.2, at - 0.2)
            start = at
            if index and not own_gradients and not updates:
                at = op(trace, at + 0.5, "aten::add_", [[WIDTH, WIDTH]] * 2, kernel_us=PRODUCT_US, host_us=SLOW_US)
            trace.op("torch::autograd::AccumulateGrad", start, at + 0.3, [[WIDTH, WIDTH]], [FLOAT])
            trace.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", start - 0.1, at + 0.4)
            at += 1
        if reduces:
            trace.launch(
                (at, at + 2), (at + 3, at + 9), "ncclDevKernel_AllReduce_RING_LL(ncclDevKernelArgsStorage<4096ul>)", stream=17
            )
            at += 10
        trace.thread = MAIN
        if updates:
            at = update(at + 1)
    return at if updates else update(at + 1)


def with_memory(folder: Path, used_share: float) -> list[Path]:
    """Write a loop of four micro-batches, and telemetry in which ``used_share`` of the memory is in use."""
    lines = [{"meta": True, "name": "NVIDIA H200", "hz": 10}]
    lines += [
        {"t_ns": BASE_NS + i * 100_000_000, "mem_total": MEMORY_BYTES, "mem_used": used_share * MEMORY_BYTES, "power_w": 300.0}
        for i in range(60)
    ]
    telemetry = folder / "nvml.jsonl"
    telemetry.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return [*loop(folder, micro_batches), telemetry]


ACCUMULATION_LOOPS: dict[str, Callable[[Path], list[Path]]] = {
    "accumulates_four": partial(loop, add=micro_batches),
    "accumulates_four_with_free_memory": partial(with_memory, used_share=0.05),
    "accumulates_four_in_a_third_of_memory": partial(with_memory, used_share=0.33),
    "accumulates_four_in_most_memory": partial(with_memory, used_share=0.8),
    "accumulates_different_lengths": partial(loop, add=partial(micro_batches, samples=(32, 48, 32, 24))),
    "trains_four_models": partial(loop, add=partial(micro_batches, own_gradients=True)),
    "updates_four_times": partial(loop, add=partial(micro_batches, updates=True)),
    "one_micro_batch": partial(loop, add=partial(micro_batches, samples=(128,))),
    "accumulates_four_and_reduces_each": partial(loop, add=partial(micro_batches, reduces=True)),
}
