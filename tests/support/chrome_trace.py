"""Build small traces of torch.profiler by hand. Times are in microseconds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

H200 = {
    "id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "computeMajor": 9, "computeMinor": 0, "numSms": 132, "warpSize": 32,
}  # fmt: skip
BASE_NS = 1_790_000_000_000_000_000


class ChromeTrace:
    """A trace to which events are added. Each time is in µs after the trace's base time."""

    def __init__(self, **top: Any) -> None:
        self.top: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [H200],
            "record_shapes": 1,
            "baseTimeNanoseconds": BASE_NS,
            **top,
        }
        self.events: list[dict[str, Any]] = []
        self.correlation = 100
        self.thread = 1  # The thread to which host events are added.

    def host(self, category: str, name: str, start: float, end: float, **args: Any) -> None:
        """Add an event on the host thread ``thread``."""
        self.events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": 1,
                "tid": self.thread,
                "ts": start,
                "dur": end - start,
                "args": args,
            }
        )

    def step(self, number: int, start: float, end: float) -> None:
        self.host("user_annotation", f"ProfilerStep#{number}", start, end)

    def each_step(self, count: int, length: float, first: int = 1) -> Iterator[float]:
        """Add ``count`` steps of ``length`` in sequence, numbered from ``first``; yield their starts."""
        for k in range(count):
            self.step(first + k, length * k, length * k + length)
            yield length * k

    def op(
        self, name: str, start: float, end: float, dims: list[Any] | None = None, types: list[str] | None = None, **args: Any
    ) -> None:
        if dims is not None:
            args |= {"Input Dims": dims, "Input type": types}
        self.host("cpu_op", name, start, end, **args)

    def launch(
        self,
        call: tuple[float, float],
        kernel: tuple[float, float],
        name: str,
        category: str = "kernel",
        stream: int = 7,
        **args: Any,
    ) -> None:
        """Add a launch and the GPU operation that it starts."""
        self.correlation += 1
        launched = ("cuda_driver", "cuLaunchKernelEx") if name.startswith("triton_") else ("cuda_runtime", "cudaLaunchKernel")
        self.host(*launched, *call, correlation=self.correlation)
        self.gpu(kernel, name, category, stream, correlation=self.correlation, **args)

    def gpu(
        self, when: tuple[float, float], name: str, category: str = "kernel", stream: int = 7, device: int = 0, **args: Any
    ) -> None:
        facts = {"device": device, "stream": stream, **args}
        self.events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": device,
                "tid": stream,
                "ts": when[0],
                "dur": when[1] - when[0],
                "args": facts,
            }
        )

    def write(self, path: Path) -> Path:
        """Write the trace as JSON and return its path."""
        path.write_bytes(self.json())
        return path

    def json(self) -> bytes:
        return json.dumps({**self.top, "traceEvents": self.events, "traceName": "t"}).encode()


def three_steps() -> ChromeTrace:
    """Return a trace of three steps of 100 µs, each with one kernel of 60 µs."""
    trace = ChromeTrace()
    for k in range(3):
        at = 100 * k
        trace.step(k + 1, at, at + 100)
        trace.launch((at + 10, at + 15), (at + 30, at + 90), "k")
    return trace


def matmul_loop(steps: int = 4, step_us: float = 1000, matmul_us: float = 600, other_us: float = 100) -> ChromeTrace:
    """Return a loop with one bf16 product of 1024³ and one addition per step.

    By default, a step has 600 µs of tensor-core work, 100 µs of other work, and 300 µs of idle time.
    """
    trace = ChromeTrace()
    for k in range(steps):
        at = k * step_us
        trace.step(3 + k, at, at + step_us)
        trace.op("aten::mm", at + 10, at + 60, [[1024, 1024], [1024, 1024]], ["c10::BFloat16", "c10::BFloat16"])
        trace.launch(
            (at + 27, at + 30),
            (at + 40, at + 40 + matmul_us),
            "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NNT",
            **{"blocks per SM": 2.0},
        )
        trace.op("aten::add", at + 70, at + 100, [[1024, 1024], [1024, 1024], []], ["c10::BFloat16", "c10::BFloat16", "Scalar"])
        start = at + 40 + matmul_us
        trace.launch(
            (at + 87, at + 90),
            (start, start + other_us),
            "void at::native::vectorized_elementwise_kernel<4, Add>(int)",
            **{"blocks per SM": 0.5},
        )
    return trace
