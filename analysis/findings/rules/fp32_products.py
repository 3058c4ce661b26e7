"""Matrix products run in FP32 or TF32, although bf16 may be enough.

What it checks
    Products, convolutions and attention of the counted steps with FP32 inputs, with tensor cores (TF32) or without. Sparse
    products, and those inside ``torch.linalg`` or the optimizer, do not count: autocast does not make them faster.
Why it costs time
    The FP32 units of an H100 or H200 reach 67 TFLOP/s. Its tensor cores reach 495 in TF32 and 989 in bf16.
What to do
    Train under bf16 autocast. If inputs must stay in full FP32, allow TF32: see the rule tf32-off.
When it is wrong
    The code needs FP32 accuracy in its products, as in some physics and some second-order optimizers. Small products do not reach
    these rates.
References
    https://docs.pytorch.org/docs/stable/amp.html
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from sawtooth.analysis.findings.autocast.edits import under_autocast
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.findings.queries.calls import FACTORIZATION_RISK, factorizes, outside_autocast
from sawtooth.analysis.findings.queries.shapes import unlike_steps
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
# In 16 bits, PyTorch may choose cuDNN's attention, which needs tens of milliseconds to plan for each new shape. It never chooses
# it for FP32.
NO_PLANS = "torch.backends.cuda.enable_cudnn_sdp(False)   # once: lengths vary, and cuDNN would plan for each of them\n"
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
# Share of the products' time in convolutions without known shapes. Above it, the rule uses kernel names instead of shapes. PyTorch
# before 1.11 names the backward passes of convolutions differently, so their shapes are not found.
UNKNOWN_SHARE = 0.5
BF16_RISK = "bf16 has 8 bits of mantissa: compare the loss curve; keep losses and norms in FP32, as autocast does."
FP16_RISK = "fp16 overflows above 65504: use a GradScaler."


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if FP32 products take a relevant share and the GPU has faster tensor cores."""
    gpu, steps = context.rank.gpu, context.work_steps
    if gpu is None:
        return
    dtype = "bf16" if gpu.peak_tflops("bf16") else "fp16"
    peak, plain = gpu.peak_tflops(dtype), gpu.peak_tflops("fp32")
    # Tensor cores that are less than 2.5 times as fast do not justify the change.
    if peak is None or (plain is not None and peak < 2.5 * plain):
        return
    work = context.work
    every = work[work["category"].isin(("gemm", "conv", "attention"))]
    products = every[every["flop_operator"].notna()]
    unknown = every[(every["category"] == "conv") & every["flop_operator"].isna()]
    if not context.rank.trace.record_shapes or unknown["dur_ns"].sum() > UNKNOWN_SHARE * every["dur_ns"].sum():
        yield from _by_name(context, dtype, peak / plain if plain else 2.0)
        return
    products = products[~products["gpu_op_id"].isin(outside_autocast(context))]
    plain_rows = select_rows(products, lambda row: product_dtype(row) == "fp32")
    slow = select_rows(products, lambda row: product_dtype(row) in ("fp32", "tf32"))  # Autocast changes both.
    cost, alone = ms_per_step(slow, steps), ms_per_step(plain_rows, steps)
    edits = under_autocast(context, slow, gpu, dtype)
    after = context.predict_ms(edits) if edits else None
    gain = context.step_ms - after if after is not None and context.step_ms else alone
    if context.is_trifle(gain):
        return
    in_tf32 = alone < cost / 2  # TF32 may have been chosen for its accuracy, so this is an opportunity, not a fault.
    # Kernels whose name and rate do not show their dtype may run in TF32.
    unsure = not in_tf32 and ms_per_step(plain_rows[plain_rows["tensor_cores"] == "no"], steps) < alone / 2
    needed = factorizes(context)
    yield Evidence(
        Advice(
            f"FP32 products take {in_words(cost)} of each step"
            + (
                f", most of it in TF32: {dtype} is twice as fast on the same tensor cores"
                if in_tf32
                else "; their kernels do not show whether they use tensor cores"
                if unsure
                else ", mostly without tensor cores"
                if (slow["tensor_cores"] != "no").any()
                else " without tensor cores"
            ),
            Action(
                "Train",
                f"under {dtype} autocast",
                ": the same products run on tensor cores" + (", in half the time." if in_tf32 else "."),
            ),
            note=f"Predicted with the time of {dtype} kernels of these shapes on this GPU, and with the casts that autocast adds. Elementwise work counts as {dtype} if the order of operators shows it.",
            risk=FACTORIZATION_RISK if needed else BF16_RISK if dtype == "bf16" else FP16_RISK,
            changes=_changes(context, dtype, slow),
        ),
        lost_ms=cost,
        cost_ms=alone,
        threshold_for="gain",
        edits=edits,
        at_most="warning" if in_tf32 or unsure or needed else None,
        rows=evidence_of(slow, steps, ("flop_operator", "kernel")),
    )


def _changes(context: RuleContext, dtype: str, products: pd.DataFrame) -> tuple[CodeChange, ...]:
    """Return the code; if the shapes of attention vary, it also turns cuDNN's attention off."""
    changes = CHANGES if dtype == "bf16" else FP16_CHANGES
    if not (products["category"] == "attention").any() or unlike_steps(context) is None:
        return changes
    first, *other_changes = changes
    return (CodeChange(first.framework, first.before, NO_PLANS + first.after), *other_changes)


def _by_name(context: RuleContext, dtype: str, faster: float) -> Iterator[Evidence]:
    """Yield the evidence that kernels are FP32 by their names, in a trace without shapes.

    ``faster`` is the ratio of the peaks of ``dtype`` and FP32. It gives the shortest possible time of the kernels.
    """
    rows = context.fp32_by_name
    cost = ms_per_step(rows, context.work_steps)
    yield Evidence(
        Advice(
            f"FP32 products take {in_words(cost)} of each step without tensor cores, by their kernels' names",
            Action("Train", f"under {dtype} autocast", ": the same products run on tensor cores."),
            note="This is an upper limit: the products' shapes are not known, so only the ratio of the peaks limits the gain. Record with `record_shapes=True`.",
            risk=BF16_RISK if dtype == "bf16" else FP16_RISK,
            changes=CHANGES if dtype == "bf16" else FP16_CHANGES,
        ),
        lost_ms=cost * (1 - 1 / faster),
        cost_ms=cost * (1 - 1 / faster),
        at_most="warning",
        rows=evidence_of(rows, context.work_steps, ("flop_operator", "kernel")),
    )


RULE = Rule(
    "fp32-products",
    measure,
    reads=OF_TRACE | {"shapes", "gpu_peaks"},
    explains=Explains(topics=frozenset({"choice"}), sets=("dtype bf16", "dtype fp16")),
    requires=("steps", "shapes or names", "gpu"),
    threshold=OTHER_CODE,
    same_work_as="smaller findings",
)
