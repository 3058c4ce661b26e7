"""Attention that runs as several kernels, and the time of a fused kernel for the same work."""

from __future__ import annotations

from typing import Any

import pandas as pd

from sawtooth.analysis.findings.recorded.counted_operations import numel, select_rows
from sawtooth.analysis.knowledge.hardware import GpuPeaks
from sawtooth.analysis.knowledge.kernel_time import KernelTimeEstimate, estimate
from sawtooth.analysis.knowledge.kernel_work import CAUSAL_SHARE, attention_work
from sawtooth.analysis.replay.edits import Edit, TimedOps, WithoutOps

SHORTEST_ROW = 32  # A softmax over fewer columns belongs to a classifier or a gate, not to attention.
# The backward pass of flash attention takes this many times as long per product as its forward pass. Measured at head sizes of
# 64 and 128.
BACKWARD_SLOWER = 1.4
MOVES = ("elementwise", "softmax", "copy", "reduction")
SOFTMAX_BACKWARD = ("aten::_softmax_backward_data", "aten::_safe_softmax_backward")
PRODUCTS_FORWARD, PRODUCTS_OF_BOTH_PASSES = 2, 6  # Batched products of attention written by hand.


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
    """Return the rows that only move data, and the products that read or write score matrices.

    The moved data are score matrices, and copies of queries, keys, values and outputs to the layout that a batched product needs.
    A fused kernel reads and writes the layout of the model.
    """
    sizes = score_sizes(work)
    products = select_rows(
        work,
        lambda row: (
            row.operator == "aten::bmm" and bool({_product_size(row.dims), *(numel(s) for s in row.dims or [])} & sizes)
        ),
    )
    signatures = products.drop_duplicates("signature_id")["dims"]
    operands = {tuple(shape) for dims in signatures for shape in dims[:2] if numel(shape) not in sizes}
    moves = select_rows(
        work,
        lambda row: (
            row.category in MOVES
            and (
                any(numel(shape) in sizes for shape in row.dims or [])
                or (row.category == "copy" and _copies(row.dims, operands))
            )
        ),
    )
    return moves, products


def _copies(dims: Any, operands: set[tuple[int, ...]]) -> bool:
    """Return whether a copy's first input is one of the ``operands`` of batched products.

    Its dimensions are batch, heads, length and head size, or batch, length, heads and head size.
    """
    shape = dims[0] if dims else None
    if not isinstance(shape, list) or len(shape) != 4 or any(isinstance(size, list) for size in shape):  # a list of tensors
        return False
    batch, first, second, last = shape
    batched = ((batch * first, second, last), (batch * second, first, last))
    return any(size in operands or (size[0], size[2], size[1]) in operands for size in batched)


def _product_size(dims: Any) -> int:
    if not dims or len(dims) < 2 or len(dims[0]) != 3 or len(dims[1]) != 3:
        return 0
    return int(dims[0][0] * dims[0][1] * dims[1][2])


def fusing_edits(moves: pd.DataFrame, products: pd.DataFrame, gpu: GpuPeaks) -> list[Edit]:
    """Return the edits that replace these rows by fused attention kernels.

    The longest kernel of each product gets its share of a fused kernel's time. In the forward pass, one fused kernel replaces two products. In the
    backward pass, it computes five products instead of four. A bias per head needs the memory-efficient kernel, which may take longer
    than the products. The kernels that sum the bias's gradient are kept.
    """
    biased = len(select_rows(moves, _adds_bias)) > 0
    trains = bool(moves["operator"].isin(SOFTMAX_BACKWARD).any())
    times: dict[int, KernelTimeEstimate | None] = {}
    edges: dict[str, list[int]] = {"ms": [], "low": [], "high": []}
    longest = products.sort_values("dur_ns", ascending=False, kind="stable").drop_duplicates("cpu_op_id").sort_index()
    for row in longest.itertuples():
        if row.signature_id not in times:
            times[row.signature_id] = _efficient_share(row.dims, gpu, trains) if biased else _fused_share(row.dims, gpu, trains)
        time = times[row.signature_id]
        for edge, durations in edges.items():
            new_ns = round(getattr(time, edge) * 1e6) if time is not None else row.dur_ns
            slower = biased and edge != "low"
            durations.append(max(new_ns if slower else min(new_ns, row.dur_ns), 1))
    timed = TimedOps(tuple(longest["gpu_op_id"].tolist()), *(tuple(durations) for durations in edges.values()))
    replaced = moves[moves["category"] != "reduction"] if biased else moves
    # Shorter kernels of a product may clear its output.
    helpers = products.loc[products.index.difference(longest.index), "gpu_op_id"]
    return [timed, WithoutOps((*replaced["gpu_op_id"].tolist(), *helpers.tolist()))]


def _adds_bias(row: Any) -> bool:
    """Return whether a row adds a matrix per head to the scores, such as a bias of relative positions."""
    if row.operator not in ("aten::add", "aten::add_") or not row.dims or len(row.dims) < 2:
        return False
    scores, bias = row.dims[:2]
    return (
        isinstance(bias, list) and len(bias) >= 3 and bias[-3] > 1 and bias[-2:] == scores[-2:] and numel(bias) < numel(scores)
    )


def _fused_share(dims: Any, gpu: GpuPeaks, trains: bool) -> KernelTimeEstimate | None:
    """Return the time of one product in a fused attention: half of a forward pass with two products.

    The upper bound includes BACKWARD_SLOWER, because a product of the backward pass may take longer. The lower bound comes from
    cuDNN's kernels with a causal mask, which compute half of a square matrix.
    """
    forward = _kernels_ms(dims, gpu, "flash", backward=False)
    if forward is None:
        return None
    cudnn = _share_of_passes(dims, gpu, "cudnn", trains)
    square = CAUSAL_SHARE if dims[0][1] == dims[1][2] or dims[0][1] == dims[0][2] else 1.0
    low = forward.low / 2 if cudnn is None else min(forward.low / 2, cudnn.low * square)
    return KernelTimeEstimate(forward.ms / 2, low, forward.high / 2 * BACKWARD_SLOWER)


def _efficient_share(dims: Any, gpu: GpuPeaks, trains: bool) -> KernelTimeEstimate | None:
    """Return the time of one product in memory-efficient attention.

    The estimate is also the upper bound, because the measured times were shorter: 0.6 times for windows of 49 tokens.
    """
    time = _share_of_passes(dims, gpu, "efficient", trains)
    return KernelTimeEstimate(time.ms, time.low, time.ms) if time is not None else None


def _share_of_passes(dims: Any, gpu: GpuPeaks, backend: str, trains: bool) -> KernelTimeEstimate | None:
    """Return the time of a fused forward pass per product, or of both passes if the loop ``trains``."""
    passes = [_kernels_ms(dims, gpu, backend, backward=backward) for backward in ((False, True) if trains else (False,))]
    known_times = [time for time in passes if time is not None]
    if len(known_times) < len(passes):
        return None
    products = PRODUCTS_OF_BOTH_PASSES if trains else PRODUCTS_FORWARD
    ms, low, high = (sum(getattr(time, edge) for time in known_times) / products for edge in ("ms", "low", "high"))
    return KernelTimeEstimate(ms, low, high)


def _kernels_ms(dims: Any, gpu: GpuPeaks, backend: str, *, backward: bool) -> KernelTimeEstimate | None:
    """Return the time of a fused pass over the scores that a product of ``dims`` reads or writes."""
    batch, rows, inner = dims[0]
    head, seq, past = sorted((rows, inner, dims[1][2]))
    work = attention_work(
        [batch, 1, seq, head], [batch, 1, past, head], "bf16", backend=backend, causal=False, backward=backward
    )
    return estimate(work, gpu) if work is not None else None
