"""Build small ``TraceEvents`` in µs, for results that can be computed on paper."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from sawtooth.analysis.derive.events import Calls, CpuOps, GpuOps, TraceEvents
from sawtooth.analysis.derive.host import HostFacts
from sawtooth.analysis.derive.unprofiled.problem import StepTable


@dataclass
class TinyTrace:
    """Collects events in µs and converts them to nanosecond columns with dense ids in order of start."""

    names: dict[str, int] = field(default_factory=dict)
    ops: list[tuple] = field(default_factory=list)
    calls: list[tuple] = field(default_factory=list)
    gpu: list[tuple] = field(default_factory=list)
    overheads: list[tuple] = field(default_factory=list)
    python: list[tuple] = field(default_factory=list)
    steps: list[tuple] = field(default_factory=list)
    correlation: int = 0

    def name(self, text: str) -> int:
        return self.names.setdefault(text, len(self.names))

    def op(self, name: str, start: float, end: float, thread: int = 0, annotation: bool = False) -> None:
        self.ops.append((round(start * 1000), round(end * 1000), annotation, self.name(name), thread))

    def step(self, start: float, end: float) -> None:
        self.steps.append((round(start * 1000), round(end * 1000)))
        self.op(f"ProfilerStep#{len(self.steps)}", start, end, annotation=True)

    def each_step(self, count: int, length: float) -> Iterator[float]:
        """Add ``count`` steps of ``length`` in sequence, and yield the start of each."""
        for k in range(count):
            self.step(length * k, length * k + length)
            yield length * k

    def call(self, name: str, start: float, end: float, thread: int = 0) -> int:
        self.correlation += 1
        self.calls.append((round(start * 1000), round(end * 1000), self.name(name), thread, self.correlation))
        return self.correlation

    def kernel(
        self,
        start: float,
        end: float,
        correlation: int = -1,
        name: str = "kernel",
        *,
        kind: int = 0,
        stream: int = 7,
        device: int = 0,
    ) -> None:
        self.gpu.append((round(start * 1000), round(end * 1000), kind, self.name(name), device, stream, correlation))

    def launch(
        self,
        call: tuple[float, float],
        kernel: tuple[float, float],
        thread: int = 0,
        stream: int = 7,
        name: str = "kernel",
        device: int = 0,
    ) -> None:
        self.kernel(*kernel, self.call("cudaLaunchKernel", *call, thread), name, stream=stream, device=device)

    def copy(
        self,
        call: tuple[float, float],
        copy: tuple[float, float],
        name: str,
        thread: int = 0,
        call_name: str = "cudaMemcpyAsync",
        stream: int = 7,
    ) -> None:
        self.kernel(*copy, self.call(call_name, *call, thread), name, kind=1, stream=stream)

    def overhead(self, name: str, start: float, end: float) -> None:
        self.overheads.append((round(start * 1000), round(end * 1000), self.name(name)))

    def python_call(self, name: str, start: float, end: float, thread: int = 0) -> None:
        self.python.append((round(start * 1000), round(end * 1000), self.name(name), thread))

    def events(self) -> TraceEvents:
        ops = sorted(self.ops, key=lambda r: (r[0], -r[1]))
        calls = sorted(self.calls, key=lambda r: r[0])
        gpu = sorted(self.gpu, key=lambda r: r[0])
        by_correlation = {r[4]: i for i, r in enumerate(calls)}

        def column(rows: list[tuple], i: int, kind: type = np.int64) -> np.ndarray:
            return np.array([r[i] for r in rows], dtype=kind)

        def enclosing(start: int, end: int, thread: int, before: int) -> int:
            found = [i for i, r in enumerate(ops[:before]) if r[4] == thread and r[0] <= start and r[1] >= end]
            return found[-1] if found else -1

        parent = [enclosing(r[0], r[1], r[4], i) for i, r in enumerate(ops)]
        call_op = [enclosing(r[0], r[1], r[3], len(ops)) for r in calls]
        launched = [by_correlation.get(r[6], -1) for r in gpu]
        count = np.bincount(np.array([c for c in launched if c >= 0], dtype=np.int64), minlength=len(calls)).astype(np.int32)
        none = np.full(len(gpu), -1, dtype=np.int64)
        return TraceEvents(
            0,
            list(self.names),
            GpuOps(column(gpu, 2, np.int8), column(gpu, 3, np.int32), column(gpu, 4, np.int32), column(gpu, 5), column(gpu, 0), column(gpu, 1),
                   np.array(launched, dtype=np.int64), np.array([call_op[c] if c >= 0 else -1 for c in launched], dtype=np.int64), none, none),
            Calls(column(calls, 2, np.int32), column(calls, 3, np.int32), column(calls, 0), column(calls, 1), column(calls, 4),
                  np.array(call_op, dtype=np.int64), count),
            CpuOps(column(ops, 2, np.bool_), column(ops, 3, np.int32), column(ops, 4, np.int32), column(ops, 0), column(ops, 1),
                   np.array(parent, dtype=np.int64), np.full(len(ops), -1, np.int64), np.full(len(ops), -1, np.int64), np.full(len(ops), -1, np.int32)),
        )  # fmt: skip

    def facts(self) -> HostFacts:
        def column(rows: list[tuple], i: int, kind: type = np.int64) -> np.ndarray:
            return np.array([r[i] for r in rows], dtype=kind)

        over, python = self.overheads, sorted(self.python, key=lambda r: (r[0], -r[1]))
        holders = [
            [j for j, q in enumerate(python[:i]) if q[3] == r[3] and q[0] <= r[0] and q[1] >= r[1]]
            for i, r in enumerate(python)
        ]
        parent = np.array([found[-1] if found else -1 for found in holders], dtype=np.int64)
        return HostFacts(column(over, 2, np.int32), column(over, 0), column(over, 1), column(python, 2, np.int32), column(python, 3, np.int32),
                         column(python, 0), column(python, 1), parent)  # fmt: skip

    def step_table(self) -> StepTable:
        count = len(self.steps)
        start, end = (np.array([s[i] for s in self.steps], dtype=np.int64) for i in (0, 1))
        return StepTable(
            np.arange(count, dtype=np.int32), start, end, np.ones(count, dtype=bool), np.zeros(count, dtype=np.int32)
        )
