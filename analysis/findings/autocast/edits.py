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

EFFICIENT_ALIGNMENT = 4  # FP32 elements. The memory-efficient kernel needs head sizes that are multiples of this number.
MAX_FLASH_HEAD = 256  # Elements. Flash attention has no kernels for larger heads.


def autocast_edits(context: RuleContext, products: pd.DataFrame, gpu: GpuPeaks, dtype: str) -> list[Edit]:
    """Return the edits that run the step under autocast to ``dtype``, empty if the new times are unknown.

    ``products`` are the rows of ``RuleContext.work`` that autocast would run in ``dtype``.
    """
    timed = retimed_products(products, gpu, dtype)
    if timed is None:
        return []
    fusing, unfused = _attention_fusing(context, gpu)
    changes = {
        op: KernelChange(ns, low, high)
        for op, ns, low, high in zip(timed.ops, timed.dur_ns, timed.low_ns, timed.high_ns, strict=True)
    }
    rows = context.work[~context.work["gpu_op_id"].isin(unfused) & context.work["kind"].isin(("kernel", "memcpy"))]
    is_compiled = bool((rows["category"] == "fused").any())
    walk = AutocastWalk(gpu, dtype, set(products["flop_op_id"]), backward_op_ids(context), changes, is_compiled)
    outside = set(ops_outside_autocast(context).tolist())
    for _, step_rows in rows.groupby("step"):
        walk.step(step_rows[~step_rows["gpu_op_id"].isin(outside)])
    ops = tuple(op for op in changes if op not in unfused)
    columns = ((round(getattr(changes[op], edge)) for op in ops) for edge in ("ns", "low", "high"))
    casts = tuple(op for op in ops if changes[op].casts)
    edits: list[Edit] = [TimedOps(ops, *(tuple(column) for column in columns))]
    if casts:
        edits.append(MoreLaunches(casts, tuple(changes[op].casts for op in casts)))
    return [*edits, *fusing]


def _attention_fusing(context: RuleContext, gpu: GpuPeaks) -> tuple[list[Edit], set[int]]:
    """Return the edits that fuse attention that is unfused only because of FP32, and its gpu_op_ids.

    In FP32, PyTorch has only the memory-efficient kernel, which needs aligned head sizes. In 16 bits, PyTorch pads the head size for
    flash attention.
    """
    calls = context.recording.rows(
        "SELECT o.cpu_op_id, s.input_dims, s.input_types FROM named_cpu_ops o JOIN signatures s USING (signature_id) "
        "WHERE starts_with(o.name, 'aten::_scaled_dot_product_attention_math')"
    )
    fusable_calls = []
    for op, dims, types in calls:
        shapes = msgspec.json.decode(dims) if dims else []
        head_size = shapes[0][-1] if shapes and isinstance(shapes[0], list) and shapes[0] else 0
        is_fusable = isinstance(head_size, int) and head_size % EFFICIENT_ALIGNMENT and head_size <= MAX_FLASH_HEAD
        if is_fusable and types and '"float"' in types:
            fusable_calls.append(int(op))
    rows = passes(context, fusable_calls).both_passes
    if rows.empty:
        return [], set()
    moves, products = unfused_attention_rows(rows)
    return fusing_edits(moves, products, gpu), {*moves["gpu_op_id"].tolist(), *products["gpu_op_id"].tolist()}
