"""Compiled code uses the library's matrix products, and some of them are slow.

What it checks
    Matrix products in code of torch.compile, if it does not use Triton templates for products. The rule compares the time of each
    product with the kernel model's time for its shape and dtype.
Why it costs time
    For some shapes (few rows, odd sizes, a long inner dimension), the library's heuristic chooses a kernel that is far from
    the best. ``max-autotune`` measures the library's and Triton's kernels and uses the fastest.
What to do
    Use ``torch.compile(mode="max-autotune-no-cudagraphs")``, or ``max-autotune`` if the step may also be a CUDA graph. The
    search takes minutes at the start.
When it is wrong
    Other work slows the products, such as a second process on the GPU. Autotuning may gain even if there is no finding: it
    may find a faster kernel, or fuse the following work into a product. A trace without autotuning cannot show this.
    Convolutions are left out, because templates are seldom faster than cuDNN.
References
    https://docs.pytorch.org/docs/stable/generated/torch.compile.html
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.kernel_retiming import flop_work, retimed_products
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import CALL_TO_CHECK
from sawtooth.analysis.findings.recorded.counted_operations import evidence_of, ms_per_step, product_dtype, select_rows
from sawtooth.analysis.knowledge.hardware import GpuPeaks
from sawtooth.analysis.knowledge.kernel_time import estimate
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_number, in_words

TEMPLATE_KERNELS = "^triton_(tem|mm|bmm)"  # Kernels that max-autotune generates have these names.
COMPILED_CODE = "^triton_|^Torch-Compiled Region"

CHANGES = (
    CodeChange("PyTorch", "model = torch.compile(model)", 'model = torch.compile(model, mode="max-autotune-no-cudagraphs")'),
    CodeChange("Lightning", "model.compile()", 'model.compile(mode="max-autotune-no-cudagraphs")'),
    CodeChange(
        "Transformers",
        "TrainingArguments(torch_compile=True)",
        'TrainingArguments(torch_compile=True, torch_compile_mode="max-autotune-no-cudagraphs")',
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if products in compiled code at the kernel model's speed would shorten the step."""
    gpu, steps = context.rank.gpu, context.work_steps
    if gpu is None or not context.recording.named(COMPILED_CODE) or context.recording.named(TEMPLATE_KERNELS):
        return
    work = context.work
    products = work[(work["category"] == "gemm") & work["flop_operator"].notna()]
    for dtype in sorted({product_dtype(row) or "" for row in products.itertuples()} - {""}):
        slow = select_rows(products, partial(_is_slow, dtype=dtype, gpu=gpu))
        edit = retimed_products(slow, gpu, dtype) if len(slow) else None
        predicted_ms = context.predict_ms([edit]) if edit is not None else None
        if predicted_ms is None or not context.step_ms or context.is_negligible(context.step_ms - predicted_ms):
            continue
        cost_ms = ms_per_step(slow, steps)
        yield Evidence(
            Advice(
                f"{in_number(len(slow) / steps, 'product per step takes', 'products per step take')} {in_words(cost_ms)}, longer than usual for their shapes",
                Action("Let", "torch.compile time its kernels", ": mode='max-autotune-no-cudagraphs'."),
                note="Predicted with the usual time of products of these shapes. The gain of further fusion is not included.",
                risk="The search takes minutes at every start, unless its cache is stored. Other kernels round differently.",
                changes=CHANGES,
            ),
            lost_ms=cost_ms,
            edits=[edit] if edit is not None else [],
            confidence="low",
            severity="info",
            rows=evidence_of(slow, steps, ("flop_operator", "kernel")),
            threshold_for="gain",
        )


def _is_slow(row: Any, dtype: str, gpu: GpuPeaks) -> bool:
    """Return whether a product in ``dtype`` takes longer than the upper bound of the kernel model."""
    work = flop_work(row, dtype) if product_dtype(row) == dtype else None
    expected = estimate(work, gpu) if work is not None else None
    return expected is not None and row.dur_ns / 1e6 > expected.high


RULE = Rule(
    "max-autotune",
    measure,
    reads=TRACE_SOURCES | {"shapes", "gpu_peaks"},
    requires=("steps", "shapes", "gpu"),
    threshold=CALL_TO_CHECK,
)
