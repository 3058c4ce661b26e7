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
SAME_KERNELS = (0.9, 1.1)  # Time of a convolution in NHWC ÷ its time in NCHW without layout conversions.
# 16-bit tensor-core kernels read this many channels at once. For other channel counts, cuDNN uses different kernels in NHWC.
TILE_CHANNELS = 8
# Range of the time ratio of those kernels. Of 756 kernels on an H200, 90 % had 0.55 to 2.3; a few had 4 to 12.
OTHER_KERNELS = (0.5, 4.0)
# PyTorch's own kernels for depthwise convolutions. PyTorch calls them in NCHW, and cuDNN's in NHWC. In PyTorch's benchmark,
# cuDNN reaches 0.64 to 5.8 times their speed, 1.2 to 1.3 times on average (pytorch#91735: four GPUs, forward and backward).
DEPTHWISE = "conv_depthwise"
CUDNN_DEPTHWISE = (0.8, 0.17, 1.56)
# From this number of parameters, memory traffic determines an optimizer's time, and its launches no longer matter.
MANY_VALUES = 1e8


def flop_work(row: Any, dtype: str, *, resized: Mapping[int, int] | None = None) -> KernelWork | None:
    """Return the work of a row's FLOP operator in ``dtype``; None if it is unknown.

    ``resized`` maps sizes that change (of products, and attention's head size) to their new values.
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

    ``resized`` maps sizes that change to their new values. A kernel keeps its time if its new time is not known or longer,
    because the library would then keep the old kernel. None if no new time is known.
    """

    def resized_estimate(row: Any) -> KernelTimeEstimate | None:
        work = flop_work(row, dtype, resized=resized)
        return estimate(work, gpu) if work is not None else None

    return _timing_edit(rows, _by_operator(rows, resized_estimate), slower=False)


def channels_last(convolutions: pd.DataFrame, norms: pd.DataFrame, gpu: GpuPeaks) -> list[Edit]:
    """Return the edits that run ``norms`` and ``convolutions`` in NHWC.

    A convolution between two layout conversions already runs an NHWC kernel. Other convolutions are assumed to take the same time
    in NHWC, within the interval SAME_KERNELS. Two exceptions: cuDNN's kernels replace PyTorch's own kernels for depthwise
    convolutions. cuDNN may choose other kernels if the channels are not a multiple of TILE_CHANNELS.
    """

    def last(row: Any) -> KernelTimeEstimate | None:
        moved = operator_bytes(row.operator, row.dims, row.types, row.concrete)
        dtype = dtype_of_type(row.types[0]) if row.types else None
        return estimate(moving_work(NORMS[row.operator], moved, dtype, "NHWC"), gpu) if moved and dtype else None

    timed = _timing_edit(norms, _by_operator(norms, last, ""), slower=True, prefix="")
    is_depthwise = convolutions["kernel"].str.contains(DEPTHWISE, na=False).to_numpy(bool)
    tiled = np.array([_fills_tiles(row) for row in convolutions.itertuples()], bool)
    parts = (
        (convolutions[tiled & ~is_depthwise], (1.0, *SAME_KERNELS)),
        (convolutions[~tiled & ~is_depthwise], (1.0, *OTHER_KERNELS)),
        (convolutions[is_depthwise], CUDNN_DEPTHWISE),
    )
    edits: list[Edit] = [ScaledOps(tuple(part["gpu_op_id"].tolist()), *factors) for part, factors in parts if len(part)]
    return edits if timed is None else [*edits, timed]


def _fills_tiles(row: Any) -> bool:
    """Return whether a convolution's channels are multiples of TILE_CHANNELS; True if they are not known."""
    channels = channels_of(row)
    return channels is None or not any(count % TILE_CHANNELS for count in channels)


def channels_of(row: Any) -> tuple[int, int] | None:
    """Return a convolution's input and output channels, summed over groups; None if not known."""
    dims, of_input = row.flop_dims or [], int(row.flop_operator == "aten::convolution_backward")
    if len(dims) < of_input + 2 or not all(
        isinstance(shape, list) and len(shape) >= 2 for shape in dims[of_input : of_input + 2]
    ):
        return None
    return dims[of_input][1], dims[of_input + 1][0]


def fused_optimizer(ops: tuple[int, ...], name: str, gpu: GpuPeaks | None) -> ScaledOps | None:
    """Return the edit that fuses the foreach kernels of ``name``; None unless it is Adam, AdamW or SGD."""
    times = [estimate(optimizer_work(name, kind, MANY_VALUES), gpu) for kind in ("fused", "foreach")] if gpu is not None else []
    if len(times) < 2 or times[0] is None or times[1] is None:
        return None
    fused, foreach_ms = times[0], times[1].ms
    return ScaledOps(ops, fused.ms / foreach_ms, fused.low / foreach_ms, fused.high / foreach_ms)


def _by_operator(
    rows: pd.DataFrame, time_of: Callable[[Any], KernelTimeEstimate | None], prefix: str = "flop_"
) -> dict[Any, KernelTimeEstimate]:
    """Return the estimate of each operator call in ``rows``, computed once per signature.

    ``prefix`` selects the operator of a row: its own or the one with the FLOPs.
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
    """Return the edit that divides each operator's new time among its kernels, by their old times."""
    calls = f"{prefix or 'cpu_'}op_id"
    rows = rows[rows[calls].isin(times.keys())]
    if not len(rows):
        return None
    recorded = rows["dur_ns"].to_numpy(float)
    share = recorded / rows.groupby(calls)["dur_ns"].transform("sum").to_numpy(float)
    shortest = np.minimum(recorded, SHORTEST_KERNEL_NS)
    new = [np.array([getattr(times[op], edge) for op in rows[calls]]) * 1e6 for edge in ("ms", "low", "high")]
    edges_ns = [np.maximum(kernel_ns * share, shortest) for kernel_ns in new]
    if not slower:
        edges_ns = [np.minimum(kernel_ns, recorded) for kernel_ns in edges_ns]
    middle, low, high = (tuple(np.rint(kernel_ns).astype(np.int64).tolist()) for kernel_ns in edges_ns)
    return TimedOps(tuple(rows["gpu_op_id"].tolist()), middle, low, high)
