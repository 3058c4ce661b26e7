"""Hand-built loops on which simple rules would give advice that cannot work, in microseconds."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.support.anti_patterns import FLOAT, GEMM, HALF, op
from tests.support.chrome_trace import ChromeTrace

STATE_BYTES = 33_000_000


def optimizer_loop(folder: Path, *, optimizer: str) -> list[Path]:
    """Write a loop whose ``optimizer`` launches 60 updates, 6 products and a long all-gather in each step."""
    trace, at = ChromeTrace(made_for=folder.name), 0.0
    for step in range(4):
        begin = at
        at = op(trace, at + 10, "aten::mm", [[1024, 1024], [1024, 1024]], HALF, 600, GEMM)
        start = at
        for _ in range(60):
            at = op(trace, at, "aten::addcdiv_", [[64, 64]], FLOAT)
        for _ in range(6):
            at = op(trace, at, "aten::mm", [[512, 512], [512, 512]], HALF, 20, GEMM)
        trace.op("c10d::_allgather_base_", at, at + 8)
        trace.launch((at + 2, at + 4), (at + 8, at + 400), "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
        at += 410
        trace.host("user_annotation", f"Optimizer.step#{optimizer}.step", start - 1, at)
        trace.step(step + 1, begin, at)
    return [trace.write(folder / "trace.json")]


def saving_loop(folder: Path, *, tensors: int, every: int) -> list[Path]:
    """Write a loop that copies ``tensors`` large tensors to pageable memory in each ``every``-th step."""
    trace, at = ChromeTrace(made_for=folder.name), 0.0
    for step in range(8):
        begin = at
        at = op(trace, at + 10, "aten::mm", [[1024, 1024], [1024, 1024]], HALF, 600, GEMM)
        for _ in range(tensors if (step + 1) % every == 0 else 0):
            trace.op("aten::copy_", at, at + 5010, [[STATE_BYTES], [STATE_BYTES]], ["unsigned char"] * 2)
            trace.launch(
                (at + 2, at + 6), (at + 8, at + 5000), "Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", bytes=STATE_BYTES
            )
            trace.host("cuda_runtime", "cudaStreamSynchronize", at + 7, at + 5005)
            at += 8000  # The file is written for 3 ms.
        trace.step(step + 1, begin, at)
    return [trace.write(folder / "trace.json")]


EXPERT_LOOPS = {
    "own_optimizer": partial(optimizer_loop, optimizer="DistMuon"),
    "adam_one_by_one": partial(optimizer_loop, optimizer="Adam"),
    "saves_few_tensors": partial(saving_loop, tensors=5, every=3),
    "saves_two_of_eight_steps": partial(saving_loop, tensors=2, every=4),
    "reads_results_each_step": partial(saving_loop, tensors=2, every=1),
}
