"""Hand-built loops of one rank with collectives that are launched unnecessarily, in microseconds."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.support.chrome_trace import ChromeTrace
from tests.support.pipelined import KERNEL, pipelined

STEPS, MICRO_BATCHES = 5, 4
FORWARD_US, BACKWARD_US, TRANSFER_US = 200.0, 300.0, 150.0
SEARCH = "torch.distributed.ddp.reducer::search_unused_parameters"
NODE = "autograd::engine::evaluate_function: MmBackward0"


def _collective(
    trace: ChromeTrace, host: float, start: float, name: str, elements: int, transfer_us: float = TRANSFER_US
) -> float:
    """Add a collective that overlaps with nothing, and return its end."""
    end = start + transfer_us
    trace.launch(
        (host, host + 2), (start, end), f"ncclDevKernel_{name}_RING_LL(ncclDevKernelArgsStorage<4096ul>)", stream=17,
        **{
            "Collective name": {"AllReduce": "allreduce", "AllGather": "_allgather_base", "ReduceScatter": "_reduce_scatter_base"}[name],
            "dtype": "Float", "In msg nelems": elements, "Out msg nelems": elements, "Group size": 2, "Process Group Name": "0",
            "Process Group Ranks": "[0, 1]",
        },
    )  # fmt: skip
    return end


def _loop() -> ChromeTrace:
    return ChromeTrace(distributedInfo={"backend": "nccl", "rank": 0, "world_size": 2})


def _end_step(trace: ChromeTrace, step: int, begin: float, host: float, gpu: float) -> float:
    """End a step with the optimizer's kernel and a wait for it, and return when the next step begins.

    The kernel is launched at ``host``.
    """
    trace.launch((host, host + 2), (gpu + 4, gpu + 40), KERNEL)
    trace.host("cuda_runtime", "cudaDeviceSynchronize", host + 4, gpu + 45)
    trace.step(step, begin, gpu + 48)
    return gpu + 50


def _write(trace: ChromeTrace, folder: Path) -> Path:
    trace.top["made_for"] = folder.name
    return trace.write(folder / "trace.json")


def accumulation_loop(folder: Path, *, no_sync: bool) -> list[Path]:
    """Write a loop of four micro-batches of 500 µs per step, with gradient reductions of 150 µs.

    The gradients are reduced after each micro-batch, or with ``no_sync`` only after the last one.
    """
    trace = _loop()
    begin = 0.0
    for step in range(STEPS):
        host, gpu = begin + 10, begin + 250
        for micro in range(MICRO_BATCHES):
            trace.op("DistributedDataParallel.forward", host, host + 8)
            trace.launch((host + 2, host + 4), (gpu, gpu + FORWARD_US), KERNEL)
            trace.op(NODE, host + 10, host + 18)
            gpu += FORWARD_US
            trace.launch((host + 12, host + 14), (gpu, gpu + BACKWARD_US), KERNEL)
            gpu += BACKWARD_US
            if micro == MICRO_BATCHES - 1 or not no_sync:
                gpu = _collective(trace, host + 15, gpu, "AllReduce", 10_000_000) + 1
            host += 24
        begin = _end_step(trace, step, begin, host, gpu)
    return [_write(trace, folder)]


def weight_gathering_loop(folder: Path, *, keep: bool, layers: int = 2, ahead: bool = False) -> list[Path]:
    """Write a loop that gathers the weights of each layer for 150 µs before its forward pass.

    Unless ``keep``, the weights are gathered again before the backward pass. With ``ahead``, they are gathered while the
    previous layer computes.
    """
    trace = _loop()
    begin = 0.0
    for step in range(STEPS):
        host, gpu = begin + 10, begin + 250
        for backward, computes in ((False, FORWARD_US), (True, BACKWARD_US)):
            for layer in range(layers):
                if backward:
                    trace.op(NODE, host, host + 16)
                if not backward or not keep:
                    begun = gpu - computes if ahead and layer else gpu
                    gpu = max(gpu, _collective(trace, host + 1, begun, "AllGather", 5_000_000) + 1)
                trace.launch((host + 5, host + 7), (gpu + 4, gpu + 4 + computes), KERNEL)
                gpu += 4 + computes
                host += 20
        gpu = _collective(trace, host, gpu, "ReduceScatter", 10_000_000) + 1
        begin = _end_step(trace, step, begin, host + 4, gpu)
    return [_write(trace, folder)]


def communication_loop(folder: Path, *, elements: int, inside: str) -> list[Path]:
    """Write a loop of 500 µs of computation and an all-reduce of 1500 µs.

    The all-reduce has ``elements`` FP32 values, and is launched inside an event called ``inside``.
    """
    trace = _loop()
    begin = 0.0
    for step in range(STEPS):
        host, gpu = begin + 10, begin + 60
        trace.launch((host, host + 2), (gpu, gpu + FORWARD_US), KERNEL)
        trace.op(NODE, host + 10, host + 18)
        gpu += FORWARD_US
        trace.launch((host + 12, host + 14), (gpu, gpu + BACKWARD_US), KERNEL)
        gpu += BACKWARD_US
        trace.host("user_annotation", inside, host + 19, host + 24)
        gpu = _collective(trace, host + 20, gpu, "AllReduce", elements, 1500.0) + 1
        begin = _end_step(trace, step, begin, host + 30, gpu)
    return [_write(trace, folder)]


def launching_loop(folder: Path, *, search_us: float) -> list[Path]:
    """Write a loop whose host launches 90 kernels of 2 µs, one every 10 µs.

    Each step ends with an all-reduce. Before the backward pass, DistributedDataParallel searches for unused parameters for ``search_us`` (0: it does not search).
    """
    trace = _loop()
    begin = 0.0
    for step in range(STEPS):
        host = begin + 10
        trace.op("DistributedDataParallel.forward", host, host + 300 + search_us)
        for kernel in range(90):
            if kernel == 30 and search_us:
                trace.op(SEARCH, host, host + search_us)
                host += search_us
            trace.op("aten::add" if kernel < 30 else NODE, host, host + 9)
            trace.launch((host + 3, host + 7), (host + 7, host + 9), KERNEL)
            host += 10
        _collective(trace, host, host + 4, "AllReduce", 10_000, 5.0)
        trace.step(step, begin, host + 10)
        begin = host + 12
    return [_write(trace, folder)]


def single_reductions_loop(folder: Path, *, call_us: float) -> list[Path]:
    """Write a loop that all-reduces 24 gradients one by one after the backward pass.

    Each call takes the host ``call_us``, and the GPU 5 µs.
    """
    trace = _loop()
    begin = 0.0
    for step in range(STEPS):
        host = begin + 10
        trace.launch((host, host + 2), (host + 6, host + 106), KERNEL)
        trace.op(NODE, host + 10, host + 18)
        trace.launch((host + 12, host + 14), (host + 106, host + 206), KERNEL)
        host += 200
        for _ in range(24):
            trace.op("c10d::allreduce_", host, host + call_us)
            _collective(trace, host + call_us - 3, host + call_us, "AllReduce", 2_000_000, 5.0)
            host += call_us + 10
        begin = _end_step(trace, step, begin, host, host + 2)
    return [_write(trace, folder)]


def pipeline_loop(folder: Path, *, forward_us: tuple[float, ...], micro: int) -> list[Path]:
    """Write the traces of a pipeline from ``pipelined``."""
    paths = []
    for rank, trace in enumerate(pipelined(forward_us, micro)):
        trace.top["made_for"] = folder.name
        paths.append(trace.write(folder / f"{rank}.json"))
    return paths


COLLECTIVE_LOOPS = {
    "communicates_most": partial(communication_loop, elements=100_000_000, inside="DistributedDataParallel.forward"),
    "communicates_slowly": partial(communication_loop, elements=1_000_000, inside="DistributedDataParallel.forward"),
    "optimizer_communicates": partial(communication_loop, elements=100_000_000, inside="Optimizer.step#Muon.step"),
    "accumulated_and_reduced": partial(accumulation_loop, no_sync=False),
    "accumulated_without_sync": partial(accumulation_loop, no_sync=True),
    "searches_unused_parameters": partial(launching_loop, search_us=150.0),
    "searches_nothing": partial(launching_loop, search_us=0.0),
    "reduced_one_by_one_by_a_slow_host": partial(single_reductions_loop, call_us=60.0),
    "weights_gathered_twice": partial(weight_gathering_loop, keep=False),
    "weights_gathered_late": partial(weight_gathering_loop, keep=True, layers=5),
    "weights_gathered_ahead": partial(weight_gathering_loop, keep=True, layers=5, ahead=True),
    "weights_kept": partial(weight_gathering_loop, keep=True),
    "pipeline_of_two_microbatches": partial(pipeline_loop, forward_us=(300.0, 300.0), micro=2),
    "pipeline_of_eight_microbatches": partial(pipeline_loop, forward_us=(300.0, 300.0), micro=8),
    "pipeline_of_unequal_stages": partial(pipeline_loop, forward_us=(200.0, 400.0), micro=8),
}
