"""Hand-built loops on which simple rules would give advice that cannot work, in microseconds."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.support.anti_patterns import FLOAT, GEMM, HALF, KERNEL_US, SLOW_US, loop, op
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


ADAM = (
    "_foreach_mul_",
    "_foreach_lerp_",
    "_foreach_mul_",
    "_foreach_addcmul_",
    "_foreach_sqrt",
    "_foreach_div_",
    "_foreach_add_",
    "_foreach_addcdiv_",
)
SGD = ("_foreach_mul_", "_foreach_add_", "_foreach_add_")
PYTHON_US = 40.0  # Time of Python before each foreach operator.
COUNTED_US = 60.0  # Time of the arithmetic on step counts, before the first operator.


def foreach_loop(
    folder: Path, *, optimizer: str, operators: tuple[str, ...], groups: int, without_work: bool = False
) -> list[Path]:
    """Write a loop of a slow host: 20 products, and a foreach update of each group of parameters.

    A launch takes the host 24 µs and the GPU 4 µs. Only Adam counts steps on the CPU. With ``without_work``, another call of
    the optimizer launches nothing.
    """

    def add(trace: ChromeTrace, at: float) -> float:
        for _ in range(20):
            at = op(trace, at, "aten::mm", [[256, 256]] * 2, HALF, KERNEL_US, GEMM, SLOW_US)
        start = at
        for _ in range(groups):
            if operators == ADAM:
                trace.op("aten::add_", at + 1, at + COUNTED_US - 1, [[], []], [FLOAT] * 2)
                at += COUNTED_US
            for name in operators:
                at = op(trace, at + PYTHON_US, f"aten::{name}", [], host_us=SLOW_US)
        trace.host("user_annotation", f"Optimizer.step#{optimizer}.step", start - 0.3, at - 0.1)
        if without_work:
            trace.host("user_annotation", f"Optimizer.step#{optimizer}.step", at, at + 1)
            at += 2
        return at

    return loop(folder, add)


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
    "adam_foreach_on_a_slow_host": partial(foreach_loop, optimizer="AdamW", operators=ADAM, groups=1),
    "adam_foreach_and_a_call_without_work": partial(
        foreach_loop, optimizer="AdamW", operators=ADAM, groups=1, without_work=True
    ),
    "adam_foreach_of_two_groups": partial(foreach_loop, optimizer="AdamW", operators=ADAM, groups=2),
    "sgd_foreach_of_two_groups": partial(foreach_loop, optimizer="SGD", operators=SGD, groups=2),
    "muon_foreach": partial(foreach_loop, optimizer="DistMuon", operators=ADAM, groups=1),
    "saves_few_tensors": partial(saving_loop, tensors=5, every=3),
    "saves_two_of_eight_steps": partial(saving_loop, tensors=2, every=4),
    "reads_results_each_step": partial(saving_loop, tensors=2, every=1),
}
