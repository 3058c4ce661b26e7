"""Attention that runs as several kernels, and the time of a fused kernel for the same work."""

from __future__ import annotations

from typing import Any

import pandas as pd

from sawtooth.analysis.findings.recorded.counted_operations import chosen, numel
from sawtooth.analysis.knowledge.hardware import GpuPeaks
from sawtooth.analysis.knowledge.kernel_time import KernelTimeEstimate, estimate
from sawtooth.analysis.knowledge.kernel_work import attention_work
from sawtooth.analysis.replay.edits import Edit, TimedOps, WithoutOps

SHORTEST_ROW = 32  # A softmax over fewer columns belongs to a classifier or a gate, not to attention.
# Time per product of flash attention's backward pass, relative to its forward pass, at head sizes of 64 and 128.
BACKWARD_SLOWER = 1.4
MOVES = ("elementwise", "softmax", "copy", "reduction")


def score_sizes(work: pd.DataFrame) -> set[int]:
    """Return the element counts of attention score matrices.

    A score matrix is the input of a softmax with at least three dimensions, and a batched product has the same element count.
    """
    bmm_sizes = {_product_size(row.dims) for row in work[work["operator"] == "aten::bmm"].itertuples()}
    sizes = set()
    for row in work[work["operator"].isin(("aten::_softmax", "aten::_safe_softmax"))].itertuples():
        shape = row.dims[0] if row.dims else None
        if (
            isinstance(shape, list)
            and len(shape) >= 3
            and shape[-1] >= SHORTEST_ROW
            and shape[-2] >= SHORTEST_ROW
            and numel(shape) in bmm_sizes
        ):
            sizes.add(numel(shape))
    return sizes


def written_out(work: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows that only move score matrices, and the products that read or write these matrices."""
    sizes = score_sizes(work)
    moves = chosen(work, lambda row: row.category in MOVES and any(numel(shape) in sizes for shape in row.dims or []))
    products = chosen(
        work,
        lambda row: (
            row.operator == "aten::bmm" and bool({_product_size(row.dims), *(numel(s) for s in row.dims or [])} & sizes)
        ),
    )
    return moves, products


def _product_size(dims: Any) -> int:
    if not dims or len(dims) < 2 or len(dims[0]) != 3 or len(dims[1]) != 3:
        return 0
    return int(dims[0][0] * dims[0][1] * dims[1][2])


def as_fused(moves: pd.DataFrame, products: pd.DataFrame, gpu: GpuPeaks) -> list[Edit]:
    """Return the edits that replace these rows by fused attention kernels.

    Each product gets its share of a fused kernel's time, by FLOPs. In the forward pass, one fused kernel replaces two products.
    In the backward pass, it computes five products instead of four.
    """
    times: dict[int, KernelTimeEstimate | None] = {}
    edges: dict[str, list[int]] = {"ms": [], "low": [], "high": []}
    for row in products.itertuples():
        if row.signature_id not in times:
            times[row.signature_id] = _fused_share(row.dims, gpu)
        time = times[row.signature_id]
        for edge, durations in edges.items():
            durations.append(max(min(round(getattr(time, edge) * 1e6), row.dur_ns), 1) if time is not None else row.dur_ns)
    timed = TimedOps(tuple(products["gpu_op_id"].tolist()), *(tuple(durations) for durations in edges.values()))
    return [timed, WithoutOps(tuple(moves["gpu_op_id"].tolist()))]


def _fused_share(dims: Any, gpu: GpuPeaks) -> KernelTimeEstimate | None:
    """Return the time of one product in a fused attention: half of a forward pass with two products.

    The upper bound includes BACKWARD_SLOWER, because a product of the backward pass may take longer.
    """
    batch, rows, inner = dims[0]
    columns = dims[1][2]
    head, seq, past = sorted((rows, inner, columns))
    work = attention_work([batch, 1, seq, head], [batch, 1, past, head], "bf16", backend="flash", causal=False, backward=False)
    time = estimate(work, gpu) if work is not None else None
    return KernelTimeEstimate(time.ms / 2, time.low / 2, time.high / 2 * BACKWARD_SLOWER) if time is not None else None
