"""FLOPs of a trace: counting operators, FLOPs of counted steps, and the kernel time they explain."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.classes import Classes, Signatures
from sawtooth.analysis.derive.events import I64, TraceEvents
from sawtooth.analysis.derive.operators import nearest_marked_operator
from sawtooth.analysis.derive.recompute import is_recomputed_work
from sawtooth.analysis.derive.steps.device import STATUS_NAMES, DeviceSteps
from sawtooth.analysis.distinct_rows import distinct_rows
from sawtooth.analysis.intervals import intersect, union
from sawtooth.analysis.knowledge.dtypes import SPARSE_KERNEL, has_sparse_operand
from sawtooth.analysis.knowledge.flops import FP32_UNCERTAIN, is_flop_operator, operator_flops, outermost, peak_dtype
from sawtooth.analysis.knowledge.owners import TENSOR_CORES_USED

LOST_LAUNCHES = 0.05  # If more than 5 % of GPU time has no launch, the profiler lost events, perhaps also kernels.
FLOP_CATEGORIES = ("gemm", "conv", "attention")
USES = ("no", "unknown", "yes")


@dataclass(frozen=True)
class FlopCounts:
    """FLOPs by operator.

    ``is_counted`` marks the cpu_ops that are counted, ``count`` their FLOPs (NaN if unknown), ``dtype`` their index in ``dtypes``
    (-1 if unknown).
    ``is_recomputed`` marks carriers that repeat forward work inside backward.
    ``counted_operator_of`` is aligned with gpu_op_id: the counted operator to which an operation belongs, -1 for none.
    """

    is_counted: NDArray[np.bool_]
    is_recomputed: NDArray[np.bool_]
    count: NDArray[np.float64]
    dtype: NDArray[np.int8]
    dtypes: list[str]
    counted_operator_of: I64


def operator_flop_counts(events: TraceEvents, signatures: Signatures, classes: Classes, vendor: str | None) -> FlopCounts:
    """Count each operator's FLOPs once.

    An operator's kernels show by their tensor-core use whether it is FP32 or TF32. The dtype is FP32_UNCERTAIN if the kernels
    do not show it.
    """
    ops = events.ops
    by_name = np.array([is_flop_operator(name) for name in events.names] or [False])
    counted = by_name[ops.name] & ~ops.annotation if len(ops) else np.zeros(0, bool)
    is_counted = outermost(ops.parent, counted)
    counted_operator_of = nearest_marked_operator(is_counted, ops.parent, events.gpu.cpu_op)
    use = np.zeros(len(ops), np.int8)  # The largest index in USES of an operator's kernels.
    product = (counted_operator_of >= 0) & classes.among("category", FLOP_CATEGORIES)
    use[counted_operator_of[product & classes.among("tensor_cores", ("unknown",))]] = USES.index("unknown")
    use[counted_operator_of[(counted_operator_of >= 0) & classes.among("tensor_cores", TENSOR_CORES_USED)]] = USES.index("yes")
    rows = np.flatnonzero(is_counted)
    count, dtype = np.full(len(ops), np.nan), np.full(len(ops), -1, np.int8)
    dtypes: list[str] = []
    parts = np.stack([ops.name[rows], ops.signature[rows], use[rows]])
    first, inverse = distinct_rows(*parts)
    keys = parts[:, first]
    flops, kinds = np.full(keys.shape[1], np.nan), np.full(keys.shape[1], -1, np.int8)
    for i, (name, signature, used) in enumerate(keys.T):
        if signature < 0:
            continue
        inputs = signatures[signature]
        flop_count = operator_flops(events.names[name], inputs.dims, inputs.concrete, inputs.strides)
        flops[i] = np.nan if flop_count is None else flop_count
        if has_sparse_operand(events.names[name], inputs.strides):
            continue
        kind = peak_dtype(events.names[name], inputs.types, USES[used], vendor)
        if kind == "fp32" and USES[used] == "unknown" and peak_dtype(events.names[name], inputs.types, "yes", vendor) == "tf32":
            kind = FP32_UNCERTAIN
        if kind:
            if kind not in dtypes:
                dtypes.append(kind)
            kinds[i] = dtypes.index(kind)
    count[rows], dtype[rows] = flops[inverse.reshape(-1)], kinds[inverse.reshape(-1)]
    sparse_name = np.array([re.search(SPARSE_KERNEL, name) is not None for name in events.names] or [False])
    sparse = counted_operator_of[sparse_name[events.gpu.name]] if len(counted_operator_of) else counted_operator_of
    count[sparse[sparse >= 0]], dtype[sparse[sparse >= 0]] = np.nan, -1
    return FlopCounts(
        is_counted=is_counted,
        is_recomputed=is_recomputed_work(events, is_counted),
        count=count,
        dtype=dtype,
        dtypes=dtypes,
        counted_operator_of=counted_operator_of,
    )


def device_flops(
    events: TraceEvents,
    classes: Classes,
    counts: FlopCounts,
    device: DeviceSteps,
    counted_ops: NDArray[np.bool_],
    single_device: bool,
) -> dict[str, Any]:
    """Summarise the FLOPs of one device over its counted steps.

    ``counted_ops`` marks the cpu_ops of the counted steps. ``single_device`` means that the trace has one device. If the profiler lost
    launches, that device gets operators without kernels too.

    Returns ``flops``, ``by_dtype`` and ``operators`` (the number of counted operators), all without recomputation, and
    ``recomputed_flops``. ``kernel_ns`` is the time of GEMM, convolution and attention kernels in counted steps. ``covered_ns``
    is the part of ``kernel_ns`` with known FLOPs. ``union_ns`` is the time in which such kernels run inside the steady window.
    """
    ops_of_device = device.ops
    is_flop = classes.among("category", FLOP_CATEGORIES)[ops_of_device]
    table = device.table
    counted_step = table["counted"].to_numpy(bool) if len(table) else np.zeros(0, bool)
    in_step = (device.op_step >= 0) & (counted_step[np.maximum(device.op_step, 0)] if len(counted_step) else False)
    start, end = events.gpu.start[ops_of_device], events.gpu.end[ops_of_device]
    dur = end - start
    is_counted = counts.counted_operator_of[ops_of_device]
    has_flops = (is_counted >= 0) & np.isfinite(
        counts.count[np.maximum(is_counted, 0)] if len(counts.count) else np.zeros(len(is_counted))
    )
    # An operator without a kernel ran on the CPU or on a compiler's fake tensors, so its FLOPs are not the GPU's. But if the
    # profiler lost launches, the operator's kernels may be lost.
    orphans = device.status == STATUS_NAMES.index("orphan")
    lost = single_device and bool(dur[orphans].sum() > LOST_LAUNCHES * max(int(dur.sum()), 1))
    ours = np.zeros(len(events.ops), bool)
    ours[is_counted[is_counted >= 0]] = True
    executed = counts.is_counted & counted_ops & np.isfinite(counts.count) & (ours | lost)
    chosen = executed & ~counts.is_recomputed
    by_dtype = {name: float(counts.count[chosen & (counts.dtype == i)].sum()) for i, name in enumerate(counts.dtypes)}
    unknown_dtype = float(counts.count[chosen & (counts.dtype < 0)].sum())
    if unknown_dtype:
        by_dtype["unknown"] = unknown_dtype
    return {
        "flops": float(counts.count[chosen].sum()),
        "operators": int(chosen.sum()),
        "by_dtype": by_dtype,
        "recomputed_flops": float(counts.count[executed & counts.is_recomputed].sum()),
        "kernel_ns": int(dur[is_flop & in_step].sum()),
        "covered_ns": int(dur[is_flop & in_step & has_flops].sum()),
        "union_ns": intersect(union(start[is_flop], end[is_flop]), device.window).total,
    }
