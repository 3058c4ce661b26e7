"""Hand-built loops whose shapes change from step to step, or stay the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sawtooth.ingest.capture.packing import pack_run
from tests.support.anti_patterns import GEMM, HALF, KERNEL, OP_US, Add, loop, op
from tests.support.chrome_trace import ChromeTrace


def lengths(folder: Path, longest: int) -> list[Path]:
    """Write four steps of one product, alternately with 256 rows and with ``longest`` rows."""
    turns = itertools.cycle((256, longest))

    def add(trace: ChromeTrace, at: float) -> float:
        rows = next(turns)
        return op(trace, at, "aten::mm", [[rows, 1024], [1024, 1024]], HALF, rows / 2, GEMM)

    return loop(folder, add)


def planned_operators(folder: Path, name: str, *, always: bool) -> list[Path]:
    """Write a loop of four layers of the operator ``name``, whose first call is slow for a new length.

    That call takes the host 5 ms. The length is new in each step, or only once.
    """
    lengths = itertools.count(200, 8) if always else itertools.chain((200,), itertools.repeat(208))
    known: set[int] = set()

    def layers(trace: ChromeTrace, at: float) -> float:
        length = next(lengths)
        for _ in range(4):
            takes_us, dims = OP_US if length in known else 5000.0, [[1, 4, length, 64]] * 3
            op(trace, at, name, dims, HALF, 200, "cudnn_generated_fort_native_sdpa", host_us=takes_us)
            at += takes_us + 200  # At this time its kernel is done.
            known.add(length)
        return at

    return loop(folder, layers)


def short_kernels(folder: Path, longer: int) -> list[Path]:
    """Write 40 products of 4 µs, launched in 30 µs each; their length grows by ``longer`` per step."""
    lengths = itertools.count(128, longer)

    def products(trace: ChromeTrace, at: float) -> float:
        length = next(lengths)
        for _ in range(40):
            at = op(trace, at, "aten::mm", [[length, 1024], [1024, 1024]], HALF, kernel=GEMM, host_us=30)
        return at

    return loop(folder, products)


def layer_step(trace: ChromeTrace, at: float, host_us: float) -> float:
    """Add a step of a layer over 4096 tokens, whose operators each take the host ``host_us``.

    The host waits for the GPU at the end. The batch's copy takes the GPU 100 µs, three products 400 µs each, the added gradient 150 µs and the optimizer 250 µs.
    """
    free = at + host_us
    tokens, weight = [4096, 1024], [1024, 1024]

    def launch(name: str, dims: list[list[int]], us: float, kernel: str, kind: str = "kernel") -> None:
        nonlocal at, free
        trace.op(name, at, at + host_us - 1, dims, [HALF] * len(dims))
        called, begins = at + host_us - 5, max(free, at + host_us)
        trace.launch(
            (called, called + 2), (begins, begins + us), kernel, kind, **({"bytes": 8192} if kind == "gpu_memcpy" else {})
        )
        at, free = at + host_us, begins + us

    launch("aten::copy_", [tokens, tokens], 100, "Memcpy HtoD (Pinned -> Device)", "gpu_memcpy")
    launch("aten::mm", [tokens, weight], 400, GEMM)
    trace.thread = 2
    start = at
    launch("aten::mm", [tokens, weight], 400, GEMM)
    launch("aten::mm", [[1024, 4096], tokens], 400, GEMM)
    trace.op("autograd::engine::evaluate_function: MmBackward0", start - 0.2, at - 0.2)
    start = at + 1
    at += 2
    launch("aten::add_", [weight, weight], 150, KERNEL.format("add"))
    trace.op("torch::autograd::AccumulateGrad", start, at, [weight], [HALF])
    trace.thread = 1
    start = at + 1
    at += 2
    launch("aten::_fused_adamw_", [], 250, KERNEL.format("adam"))
    trace.host("user_annotation", "Optimizer.step#AdamW.step", start, at)
    trace.host("cuda_runtime", "cudaDeviceSynchronize", at, max(free, at + 2))
    return max(free, at + 2)


def padded_loop(folder: Path, add: Add) -> list[Path]:
    """Write a loop with a measured padding of 40 % in its batches."""
    (trace,) = loop(folder, add)
    pack_run(
        folder / "run.sawtooth",
        {"name": folder.name, "facts": {"loader_padding": 0.4}},
        [(trace, {"source_name": trace.name, "kind": "trace"})],
    )
    return [folder / "run.sawtooth"]


LENGTH_LOOPS: dict[str, Callable[[Path], list[Path]]] = {
    "attention_planned": partial(planned_operators, name="aten::_cudnn_attention_forward", always=True),
    "attention_planned_once": partial(planned_operators, name="aten::_cudnn_attention_forward", always=False),
    "convolutions_planned": partial(planned_operators, name="aten::cudnn_convolution", always=True),
    "two_lengths": partial(lengths, longest=768),
    "one_length": partial(lengths, longest=272),
    "padded_batches": partial(padded_loop, add=partial(layer_step, host_us=20)),
    "padded_on_a_slow_host": partial(padded_loop, add=partial(layer_step, host_us=1000)),
    "short_kernels_of_many_lengths": partial(short_kernels, longer=64),
    "short_kernels_of_one_length": partial(short_kernels, longer=0),
}
