"""Traces of a pipeline whose stages pass microbatches to the next stage.

All forward passes come first, then all backward passes, which take twice the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.support.chrome_trace import BASE_NS, ChromeTrace

KERNEL = "void at::native::vectorized_elementwise_kernel<4, Add>(int)"
NCCL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
TRANSFER_US = 5.0
LAUNCH_US = 4.0


def pipelined(
    forward_us: Sequence[float],
    micro: int,
    *,
    steps: int = 5,
    peers: bool = True,
    chunks: int = 1,
    launch_us: float = LAUNCH_US,
    named: bool = False,
    pause_us: Mapping[int, float] | None = None,
    at_once: bool = False,
) -> list[ChromeTrace]:
    """Return one trace per stage.

    ``forward_us`` is the time that the forward pass of one of a stage's ``chunks`` takes for one microbatch. If ``peers``,
    the calls name their peer. ``launch_us`` is the host's time from one launch to the next. If ``named``, the forward passes
    have PyTorch's names. ``pause_us`` is the time for which a stage's host pauses before its step. If ``at_once``, GPU work
    begins when it is launched. Otherwise it begins when all work of the step is launched.
    """
    count = len(forward_us)
    traces = [
        ChromeTrace(distributedInfo={"backend": "nccl", "rank": rank, "world_size": count}, baseTimeNanoseconds=BASE_NS)
        for rank in range(count)
    ]
    begins = [0.0] * count
    for step in range(steps):
        hosts = [begin + 10.0 + (pause_us or {}).get(stage, 0.0) for stage, begin in enumerate(begins)]
        ahead_us = 0.0 if at_once else launch_us * (6 * micro * chunks + 2)  # Launching a whole step takes the host so long.
        free = [host + ahead_us for host in hosts]
        talk_free = list(free)
        for stages, times in ((list(range(count)) * chunks, 1), (list(range(count - 1, -1, -1)) * chunks, 2)):
            ready = [0.0] * micro  # When each microbatch arrives from the previous stage.
            source: int | None = None
            for turn, stage in enumerate(stages):
                for k in range(micro):
                    if named and times == 1:
                        traces[stage].host("user_annotation", f"PP:{turn}F{k}", hosts[stage], hosts[stage] + 1)
                    start = free[stage]
                    if source is not None:
                        sends = max(ready[k], talk_free[source], hosts[source] + 2) + 1
                        receives = max(free[stage], talk_free[stage], hosts[stage] + 2) + 1
                        end = max(sends, receives) + TRANSFER_US
                        _transfer(traces, hosts, (source, sends), (stage, receives), end, peers=peers, launch_us=launch_us)
                        talk_free[source] = talk_free[stage] = end
                        start = end + 1
                    start = max(start, hosts[stage] + 2)
                    ready[k] = start + times * forward_us[stage]
                    if at_once:
                        traces[stage].op("aten::add", hosts[stage] - 1, hosts[stage] + launch_us - 2)
                    _launch(traces[stage], hosts, stage, (start, ready[k]), launch_us)
                    free[stage] = ready[k]
                source = stage
        for stage, trace in enumerate(traces):
            end = max(free[stage], talk_free[stage], hosts[stage]) + 20
            trace.host("cuda_runtime", "cudaDeviceSynchronize", hosts[stage] + 1, end)
            trace.step(step, begins[stage], end + 2)
            begins[stage] = end + 4
    return traces


def _launch(trace: ChromeTrace, hosts: list[float], stage: int, kernel: tuple[float, float], launch_us: float) -> None:
    trace.launch((hosts[stage], hosts[stage] + 2), kernel, KERNEL, grid=[500, 1, 1], block=[128, 1, 1])
    hosts[stage] += launch_us


def _transfer(
    traces: list[ChromeTrace],
    hosts: list[float],
    sender: tuple[int, float],
    receiver: tuple[int, float],
    end: float,
    *,
    peers: bool,
    launch_us: float,
) -> None:
    """Add a transfer between two stages.

    The calls of each stage are in the order of its own program, which sends what it has just computed.
    """
    sides = (("send", "Dst Rank", *sender, receiver[0]), ("recv", "Src Rank", *receiver, sender[0]))
    for name, of_peer, stage, start, peer in sides:
        at = hosts[stage]
        args = {"Collective name": name, "dtype": "Float", "In msg nelems": 1000, "Out msg nelems": 1000, "Group size": 2}
        if peers:
            args[of_peer] = peer
        traces[stage].op("record_param_comms", at, at + 1, **args)
        traces[stage].launch((at + 1.5, at + 2.5), (start, end), NCCL, stream=17)
        hosts[stage] += launch_us
