"""Projections of single heads, which become one projection of all heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.heads import HeadLoop
from sawtooth.analysis.findings.queries.calls import launching_calls
from sawtooth.analysis.findings.recorded.counted_operations import launched_by_optimizer, product_dtype
from sawtooth.analysis.findings.recorded.parameters import parameters_of
from sawtooth.analysis.knowledge.hardware import GpuPeaks
from sawtooth.analysis.knowledge.kernel_time import KernelTimeEstimate, KernelWork, Product, estimate
from sawtooth.analysis.knowledge.kernel_work import product_work
from sawtooth.analysis.replay.edits import Edit, FasterHost, WithoutHostCause

PROJECTION_OPERATORS = ("aten::mm", "aten::addmm")
SUMS = ("aten::add", "aten::add_")


def with_joined_projections(rows: pd.DataFrame, loop: HeadLoop, gpu: GpuPeaks | None) -> pd.DataFrame:
    """Return the rows of one pass of ``loop`` with the times of joined projections.

    The sums over the heads are the times of the joined products. The column ``dur_ns`` changes, and its interval is in the new
    columns ``low_ns`` and ``high_ns``. No product takes longer than the products of all heads. Sums of the heads' gradients of one input become part of the product, except one for each projection.
    """
    likely, low, high = (rows["dur_ns"].astype("int64") for _ in range(3))
    projections = rows[rows["operator"].isin(PROJECTION_OPERATORS) & (rows["category"] == "gemm")]
    head_size = _head_size(loop.work.forward)
    for _, equal_projections in projections.groupby(["operator", "flop_signature_id"], dropna=False):
        time = (
            _joined_time(equal_projections.iloc[0], loop.heads, head_size, gpu)
            if head_size is not None and gpu is not None
            else None
        )
        if time is None:
            continue
        now_ns = equal_projections["dur_ns"].mean()
        for column, edge in ((likely, time.ms), (low, time.low), (high, time.high)):
            column.loc[equal_projections.index] = max(round(min(edge * 1e6 / loop.heads, now_ns)), 1)
    if len(projections):
        sums = rows.index[rows["operator"].isin(SUMS) & (rows["category"] == "elementwise")]
        for column in (likely, low):
            column.loc[sums] //= loop.heads
    return rows.assign(dur_ns=likely, low_ns=low, high_ns=high)


def _head_size(forward: pd.DataFrame) -> int | None:
    """Return the columns of a head's projection; None without projections, or if they differ."""
    sizes = {
        product.n for row in forward[forward["operator"].isin(PROJECTION_OPERATORS)].drop_duplicates("launch_kind").itertuples()
        if (product := _product(row)) is not None
    }  # fmt: skip
    return int(sizes.pop()) if len(sizes) == 1 else None


def _work(row: Any) -> KernelWork | None:
    dtype = product_dtype(row)
    return product_work(row.flop_operator, row.flop_dims, row.flop_strides, dtype) if dtype and row.flop_dims else None


def _product(row: Any) -> Product | None:
    work = _work(row)
    return work.products[0] if work is not None else None


def _joined_time(row: Any, heads: int, head_size: int, gpu: GpuPeaks) -> KernelTimeEstimate | None:
    """Return the time of one product in place of the products of all ``heads``; None if not known.

    The one dimension with the head's size becomes as large as all heads together: the columns of a projection, the inner dimension of
    the gradient of its input, or a dimension of the gradient of its weight.
    """
    work = _work(row)
    if work is None:
        return None
    product = work.products[0]
    sizes = {name: getattr(product, name) for name in ("m", "n", "k")}
    names = [name for name, size in sizes.items() if size == head_size]
    if len(names) != 1:
        return None
    joined = replace(product, **{names[0]: head_size * heads})

    def operands(m: float, n: float, k: float) -> float:
        return m * n + m * k + n * k

    growth = operands(joined.m, joined.n, joined.k) / operands(product.m, product.n, product.k)
    return estimate(replace(work, products=(joined,), bytes=work.bytes * growth), gpu)


def fewer_parameters_edits(context: RuleContext, loops: Sequence[HeadLoop]) -> list[Edit]:
    """Return the edits that shorten the host's time for parameters, of which fewer remain.

    The projections of all heads become one weight. Python handles each parameter in the optimizer's step, and between two steps: it
    clears gradients and frees autograd's graph.
    """
    total = sum(parameters_of(context.recording, context.rank.device).values())
    forward = pd.concat([loop.work.forward for loop in loops])
    projections = forward[forward["operator"].isin(PROJECTION_OPERATORS)].drop_duplicates("cpu_op_id")
    biases = int((projections["operator"] == "aten::addmm").sum())
    heads = max(loop.heads for loop in loops)
    saved = (len(projections) + biases) * (1 - 1 / heads) / context.work_steps
    if not 0 < saved < total:
        return []
    keep = 1 - saved / total
    updates = launched_by_optimizer(context.recording, context.rank.device)
    of_optimizer = launching_calls(context, context.work.loc[context.work["gpu_op_id"].isin(updates), "gpu_op_id"].tolist())
    first = launching_calls(context, context.work.groupby("step")["gpu_op_id"].first().tolist())
    return [
        FasterHost(keep, of_optimizer, low=keep, high=1.0),
        WithoutHostCause("python_host", keep, tuple(sorted(set(first) - set(of_optimizer))), keep_at_most=1.0),
    ]
