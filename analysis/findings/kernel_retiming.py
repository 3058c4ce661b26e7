"""Edits that run kernels in another dtype, layout or alignment, with times from ``kernel_time``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from sawtooth.analysis.knowledge.dtypes import dtype_of_type
from sawtooth.analysis.knowledge.hardware import GpuPeaks
from sawtooth.analysis.knowledge.kernel_time import KernelTimeEstimate, KernelWork, estimate
from sawtooth.analysis.knowledge.kernel_work import (
    convolution_work,
    moving_work,
    optimizer_work,
    product_work,
    recorded_attention,
)
from sawtooth.analysis.knowledge.traffic import operator_bytes
from sawtooth.analysis.replay.edits import Edit, ScaledOps, TimedOps

SHORTEST_KERNEL_NS = 2_000  # Every kernel takes at least about 2 µs.
HALF_BITS = ("bf16", "fp16")
NORMS = {
    "aten::native_batch_norm": "aten::native_batch_norm",
    "aten::cudnn_batch_norm": "aten::native_batch_norm",
    "aten::native_batch_norm_backward": "aten::native_batch_norm_backward",
    "aten::cudnn_batch_norm_backward": "aten::native_batch_norm_backward",
    "aten::native_group_norm": "aten::native_group_norm",
    "aten::native_group_norm_backward": "aten::native_group_norm_backward",
}
# Range of a convolution's time in NHWC ÷ its time in NCHW without layout conversions.
NHWC_FACTORS = (0.9, 1.1)
# 16-bit tensor-core kernels read this many channels at once. For other channel counts, cuDNN uses different kernels in NHWC.
TILE_CHANNELS = 8
# Range of the same ratio for other channel counts. Of 756 kernels on an H200, 90 % had 0.55 to 2.3; a few had 4 to 12.
UNTILED_NHWC_FACTORS = (0.5, 4.0)
# In NCHW, PyTorch calls its own kernels for depthwise convolutions, and in NHWC cuDNN's. In PyTorch's benchmark, cuDNN's kernels
# reach 0.64 to 5.8 times the speed of PyTorch's, 1.2 to 1.3 times on average (pytorch#91735: four GPUs, forward and backward).
DEPTHWISE = "conv_depthwise"
CUDNN_DEPTHWISE_FACTORS = (0.8, 0.17, 1.56)
# From this number of parameters, memory traffic determines an optimizer's time, and its launches no longer matter.
MANY_PARAMETERS = 1e8


def flop_work(row: Any, dtype: str, *, resized: Mapping[int, int] | None = None) -> KernelWork | None:
    """Return the work of a row's FLOP operator in ``dtype``; None if it is unknown.

    ``resized`` maps changed sizes of products, and changed head sizes of attention, to their new values.
    """
    operator, dims = row.flop_operator, row.flop_dims
    if not isinstance(operator, str) or not dims:
        return None
    if operator.startswith("aten::convolution"):
        return convolution_work(operator, dims, row.flop_strides, row.flop_concrete, dtype)
    if row.category == "attention":
        name = operator.replace("_efficient_", "_flash_") if dtype in HALF_BITS else operator
        return recorded_attention(name, _with_heads(dims, resized or {}), row.flop_concrete, dtype)
    return product_work(operator, dims, row.flop_strides, dtype, resized=resized)


def _with_heads(dims: list[Any], resized: Mapping[int, int]) -> list[Any]:
    """Return the shapes of an attention with the head size (the last dimension) replaced by ``resized``."""
    return [
        [*shape[:-1], resized.get(shape[-1], shape[-1])] if isinstance(shape, list) and len(shape) == 4 else shape
        for shape in dims
    ]


def retimed_products(
    rows: pd.DataFrame, gpu: GpuPeaks, dtype: str, *, resized: Mapping[int, int] | None = None
) -> TimedOps | None:
    """Return the edit that runs these products, convolutions and attentions in ``dtype``.

    ``resized`` maps changed sizes to their new values. A kernel keeps its time if its new time is not known. It also does if its new
    time is longer, because the library would then use the old kernel. None if no new time is known.
    """

    def resized_estimate(row: Any) -> KernelTimeEstimate | None:
        work = flop_work(row, dtype, resized=resized)
        return estimate(work, gpu) if work is not None else None

    return _timing_edit(rows, _times_by_call(rows, resized_estimate), slower=False)


def channels_last_edits(convolutions: pd.DataFrame, norms: pd.DataFrame, gpu: GpuPeaks) -> list[Edit]:
    """Return the edits that run ``norms`` and ``convolutions`` in NHWC.

    Convolutions are assumed to take the same time in NHWC, within the interval NHWC_FACTORS. If the channels are not a multiple of
    TILE_CHANNELS, cuDNN may choose other kernels. For depthwise convolutions, cuDNN's kernels replace PyTorch's own.
    """

    def nhwc_norm_time(row: Any) -> KernelTimeEstimate | None:
        moved_bytes = operator_bytes(row.operator, row.dims, row.types, row.concrete)
        dtype = dtype_of_type(row.types[0]) if row.types else None
        return estimate(moving_work(NORMS[row.operator], moved_bytes, dtype, "NHWC"), gpu) if moved_bytes and dtype else None

    timed = _timing_edit(norms, _times_by_call(norms, nhwc_norm_time, ""), slower=True, prefix="")
    is_depthwise = convolutions["kernel"].str.contains(DEPTHWISE, na=False).to_numpy(bool)
    is_tiled = np.array([_fills_tiles(row) for row in convolutions.itertuples()], bool)
    parts = (
        (convolutions[is_tiled & ~is_depthwise], (1.0, *NHWC_FACTORS)),
        (convolutions[~is_tiled & ~is_depthwise], (1.0, *UNTILED_NHWC_FACTORS)),
        (convolutions[is_depthwise], CUDNN_DEPTHWISE_FACTORS),
    )
    edits: list[Edit] = [ScaledOps(tuple(part["gpu_op_id"].tolist()), *factors) for part, factors in parts if len(part)]
    return edits if timed is None else [*edits, timed]


def _fills_tiles(row: Any) -> bool:
    """Return whether a convolution's channels are multiples of TILE_CHANNELS; True if they are not known."""
    channels = channel_counts(row)
    return channels is None or not any(count % TILE_CHANNELS for count in channels)


def channel_counts(row: Any) -> tuple[int, int] | None:
    """Return a convolution's input and output channels, summed over groups; None if not known."""
    input_place = int(row.flop_operator == "aten::convolution_backward")
    shapes = (row.flop_dims or [])[input_place : input_place + 2]
    if len(shapes) < 2 or not all(isinstance(shape, list) and len(shape) >= 2 for shape in shapes):
        return None
    input_shape, weight_shape = shapes
    return input_shape[1], weight_shape[0]


def fused_optimizer_edit(ops: tuple[int, ...], name: str, gpu: GpuPeaks | None) -> ScaledOps | None:
    """Return the edit that fuses an optimizer's foreach kernels, None unless it is Adam, AdamW or SGD."""
    if gpu is None:
        return None
    fused, foreach = (estimate(optimizer_work(name, kind, MANY_PARAMETERS), gpu) for kind in ("fused", "foreach"))
    if fused is None or foreach is None:
        return None
    return ScaledOps(ops, fused.ms / foreach.ms, fused.low / foreach.ms, fused.high / foreach.ms)


def _times_by_call(
    rows: pd.DataFrame, time_of: Callable[[Any], KernelTimeEstimate | None], prefix: str = "flop_"
) -> dict[Any, KernelTimeEstimate]:
    """Return the estimated time of each operator call in ``rows``, computed once per signature.

    ``prefix`` is "flop_" for the operators that have the FLOPs, and "" for the launching operators.
    """
    calls = f"{prefix or 'cpu_'}op_id"
    estimates: dict[Any, KernelTimeEstimate] = {}
    by_signature: dict[Any, KernelTimeEstimate | None] = {}
    # The longest kernel of a call determines its dtype.
    for row in rows.sort_values("dur_ns", ascending=False).drop_duplicates(calls).itertuples():
        key = (getattr(row, f"{prefix}operator"), getattr(row, f"{prefix}signature_id"))
        if key not in by_signature:
            by_signature[key] = time_of(row)
        time = by_signature[key]
        if time is not None:
            estimates[getattr(row, calls)] = time
    return estimates


def _timing_edit(
    rows: pd.DataFrame, times: dict[Any, KernelTimeEstimate], *, slower: bool, prefix: str = "flop_"
) -> TimedOps | None:
    """Return the edit that divides each call's new time among its kernels, by their old times.

    Without ``slower``, no kernel takes longer than recorded.
    """
    calls = f"{prefix or 'cpu_'}op_id"
    rows = rows[rows[calls].isin(times.keys())]
    if not len(rows):
        return None
    recorded_ns = rows["dur_ns"].to_numpy(float)
    share = recorded_ns / rows.groupby(calls)["dur_ns"].transform("sum").to_numpy(float)
    shortest_ns = np.minimum(recorded_ns, SHORTEST_KERNEL_NS)
    call_ns = [np.array([getattr(times[op], edge) for op in rows[calls]]) * 1e6 for edge in ("ms", "low", "high")]
    kernel_ns = [np.maximum(edge_ns * share, shortest_ns) for edge_ns in call_ns]
    if not slower:
        kernel_ns = [np.minimum(edge_ns, recorded_ns) for edge_ns in kernel_ns]
    likely, low, high = (tuple(np.rint(edge_ns).astype(np.int64).tolist()) for edge_ns in kernel_ns)
    return TimedOps(tuple(rows["gpu_op_id"].tolist()), likely, low, high)
