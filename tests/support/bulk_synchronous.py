"""Traces of a job whose ranks step together, with planted late ranks.

Each step computes, joins one all-reduce per group, and ends. A rank calls its first collective with the planted delay. The
members of a group finish together, one transfer after the last member's call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.support.chrome_trace import BASE_NS, ChromeTrace

STEP_US, COMPUTE_US, TRANSFER_US, TAIL_US = 2_000.0, 1_000.0, 100.0, 300.0
LAUNCHES = 20  # Small launches before a rank computes, if a job has them.
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
KERNEL = "void at::native::vectorized_elementwise_kernel<4, Add>(int)"


@dataclass(frozen=True)
class Planted:
    """Planted times of each rank, in µs per step.

    ``loader_us`` is the time of its loader. ``host_us`` is host time outside any operator. ``slow_gpu`` is a factor for the
    length of its kernels. ``own_kernel_us`` is the time of a kernel that only this rank runs. ``copy_us`` is the time of a copy from
    pageable memory, before the step's kernels. ``late_in`` are the steps with
    these loader, host and kernel times (all steps if empty). With ``in_turn`` ranks, step n has them
    only on rank n mod ``in_turn``. ``clock_us`` is the offset of each host's clock. ``launch_us`` is the host time of
    each of LAUNCHES small launches. With ``runs_ahead``, the hosts make them while the GPUs
    compute, and never wait for a GPU.
    """

    loader_us: Mapping[int, float] = field(default_factory=dict)
    host_us: Mapping[int, float] = field(default_factory=dict)
    slow_gpu: Mapping[int, float] = field(default_factory=dict)
    own_kernel_us: Mapping[int, float] = field(default_factory=dict)
    copy_us: Mapping[int, float] = field(default_factory=dict)
    clock_us: Mapping[int, float] = field(default_factory=dict)
    launch_us: Mapping[int, float] = field(default_factory=dict)
    late_in: frozenset[int] = frozenset()
    in_turn: int = 0
    runs_ahead: bool = False

    def is_late(self, rank: int, step: int) -> bool:
        """Return whether ``rank`` has its loader, host, copy and kernel times in ``step``."""
        return (not self.late_in or step in self.late_in) and (not self.in_turn or step % self.in_turn == rank)


def job(ranks: int, per_host: int, planted: Planted, *, mesh: bool = False, steps: int = 5) -> list[ChromeTrace]:
    """Return one trace per rank.

    With ``mesh``, a rank's first collective is with the ranks of its host, the second with the ranks of its position on every host.
    """
    groups = [
        [[*range(h, h + per_host)] for h in range(0, ranks, per_host)],
        [[*range(r, ranks, per_host)] for r in range(per_host)],
    ]
    meets: Sequence[list[list[int]]] = groups if mesh else [[[*range(ranks)]]]
    traces = [_empty(rank, ranks, per_host, planted) for rank in range(ranks)]
    begins, free = [0.0] * ranks, [0.0] * ranks
    for step in range(steps):
        ready, hosts = [], []
        for rank, trace in enumerate(traces):
            host, took = _compute(trace, rank, step, begins[rank], free[rank], planted)
            ready.append(took)
            hosts.append(host)
        for level, meeting in enumerate(meets):
            for group in meeting:
                end = max(ready[rank] for rank in group) + TRANSFER_US
                for rank in group:
                    _all_reduce(traces[rank], hosts[rank] + 4 * level, (ready[rank], end), f"{level}{group[0]}", group)
                    ready[rank] = end
        for rank, trace in enumerate(traces):
            trace.launch(
                (hosts[rank] + 20, hosts[rank] + 22),
                (ready[rank] + 2, ready[rank] + TAIL_US),
                KERNEL,
                grid=[99, 1, 1],
                block=[128, 1, 1],
            )
            free[rank] = end = ready[rank] + TAIL_US
            if planted.runs_ahead:
                end = hosts[rank] + 25
            else:
                trace.host("cuda_runtime", "cudaDeviceSynchronize", hosts[rank] + 30, end + 5)
            trace.step(step, begins[rank], end + 10)
            begins[rank] = end + 12
    return traces


def _empty(rank: int, ranks: int, per_host: int, planted: Planted) -> ChromeTrace:
    clock_ns = round(1000 * planted.clock_us.get(rank // per_host, 0.0))
    return ChromeTrace(
        distributedInfo={"backend": "nccl", "rank": rank, "world_size": ranks},
        baseTimeNanoseconds=BASE_NS + clock_ns,
        host_name=f"node{rank // per_host:04d}",
    )


def _compute(trace: ChromeTrace, rank: int, step: int, begin: float, free: float, planted: Planted) -> tuple[float, float]:
    """Add loading and computation; return when the host is free, and when the GPU is free.

    The host is free from ``begin`` on, the GPU from ``free`` on.
    """
    at = begin + 5
    late = planted.is_late(rank, step)
    if loader := planted.loader_us.get(rank, 0.0) if late else 0.0:
        trace.host("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + loader)
    at += loader
    if copy := planted.copy_us.get(rank, 0.0) if late else 0.0:
        size = {"bytes": round(10_000 * copy)}
        trace.launch((at, at + copy + 3), (at + 3, at + copy + 2), "Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", **size)
        at += copy + 5
    launch_us = planted.launch_us.get(rank, 0.0)
    for _ in range(LAUNCHES if launch_us and not planted.runs_ahead else 0):
        at += launch_us
        trace.launch((at - 3, at - 1), (at, at + 2), KERNEL, grid=[500, 1, 1], block=[128, 1, 1])
    at += (planted.host_us.get(rank, 0.0) if late else 0.0) + 10
    start = max(at + 6, free + 2)
    end = start + COMPUTE_US * planted.slow_gpu.get(rank, 1.0)
    trace.launch((at, at + 2), (start, end), KERNEL, grid=[500, 1, 1], block=[128, 1, 1])
    if extra := planted.own_kernel_us.get(rank, 0.0) if late else 0.0:
        trace.launch((at + 2, at + 3), (end, end + extra), KERNEL, grid=[77, 1, 1], block=[128, 1, 1])
        end += extra
    for _ in range(LAUNCHES if launch_us and planted.runs_ahead else 0):
        at += launch_us
        trace.launch((at, at + 2), (end, end + 2), KERNEL, grid=[500, 1, 1], block=[128, 1, 1])
        end += 2
    return at + 4, end


def _all_reduce(trace: ChromeTrace, host: float, kernel: tuple[float, float], name: str, group: list[int]) -> None:
    trace.launch(
        (host, host + 2), kernel, NCCL, stream=17,
        **{
            "Collective name": "allreduce", "dtype": "Float", "In msg nelems": 1000, "Out msg nelems": 1000,
            "Group size": len(group), "Process Group Name": name, "Process Group Ranks": str(group),
        },
    )  # fmt: skip


def slow_steps(share: float, excess_ms: float, usual_ms: float = 5.0) -> tuple[float, ...]:
    """Return 1,000 times of marked steps in ms; ``share`` of them are longer by ``excess_ms``."""
    slow = round(1_000 * share)
    return (usual_ms,) * (1_000 - slow) + (usual_ms + excess_ms,) * slow
