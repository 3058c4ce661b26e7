"""Large bf16 products could run faster in FP8.

What it checks
    The share of the step in large 16-bit matrix products that run near their peak, on GPUs with FP8 tensor cores. The products'
    dimensions must be multiples of 16, as FP8 needs.
Why it costs time
    FP8 has twice the peak and half the memory traffic. A 16-bit product near its peak cannot become much faster in 16 bits.
What to do
    Use FP8 linear layers from torchao or Transformer Engine, with dynamic scaling.
When it is wrong
    The products are small or memory-bound, so the scaling kernels cost more than FP8 saves.
References
    https://github.com/pytorch/ao/tree/main/torchao/float8
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from sawtooth.analysis.findings.actions import MODEL
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.kernel_retiming import retimed_products
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FP8
from sawtooth.analysis.findings.recorded.counted_operations import evidence_of, ms_per_step, product_dtype, select_rows
from sawtooth.analysis.knowledge.hardware import GpuPeaks
from sawtooth.analysis.replay.edits import TimedOps
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

FP8_MULTIPLE = 16  # PyTorch's scaled product rejects other sizes.
# Share of the 16-bit peak. cuBLAS reaches 0.6 to 0.8 with large sizes, and less under a power limit. Something other than the
# peak limits a slower product, so twice the peak does not help.
NEAR_PEAK_SHARE = 0.5
LARGE_FLOPS = 2 * 4096**3  # Products smaller than about 4096³ gain nothing, because scaling and launches take the saved time.

CHANGES = (
    CodeChange(
        "PyTorch",
        "model = $model.cuda()",
        "from torchao.float8 import convert_to_float8_training   # sizes must be multiples of 16\nmodel = torch.compile(convert_to_float8_training($model.to(torch.bfloat16).cuda()))",
        slot_defaults=MODEL,
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield an info finding if large 16-bit products take a relevant share of the step."""
    gpu, steps = context.rank.gpu, context.work_steps
    if gpu is None or gpu.peak_tflops("fp8") is None:
        return
    work = context.work
    large_products = work[(work["category"] == "gemm") & (work["flops"] >= LARGE_FLOPS)]
    near_peak = select_rows(large_products, lambda row: _is_near_peak(row, gpu) and _has_fp8_sizes(row))
    cost_ms = ms_per_step(near_peak, steps)
    if context.is_negligible(cost_ms):
        return
    edit = _at_most_twice_as_fast(retimed_products(near_peak, gpu, "fp8"), near_peak)
    yield Evidence(
        Advice(
            f"Large 16-bit products take {in_words(cost_ms)} of each step; FP8 has twice their peak",
            Action(
                "Try", "FP8 linear layers for the large products", ", and compare the loss curve: FP8 rounds more coarsely."
            ),
            note="Predicted with the time of FP8 products of these shapes. Scaling kernels are not included.",
            risk="FP8 is less accurate: compare the loss curve over a few thousand steps.",
            changes=CHANGES,
        ),
        lost_ms=cost_ms,
        cost_ms=cost_ms,
        edits=[edit] if edit else [],
        confidence="low",
        severity="info",
        rows=evidence_of(near_peak, steps, ("flop_operator", "kernel")),
    )


def _is_near_peak(row: Any, gpu: GpuPeaks) -> bool:
    """Return whether a 16-bit product reaches NEAR_PEAK_SHARE of the GPU's peak rate."""
    dtype = product_dtype(row)
    peak = gpu.peak_tflops(dtype) if dtype in ("bf16", "fp16") else None
    return peak is not None and row.flops >= NEAR_PEAK_SHARE * peak * 1e3 * row.dur_ns


def _has_fp8_sizes(row: Any) -> bool:
    """Return whether all matrix sizes of a product are multiples of FP8_MULTIPLE."""
    sizes = [size for shape in row.flop_dims or [] if isinstance(shape, list) and len(shape) > 1 for size in shape[-2:]]
    return not any(size % FP8_MULTIPLE for size in sizes)


def _at_most_twice_as_fast(edit: TimedOps | None, rows: pd.DataFrame) -> TimedOps | None:
    """Return the edit with each kernel at least half as long as recorded.

    FP8 has twice the peak and half the memory traffic. If the estimate is shorter than half, the recorded kernel is slow. A better
    16-bit kernel would save the rest.
    """
    if edit is None:
        return None
    half_ns = dict(zip(rows["gpu_op_id"].tolist(), (rows["dur_ns"] // 2).tolist(), strict=True))
    likely, low, high = (
        tuple(max(ns, half_ns[op]) for op, ns in zip(edit.ops, times_ns, strict=True))
        for times_ns in (edit.dur_ns, edit.low_ns, edit.high_ns)
    )
    return TimedOps(edit.ops, likely, low, high)


RULE = Rule(
    "fp8-products",
    measure,
    reads=TRACE_SOURCES | {"shapes", "gpu_peaks"},
    explains=Explains(sets=("dtype fp8",)),
    requires=("steps", "shapes", "gpu"),
    threshold=FP8,
)
