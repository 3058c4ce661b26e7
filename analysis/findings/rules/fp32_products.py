"""Matrix products run in FP32 or TF32, although bf16 may be enough.

What it checks
    Products, convolutions and attention of the counted steps with FP32 inputs, with tensor cores (TF32) or without. Sparse
    products, and products inside ``torch.linalg`` or the optimizer, do not count, because autocast does not make them faster.
Why it costs time
    The FP32 units of an H100 or H200 reach 67 TFLOP/s. The tensor cores reach 495 TFLOP/s in TF32 and 989 in bf16.
What to do
    Train under bf16 autocast. If inputs must stay in full FP32, allow TF32: see the rule tf32-off.
When it is wrong
    The products need FP32 accuracy, as in some physics and some second-order optimizers. Small products do not reach the rates
    above.
References
    https://docs.pytorch.org/docs/stable/amp.html
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from sawtooth.analysis.findings.autocast.edits import autocast_edits
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.findings.queries.calls import (
    FACTORIZATION_RISK,
    FOURIER_RISK,
    factorizes,
    ops_outside_autocast,
    transforms,
)
from sawtooth.analysis.findings.queries.shapes import differing_step_flops
from sawtooth.analysis.findings.recorded.counted_operations import evidence_of, ms_per_step, product_dtype, select_rows
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

CHANGES = (
    CodeChange(
        "PyTorch",
        "loss = model(x, y)\nloss.backward()",
        'with torch.autocast("cuda", dtype=torch.bfloat16):\n    loss = model(x, y)\nloss.backward()   # outside; bf16 needs no GradScaler',
    ),
    CodeChange("Lightning", "Trainer()", 'Trainer(precision="bf16-mixed")'),
    CodeChange("Transformers", "TrainingArguments(...)", "TrainingArguments(..., bf16=True)"),
)
# In 16 bits, PyTorch may choose cuDNN's attention, which plans for tens of milliseconds for each new shape. For FP32, PyTorch
# never chooses cuDNN's attention.
WITHOUT_CUDNN_ATTENTION = (
    "torch.backends.cuda.enable_cudnn_sdp(False)   # once: lengths vary, and cuDNN would plan for each of them\n"
)
FP16_CHANGES = (
    CodeChange(
        "PyTorch",
        "loss = model(x, y)\nloss.backward()\nopt.step()",
        'scaler = torch.amp.GradScaler("cuda")   # once; fp16 overflows without it\n'
        'with torch.autocast("cuda", dtype=torch.float16):\n    loss = model(x, y)\n'
        "scaler.scale(loss).backward()\nscaler.step(opt); scaler.update()",
    ),
    CodeChange("Lightning", "Trainer()", 'Trainer(precision="16-mixed")'),
    CodeChange("Transformers", "TrainingArguments(...)", "TrainingArguments(..., fp16=True)"),
)
# Share of the products' time in convolutions without known shapes. For a larger share, the rule uses kernel names instead of
# shapes. The shapes are not found before PyTorch 1.11, which names the backward passes of convolutions differently.
MAX_UNKNOWN_SHARE = 0.5
MIN_PEAK_RATIO = 2.5  # Faster tensor cores by a smaller factor do not justify the change.
BF16_RISK = "bf16 has 8 bits of mantissa: compare the loss curve; keep losses and norms in FP32, as autocast does."
FP16_RISK = "fp16 overflows above 65504: use a GradScaler."


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if FP32 products take a relevant share and the GPU has faster tensor cores."""
    gpu, steps = context.rank.gpu, context.work_steps
    if gpu is None:
        return
    dtype = "bf16" if gpu.peak_tflops("bf16") else "fp16"
    peak, fp32_peak = gpu.peak_tflops(dtype), gpu.peak_tflops("fp32")
    if peak is None or (fp32_peak is not None and peak < MIN_PEAK_RATIO * fp32_peak):
        return
    work = context.work
    all_products = work[work["category"].isin(("gemm", "conv", "attention"))]
    unknown = all_products[(all_products["category"] == "conv") & all_products["flop_operator"].isna()]
    are_unknown = unknown["dur_ns"].sum() > MAX_UNKNOWN_SHARE * all_products["dur_ns"].sum()
    if not context.rank.trace.record_shapes or are_unknown:
        yield from _evidence_by_name(context, dtype, peak / fp32_peak if fp32_peak else 2.0)
        return
    products = all_products[all_products["flop_operator"].notna()]
    products = products[~products["gpu_op_id"].isin(ops_outside_autocast(context))]
    fp32_rows = select_rows(products, lambda row: product_dtype(row) == "fp32")
    slow = select_rows(
        products, lambda row: product_dtype(row) in ("fp32", "tf32")
    )  # Autocast changes the dtype of both kinds.
    cost_ms, fp32_ms = ms_per_step(slow, steps), ms_per_step(fp32_rows, steps)
    edits = autocast_edits(context, slow, gpu, dtype)
    after_ms = context.predict_ms(edits) if edits else None
    gain_ms = context.step_ms - after_ms if after_ms is not None and context.step_ms else fp32_ms
    if context.is_negligible(gain_ms):
        return
    in_tf32 = fp32_ms < cost_ms / 2  # The user may have chosen TF32 for its accuracy, so the finding is no fault.
    # Kernels whose name and rate do not show their dtype may run in TF32.
    unsure = not in_tf32 and ms_per_step(fp32_rows[fp32_rows["tensor_cores"] == "no"], steps) < fp32_ms / 2
    needs_fp32 = factorizes(context)
    if in_tf32:
        clause = f", most of it in TF32: {dtype} is twice as fast on the same tensor cores"
    elif unsure:
        clause = "; their kernels do not show whether they use tensor cores"
    else:
        clause = f"{', mostly' if (slow['tensor_cores'] != 'no').any() else ''} without tensor cores"
    yield Evidence(
        Advice(
            f"FP32 products take {in_words(cost_ms)} of each step{clause}",
            Action(
                "Train",
                f"under {dtype} autocast",
                ": the same products run on tensor cores" + (", in half the time." if in_tf32 else "."),
            ),
            note=f"Predicted with the time of {dtype} kernels of these shapes on this GPU, and with the casts that autocast adds. Elementwise kernels also get {dtype} times, where the order of operators shows that their inputs are {dtype}.",
            risk=(FACTORIZATION_RISK if needs_fp32 else BF16_RISK if dtype == "bf16" else FP16_RISK)
            + (f" {FOURIER_RISK}" if dtype == "bf16" and transforms(context) else ""),
            changes=_changes(context, dtype, slow),
        ),
        lost_ms=cost_ms,
        cost_ms=fp32_ms,
        threshold_for="gain",
        edits=edits,
        at_most="warning" if in_tf32 or unsure or needs_fp32 else None,
        rows=evidence_of(slow, steps, ("flop_operator", "kernel")),
    )


def _changes(context: RuleContext, dtype: str, products: pd.DataFrame) -> tuple[CodeChange, ...]:
    """Return the code for autocast, without cuDNN's attention if the shapes of attention vary."""
    changes = CHANGES if dtype == "bf16" else FP16_CHANGES
    if not (products["category"] == "attention").any() or differing_step_flops(context) is None:
        return changes
    first, *other_changes = changes
    return (CodeChange(first.framework, first.before, WITHOUT_CUDNN_ATTENTION + first.after), *other_changes)


def _evidence_by_name(context: RuleContext, dtype: str, peak_ratio: float) -> Iterator[Evidence]:
    """Yield the evidence that kernels are FP32 by their names, in a trace without shapes.

    ``peak_ratio`` is the peak of ``dtype`` ÷ the peak of FP32. The gain is at most that of this ratio.
    """
    rows = context.fp32_by_name
    cost_ms = ms_per_step(rows, context.work_steps)
    max_gain_ms = cost_ms * (1 - 1 / peak_ratio)
    yield Evidence(
        Advice(
            f"FP32 products take {in_words(cost_ms)} of each step without tensor cores, by their kernels' names",
            Action("Train", f"under {dtype} autocast", ": the same products run on tensor cores."),
            note="This is an upper limit: without the products' shapes, only the ratio of the peaks limits the gain. Record with `record_shapes=True`.",
            risk=BF16_RISK if dtype == "bf16" else FP16_RISK,
            changes=CHANGES if dtype == "bf16" else FP16_CHANGES,
        ),
        lost_ms=max_gain_ms,
        cost_ms=max_gain_ms,
        at_most="warning",
        rows=evidence_of(rows, context.work_steps, ("flop_operator", "kernel")),
    )


RULE = Rule(
    "fp32-products",
    measure,
    reads=TRACE_SOURCES | {"shapes", "gpu_peaks"},
    explains=Explains(topics=frozenset({"choice"}), sets=("dtype bf16", "dtype fp16")),
    requires=("steps", "shapes or names", "gpu"),
    threshold=OTHER_CODE,
    same_work_as="smaller findings",
)
