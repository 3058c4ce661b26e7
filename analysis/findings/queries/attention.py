"""Attention in several kernels: which they are, and how long a fused kernel takes for them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from sawtooth.analysis.findings.recorded.work import chosen, numel
from sawtooth.analysis.knowledge.hardware import Gpu
from sawtooth.analysis.knowledge.kernel_time import Estimate, estimate
from sawtooth.analysis.knowledge.kernel_work import attention_work
from sawtooth.analysis.replay.edits import Edit, TimedOps, WithoutOps

SHORTEST_ROW = 32  # softmax over fewer columns is a classifier or a gate, not attention
BACKWARD_SLOWER = 1.4  # per product, flash attention's backward pass against its forward one at head sizes of 64 and 128
MOVES = ("elementwise", "softmax", "copy", "reduction")


def score_sizes(work: pd.DataFrame) -> set[int]:
    """Return the element counts of score matrices: softmaxes of at least three dimensions whose size a batched product also has."""
    made = {_product_size(row.dims) for row in work[work["operator"] == "aten::bmm"].itertuples()}
    sizes = set()
    for row in work[work["operator"].isin(("aten::_softmax", "aten::_safe_softmax"))].itertuples():
        shape = row.dims[0] if row.dims else None
        if (
            isinstance(shape, list)
            and len(shape) >= 3
            and shape[-1] >= SHORTEST_ROW
            and shape[-2] >= SHORTEST_ROW
            and numel(shape) in made
        ):
            sizes.add(numel(shape))
    return sizes


def written_out(work: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows that only move score matrices, and the products that make or take them."""
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


def as_fused(moves: pd.DataFrame, products: pd.DataFrame, gpu: Gpu) -> list[Edit]:
    """Return the edits that run these rows as fused kernels: each product takes its share, by FLOPs, of what a fused kernel of these sizes takes: forward two products, backward five for four."""
    times: dict[int, Estimate | None] = {}
    edges: dict[str, list[int]] = {"ms": [], "low": [], "high": []}
    for row in products.itertuples():
        if row.signature_id not in times:
            times[row.signature_id] = _fused_share(row.dims, gpu)
        time = times[row.signature_id]
        for edge, durations in edges.items():
            durations.append(max(min(round(getattr(time, edge) * 1e6), row.dur_ns), 1) if time is not None else row.dur_ns)
    timed = TimedOps(tuple(products["gpu_op_id"].tolist()), *(tuple(durations) for durations in edges.values()))
    return [timed, WithoutOps(tuple(moves["gpu_op_id"].tolist()))]


def _fused_share(dims: Any, gpu: Gpu) -> Estimate | None:
    """Return what of a fused attention's time is one product's, half of a forward pass; a backward pass is as slow per product or slower."""
    batch, rows, inner = dims[0]
    columns = dims[1][2]
    head, seq, past = sorted((rows, inner, columns))
    work = attention_work([batch, 1, seq, head], [batch, 1, past, head], "bf16", backend="flash", causal=False, backward=False)
    time = estimate(work, gpu) if work is not None else None
    return Estimate(time.ms / 2, time.low / 2, time.high / 2 * BACKWARD_SLOWER) if time is not None else None
