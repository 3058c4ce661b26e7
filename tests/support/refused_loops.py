"""Hand-built loops in which the driver refuses the allocator's request for memory in every step.

The allocator has much or little free memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.support.anti_patterns import GEMM, HALF, loop, op
from tests.support.chrome_trace import ChromeTrace


def refused(trace: ChromeTrace, at: float, free: int) -> float:
    """Add a product, and a request of 900 MB that the driver refuses at first.

    At that time, ``free`` bytes of the allocator's 7 GB are free. The driver refuses, gets two blocks back, and then allocates.
    """
    at = op(trace, at, "aten::mm", [[1024, 1024], [1024, 1024]], HALF, 400, GEMM)
    memory(trace, at - 300, 1 << 21, free + (1 << 21))
    start = at + 2
    for name, takes in (("cudaMalloc", 60), ("cudaFree", 150), ("cudaFree", 80), ("cudaMalloc", 200)):
        trace.host("cuda_runtime", name, at + 5, at + 5 + takes)
        at += takes + 6
    trace.op("aten::empty", start, at + 8)
    memory(trace, at + 6, 900_000_000, free)
    return op(trace, at + 10, "aten::add", [[1024, 1024], [1024, 1024]], kernel_us=12)


def memory(trace: ChromeTrace, at: float, size: int, free: int, reserved: int = 7_000_000_000) -> None:
    """Add an allocation of ``size`` bytes while ``free`` of ``reserved`` bytes are free."""
    args = {"Device Type": 1, "Device Id": 0, "Addr": int(at) + 1, "Bytes": size}
    totals = {"Total Allocated": reserved - free + size, "Total Reserved": reserved}
    trace.events.append(
        {
            "ph": "i",
            "s": "t",
            "name": "[memory]",
            "cat": "cpu_instant_event",
            "pid": 1,
            "tid": 1,
            "ts": at,
            "args": args | totals,
        }
    )


REFUSED_LOOPS: dict[str, Callable[[Path], list[Path]]] = {
    "memory_in_pieces": partial(loop, add=partial(refused, free=2_000_000_000)),
    "memory_is_full": partial(loop, add=partial(refused, free=300_000_000)),
}
