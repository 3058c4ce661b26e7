"""Hand-built loops that look up rows of an embedding table with dense gradients.

The host is faster than the GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.anti_patterns import FLOAT, GEMM, HALF, KERNEL, SLOW_US, loop, op
from tests.support.chrome_trace import ChromeTrace

ROWS, WIDTH, MAIN, BACKWARD = 1_000_000, 256, 1, 2
LOOKUP_US, FILL_US, SUM_US, UPDATE_US, PRODUCT_US = 20.0, 300.0, 900.0, 2100.0, 1000.0
HOST_US = 10.0
UPDATE_LAUNCHES = 10
FUSED = "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>(int)"
TABLE = [ROWS, WIDTH]


@dataclass
class Queue:
    """The trace of a host that launches every HOST_US, and when the GPU has finished its queue (µs)."""

    trace: ChromeTrace
    free: float = 0.0

    def op(self, at: float, name: str, dims: list[Any], kernel_us: float, kernel: str = "", **more: Any) -> float:
        """Add an operator that launches one kernel, and return the time at which the host continues."""
        self.trace.op(name, at, at + HOST_US - 1, dims, ["float"] * len(dims), **more)
        start = max(self.free, at + 6)
        self.free = start + kernel_us
        self.trace.launch((at + 3, at + 5), (start, self.free), kernel or KERNEL.format(name.removeprefix("aten::")))
        return at + HOST_US

    def step(self, at: float, indices: int, lookups: int = 1, optimizer: str = "AdamW", tied: bool = False) -> float:
        """Add a step with ``lookups`` in one table, a product, and the optimizer.

        Each lookup has ``indices``. If the table is ``tied``, the product has its weights, too.
        """
        found, trace = [indices, WIDTH], self.trace
        for _ in range(lookups):
            at = self.op(at, "aten::embedding", [TABLE, [indices], [], [], []], LOOKUP_US)
        at = self.op(at, "aten::mm", [found, [WIDTH, ROWS if tied else WIDTH]], PRODUCT_US, GEMM)
        trace.thread = BACKWARD
        for number in range(lookups):
            start = at
            at = self.op(at + 1, "aten::fill_", [TABLE, []], FILL_US)
            at = self.op(at, "aten::index_add", [found], LOOKUP_US)
            arguments = {"Concrete Inputs": ["", "", str(ROWS), "-1", "False"]}
            trace.op(
                "aten::embedding_dense_backward",
                start + 0.5,
                at,
                [found, [indices], [], [], []],
                ["float", "long int"],
                **arguments,
            )
            at = self.op(at + 1, "aten::add_", [TABLE, TABLE, []], SUM_US) if number else at + 1
            trace.op("autograd::engine::evaluate_function: EmbeddingBackward0", start, at)
        trace.op("torch::autograd::AccumulateGrad", at + 1, at + 3, [TABLE], ["float"])
        trace.thread = MAIN
        start = at + 5
        at = self.op(start + 1, "aten::_fused_adamw_", [[TABLE]] * 4, UPDATE_US, FUSED)
        trace.host("user_annotation", f"Optimizer.step#{optimizer}.step", start, at)
        return at + 1


def tables(folder: Path, **options: Any) -> list[Path]:
    queues: list[Queue] = []

    def add(trace: ChromeTrace, at: float) -> float:
        if not queues:
            queues.append(Queue(trace))
        return queues[0].step(at, **options)

    return loop(folder, add)


def lookups(
    trace: ChromeTrace, at: float, count: int, tables: int = 0, between: bool = False, widths: int = 1, columns: bool = False
) -> float:
    """Add ``count`` lookups on a slow host, each with two launches of its backward pass.

    They are in ``tables`` tables (by default one for each) of ``widths`` widths. With ``between``, a product follows each lookup.
    With ``columns``, each lookup selects a column of the indices first.
    """
    trace.thread = MAIN
    shapes = [[1000, 16 * (1 + number % widths)] for number in range(count)]
    for number, shape in enumerate(shapes):
        if columns:
            trace.op("aten::select", at, at + 1, [[256, count], [], []], ["long int", "Scalar", "Scalar"])
            at += 1.5
        at = op(trace, at, "aten::embedding", [shape, [256], [], [], []], host_us=SLOW_US, **{"Sequence number": 100 + number})
        if between:
            at = op(trace, at, "aten::mm", [[256, 16], [16, 16]], kernel=GEMM, host_us=SLOW_US)
    for _ in range(6):
        at = op(trace, at, "aten::mm", [[256, 16], [16, 16]], kernel=GEMM, host_us=SLOW_US)
    trace.thread = BACKWARD
    for number in reversed(range(count)):
        start = at
        for name in ("aten::zero_", "aten::index_add"):
            at = op(trace, at, name, [shapes[number]], host_us=SLOW_US)
        trace.op(
            "autograd::engine::evaluate_function: EmbeddingBackward0",
            start - 0.2,
            at - 0.2,
            **{"Sequence number": 100 + number},
        )
        if number < (tables or count):
            trace.op("torch::autograd::AccumulateGrad", at, at + 1, [shapes[number]], ["float"])
        at += 2
    trace.thread = MAIN
    return op(trace, at, "aten::_fused_adamw_", [], host_us=SLOW_US)


def sparse_tables(
    trace: ChromeTrace,
    at: float,
    count: int,
    tables: int = 0,
    rows: int = 1000,
    widths: int = 1,
    linears: int = 0,
    dtype: str = FLOAT,
) -> float:
    """Add ``count`` lookups with sparse gradients on a slow host, and their updates by SparseAdam.

    They are in ``tables`` tables of ``rows`` rows (by default one for each), with ``widths`` widths. An update launches UPDATE_LAUNCHES kernels, and the host waits once.
    The weights of ``linears`` linear layers have the shape of the first table. Tables have the type ``dtype``.
    """
    trace.thread = MAIN
    updated, first_number = tables or count, round(at)
    shapes = [[rows, 16 * (1 + number % widths)] for number in range(count)]
    for number, shape in enumerate(shapes):
        at = op(
            trace,
            at,
            "aten::embedding",
            [shape, [256], [], [], []],
            dtype,
            host_us=SLOW_US,
            **{"Sequence number": first_number + number},
        )
    for _ in range(6):
        at = op(trace, at, "aten::mm", [[256, 16], [16, 16]], kernel=GEMM, host_us=SLOW_US)
    for _ in range(linears):
        at = op(trace, at, "aten::mm", [[256, 16], [16, rows]], kernel=GEMM, host_us=SLOW_US)
    trace.thread = BACKWARD
    for _ in range(linears):
        trace.op("torch::autograd::AccumulateGrad", at, at + 1, [shapes[0]], ["float"])
        at += 2
    for number in reversed(range(count)):
        start = at
        at = op(trace, at, "aten::index_select", [[256, 16]], host_us=SLOW_US)
        trace.op("aten::embedding_sparse_backward", start - 0.1, at - 0.1, [[256, 16], [256]], ["float", "long int"])
        node = {"Sequence number": first_number + number}
        trace.op("autograd::engine::evaluate_function: EmbeddingBackward0", start - 0.2, at, **node)
        if number < updated:
            trace.op("torch::autograd::AccumulateGrad", at + 0.5, at + 1, [shapes[number]], ["float"])
        at += 2
    trace.thread = MAIN
    start = at
    for _ in range(updated):
        for _ in range(UPDATE_LAUNCHES):
            at = op(trace, at, "aten::index", [[256, 16]], host_us=SLOW_US)
        trace.host("cuda_runtime", "cudaStreamSynchronize", at + 1, at + 8)
        at += 10
    trace.host("user_annotation", "Optimizer.step#SparseAdam.step", start - 1, at + 1)
    return at + 2


TABLE_LOOPS: dict[str, Callable[[Path], list[Path]]] = {
    "tables_looked_up_one_by_one": partial(loop, add=partial(lookups, count=12)),
    "tables_looked_up_by_columns": partial(loop, add=partial(lookups, count=12, columns=True)),
    "one_table_looked_up_by_columns": partial(loop, add=partial(lookups, count=12, tables=1, columns=True)),
    "few_tables_looked_up": partial(loop, add=partial(lookups, count=6)),
    "one_table_looked_up_often": partial(loop, add=partial(lookups, count=12, tables=1)),
    "tables_of_two_widths": partial(loop, add=partial(lookups, count=12, widths=2)),
    "tables_with_products_between": partial(loop, add=partial(lookups, count=12, between=True)),
    "sparse_tables_one_by_one": partial(loop, add=partial(sparse_tables, count=12)),
    "sparse_tables_of_three_widths": partial(loop, add=partial(sparse_tables, count=12, widths=3)),
    "large_sparse_tables_of_three_widths": partial(loop, add=partial(sparse_tables, count=12, rows=1_000_000, widths=3)),
    "eight_sparse_tables_looked_up_twice": partial(loop, add=partial(sparse_tables, count=16, tables=8)),
    "eight_sparse_tables_beside_linears": partial(loop, add=partial(sparse_tables, count=16, tables=8, linears=3)),
    "half_sparse_tables_of_three_widths": partial(
        loop, add=partial(sparse_tables, count=12, rows=1_000_000, widths=3, dtype=HALF)
    ),
    "one_sparse_table_looked_up_often": partial(loop, add=partial(sparse_tables, count=12, tables=1)),
    "few_rows_looked_up": partial(tables, indices=10_000),
    "many_rows_looked_up": partial(tables, indices=200_000),
    "rows_looked_up_three_times": partial(tables, indices=100_000, lookups=3),
    "few_rows_of_a_tied_table": partial(tables, indices=10_000, tied=True),
    "few_rows_for_another_optimizer": partial(tables, indices=10_000, optimizer="RMSprop"),
}
