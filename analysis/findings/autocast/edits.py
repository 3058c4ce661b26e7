"""Edits that run a step under autocast: products, elementwise work, casts, newly fused attention."""

from __future__ import annotations

import msgspec
import pandas as pd

from sawtooth.analysis.findings.autocast.kernel_changes import AutocastWalk, KernelChange
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.kernel_retiming import retimed_products
from sawtooth.analysis.findings.queries.attention import fusing_edits, unfused_attention_rows
from sawtooth.analysis.findings.queries.calls import ops_outside_autocast
from sawtooth.analysis.findings.queries.passes import backward_op_ids, passes
from sawtooth.analysis.knowledge.hardware import GpuPeaks
from sawtooth.analysis.replay.edits import Edit, MoreLaunches, TimedOps

# FP32 elements in a load of 16 bytes. The memory-efficient kernel needs head sizes that are multiples of this number.
EFFICIENT_ALIGNED = 4
LARGEST_HEAD = 256  # Flash attention, which the change needs, has no kernels for larger heads.


def autocast_edits(context: RuleContext, products: pd.DataFrame, gpu: GpuPeaks, dtype: str) -> list[Edit]:
    """Return the edits that run the step under autocast to ``dtype``; empty if times are unknown.

    ``products`` are the rows of ``RuleContext.work`` that autocast would run in ``dtype``.
    """
    timed = retimed_products(products, gpu, dtype)
    if timed is None:
        return []
    fused, unfused = _newly_fused(context, gpu)
    changes = {
        op: KernelChange(ns, low, high)
        for op, ns, low, high in zip(timed.ops, timed.dur_ns, timed.low_ns, timed.high_ns, strict=True)
    }
    rows = context.work[~context.work["gpu_op_id"].isin(unfused) & context.work["kind"].isin(("kernel", "memcpy"))]
    compiled = bool((rows["category"] == "fused").any())
    casting = AutocastWalk(gpu, dtype, set(products["flop_op_id"]), backward_op_ids(context), changes, compiled)
    outside = set(ops_outside_autocast(context).tolist())
    for _, part in rows.groupby("step"):
        casting.step(part[~part["gpu_op_id"].isin(outside)])
    ops = tuple(op for op in changes if op not in unfused)
    columns = ((round(getattr(changes[op], edge)) for op in ops) for edge in ("ns", "low", "high"))
    casts = tuple(op for op in ops if changes[op].casts)
    edits: list[Edit] = [TimedOps(ops, *(tuple(column) for column in columns))]
    if casts:
        edits.append(MoreLaunches(casts, tuple(changes[op].casts for op in casts)))
    return [*edits, *fused]


def _newly_fused(context: RuleContext, gpu: GpuPeaks) -> tuple[list[Edit], set[int]]:
    """Return the edits that fuse attention which is unfused only in FP32, and its gpu_op_ids.

    For FP32, only the memory-efficient kernel is fused, and it needs head sizes that fill its loads. In 16 bits, PyTorch pads the
    head size for flash attention.
    """
    calls = context.recording.rows(
        "SELECT o.cpu_op_id, s.input_dims, s.input_types FROM named_cpu_ops o JOIN signatures s USING (signature_id) "
        "WHERE starts_with(o.name, 'aten::_scaled_dot_product_attention_math')"
    )
    ids = []
    for op, dims, types in calls:
        shapes = msgspec.json.decode(dims) if dims else []
        head = shapes[0][-1] if shapes and isinstance(shapes[0], list) and shapes[0] else 0
        if isinstance(head, int) and head % EFFICIENT_ALIGNED and head <= LARGEST_HEAD and types and '"float"' in types:
            ids.append(int(op))
    math_path = passes(context, ids).both_passes
    if not len(math_path):
        return [], set()
    moves, products = unfused_attention_rows(math_path)
    return fusing_edits(moves, products, gpu), {*moves["gpu_op_id"].tolist(), *products["gpu_op_id"].tolist()}
