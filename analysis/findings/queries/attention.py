"""Attention that runs as several kernels, and the time of a fused kernel for the same work."""

from __future__ import annotations

from typing import Any

import pandas as pd

from sawtooth.analysis.findings.recorded.counted_operations import numel, select_rows
from sawtooth.analysis.knowledge.hardware import GpuPeaks
from sawtooth.analysis.knowledge.kernel_time import KernelTimeEstimate, estimate
from sawtooth.analysis.knowledge.kernel_work import CAUSAL_SHARE, attention_work
from sawtooth.analysis.replay.edits import Edit, TimedOps, WithoutOps

MIN_SEQUENCE = 32  # A softmax over fewer columns belongs to a classifier or a gate, not to attention.
# Time per product of flash attention's backward pass ÷ that of its forward pass. Measured at head sizes of 64 and 128.
BACKWARD_FACTOR = 1.4
DEVICE_COPY = "DtoD"  # Part of the name of a copy inside the GPU's memory.
MOVING_CATEGORIES = ("elementwise", "softmax", "copy", "reduction")
SOFTMAX_BACKWARD = ("aten::_softmax_backward_data", "aten::_safe_softmax_backward")
PRODUCTS_FORWARD, PRODUCTS_OF_BOTH_PASSES = 2, 6  # Batched products of attention written by hand.


def score_sizes(work: pd.DataFrame) -> set[int]:
    """Return the element counts of attention score matrices.

    A score matrix is the input of a softmax, has at least three dimensions, and has the element count of a batched product.
    """
    bmm_sizes = {_product_size(row.dims) for row in work[work["operator"] == "aten::bmm"].itertuples()}
    sizes = set()
    for row in work[work["operator"].isin(("aten::_softmax", "aten::_safe_softmax"))].itertuples():
        shape = row.dims[0] if row.dims else None
        if not isinstance(shape, list) or len(shape) < 3 or min(shape[-2:]) < MIN_SEQUENCE:
            continue
        if numel(shape) in bmm_sizes:
            sizes.add(numel(shape))
    return sizes


def unfused_attention_rows(work: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows that only move data, and the products that read or write score matrices.

    The moved data are score matrices, and copies of queries, keys, values and outputs to the layout that a batched product needs.
    A fused kernel reads and writes the layout of the model.
    """
    sizes = score_sizes(work)

    def multiplies_scores(row: Any) -> bool:
        product_sizes = {_product_size(row.dims), *(numel(shape) for shape in row.dims or [])}
        return row.operator == "aten::bmm" and bool(product_sizes & sizes)

    products = select_rows(work, multiplies_scores)
    signatures = products.drop_duplicates("signature_id")["dims"]
    operands = {tuple(shape) for dims in signatures for shape in dims[:2] if numel(shape) not in sizes}

    def moves_data(row: Any) -> bool:
        if row.category == "memcpy":
            return DEVICE_COPY in row.kernel and row.operator == "aten::copy_" and _copies_operand(row.dims, operands)
        if row.category not in MOVING_CATEGORIES:
            return False
        has_scores = any(numel(shape) in sizes for shape in row.dims or [])
        return has_scores or (row.category == "copy" and _copies_operand(row.dims, operands))

    return select_rows(work, moves_data), products


def _copies_operand(dims: Any, operands: set[tuple[int, ...]]) -> bool:
    """Return whether a copy's first input is one of the ``operands`` of batched products.

    The input's dimensions are batch, heads, length and head size, or batch, length, heads and head size. One head has no dimension
    for the heads.
    """
    shape = dims[0] if dims else None
    if isinstance(shape, list) and len(shape) == 3 and all(isinstance(size, int) for size in shape):
        return (shape[0], shape[1], shape[2]) in operands or (shape[0], shape[2], shape[1]) in operands
    # A list of tensors has no such shape.
    if not isinstance(shape, list) or len(shape) != 4 or any(isinstance(size, list) for size in shape):
        return False
    batch, first, second, last = shape
    batched_shapes = ((batch * first, second, last), (batch * second, first, last))
    return any((b, m, n) in operands or (b, n, m) in operands for b, m, n in batched_shapes)


def _product_size(dims: Any) -> int:
    """Return the element count of a batched product, 0 if ``dims`` are not those of a batched product."""
    if not dims or len(dims) < 2 or len(dims[0]) != 3 or len(dims[1]) != 3:
        return 0
    return int(dims[0][0] * dims[0][1] * dims[1][2])


def fusing_edits(moves: pd.DataFrame, products: pd.DataFrame, gpu: GpuPeaks) -> list[Edit]:
    """Return the edits that replace these rows by fused attention kernels.

    The longest kernel of each product gets a share of a fused kernel's time. In the forward pass, a fused kernel replaces two products.
    In the backward pass, it replaces four products and computes five. A bias per head needs the memory-efficient kernel, which may take
    longer than the products. The kernels that sum the bias's gradient remain.
    """
    has_bias = len(select_rows(moves, _adds_bias)) > 0
    trains = bool(moves["operator"].isin(SOFTMAX_BACKWARD).any())
    times: dict[int, KernelTimeEstimate | None] = {}
    edges: dict[str, list[int]] = {"ms": [], "low": [], "high": []}
    longest = products.sort_values("dur_ns", ascending=False, kind="stable").drop_duplicates("cpu_op_id").sort_index()
    for row in longest.itertuples():
        if row.signature_id not in times:
            product_time = _efficient_product_time if has_bias else _fused_product_time
            times[row.signature_id] = product_time(row.dims, gpu, trains)
        time = times[row.signature_id]
        for edge, durations in edges.items():
            new_ns = round(getattr(time, edge) * 1e6) if time is not None else row.dur_ns
            may_be_slower = has_bias and edge != "low"
            durations.append(max(new_ns if may_be_slower else min(new_ns, row.dur_ns), 1))
    timed = TimedOps(tuple(longest["gpu_op_id"].tolist()), *(tuple(durations) for durations in edges.values()))
    removed = moves[moves["category"] != "reduction"] if has_bias else moves
    # Shorter kernels of a product may clear its output.
    helpers = products.loc[products.index.difference(longest.index), "gpu_op_id"]
    return [timed, WithoutOps((*removed["gpu_op_id"].tolist(), *helpers.tolist()))]


def _adds_bias(row: Any) -> bool:
    """Return whether a row adds a matrix per head to the scores, such as a bias of relative positions."""
    if row.operator not in ("aten::add", "aten::add_") or not row.dims or len(row.dims) < 2:
        return False
    scores, bias = row.dims[:2]
    if not isinstance(bias, list) or len(bias) < 3:
        return False
    return bias[-3] > 1 and bias[-2:] == scores[-2:] and numel(bias) < numel(scores)


def _fused_product_time(dims: Any, gpu: GpuPeaks, trains: bool) -> KernelTimeEstimate | None:
    """Return the time of one product in a fused attention: half of a forward pass with two products.

    The upper bound includes BACKWARD_FACTOR, because a product of the backward pass may take longer. The lower bound comes from
    cuDNN's kernels with a causal mask, which compute half of a square matrix.
    """
    forward = _pass_time(dims, gpu, "flash", backward=False)
    if forward is None:
        return None
    cudnn = _product_time_in_passes(dims, gpu, "cudnn", trains)
    square = CAUSAL_SHARE if dims[0][1] == dims[1][2] or dims[0][1] == dims[0][2] else 1.0
    low = forward.low / 2 if cudnn is None else min(forward.low / 2, cudnn.low * square)
    return KernelTimeEstimate(forward.ms / 2, low, forward.high / 2 * BACKWARD_FACTOR)


def _efficient_product_time(dims: Any, gpu: GpuPeaks, trains: bool) -> KernelTimeEstimate | None:
    """Return the time of one product in memory-efficient attention.

    The estimate is also the upper bound, because measured times were shorter (0.6 of the estimate for windows of 49 tokens).
    """
    time = _product_time_in_passes(dims, gpu, "efficient", trains)
    return KernelTimeEstimate(time.ms, time.low, time.ms) if time is not None else None


def _product_time_in_passes(dims: Any, gpu: GpuPeaks, backend: str, trains: bool) -> KernelTimeEstimate | None:
    """Return the time per product of a fused forward pass, or of both passes if the loop ``trains``."""
    passes = [_pass_time(dims, gpu, backend, backward=backward) for backward in ((False, True) if trains else (False,))]
    known_times = [time for time in passes if time is not None]
    if len(known_times) < len(passes):
        return None
    products = PRODUCTS_OF_BOTH_PASSES if trains else PRODUCTS_FORWARD
    ms, low, high = (sum(getattr(time, edge) for time in known_times) / products for edge in ("ms", "low", "high"))
    return KernelTimeEstimate(ms, low, high)


def _pass_time(dims: Any, gpu: GpuPeaks, backend: str, *, backward: bool) -> KernelTimeEstimate | None:
    """Return the time of a fused pass over the scores that a product of ``dims`` reads or writes."""
    batch, rows, inner = dims[0]
    head_size, queries, keys = sorted((rows, inner, dims[1][2]))
    work = attention_work(
        [batch, 1, queries, head_size], [batch, 1, keys, head_size], "bf16", backend=backend, causal=False, backward=backward
    )
    return estimate(work, gpu) if work is not None else None
