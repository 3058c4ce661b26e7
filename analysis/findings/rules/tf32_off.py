"""TF32 is off where FP32 products run.

What it checks
    FP32 matrix products and convolutions without tensor cores on a GPU that has TF32.
Why it costs time
    With the default of "highest" precision, FP32 products avoid tensor cores altogether.
What to do
    ``torch.set_float32_matmul_precision("high")`` before training: one line, no change of dtypes.
When it is wrong
    TF32 keeps FP32's range but 10 bits of mantissa; code that needs more must stay. bf16 autocast gains more where it is possible.
References
    https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.model import OF_TRACE
from sawtooth.analysis.findings.queries.calls import FP32_BY_NEED, factorizes
from sawtooth.analysis.findings.retimed import retimed_products
from sawtooth.analysis.findings.rule import Rule, RuleContext, severity_of
from sawtooth.analysis.findings.work import chosen, evidence_of, ms_per_step, product_dtype
from sawtooth.analysis.run.model import CodeChange, Explains, Finding
from sawtooth.analysis.units import in_words

WORTH_NAMING = 0.05  # a changed numerical result should bring at least 5 %

CHANGES = (
    CodeChange(
        "PyTorch",
        "model = Net().cuda()",
        'torch.set_float32_matmul_precision("high")\ntorch.backends.cudnn.allow_tf32 = True\nmodel = Net().cuda()',
    ),
    CodeChange("Lightning", "Trainer()", 'torch.set_float32_matmul_precision("high")\nTrainer()'),
    CodeChange("Transformers", "TrainingArguments(...)", "TrainingArguments(..., tf32=True)"),
)


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding when FP32 products and convolutions take more than WORTH_NAMING of the step on a GPU with TF32."""
    gpu, steps = context.rank.gpu, context.work_steps
    if gpu is None or gpu.peak_tflops("tf32") is None:
        return
    work = context.work
    products = work[work["category"].isin(("gemm", "conv")) & work["flop_operator"].notna()]
    fast = chosen(products[products["tensor_cores"].isin(("yes", "likely"))], lambda row: product_dtype(row) == "tf32")
    # where some run in TF32 it is on for their kind, and the library chose otherwise for the rest
    products = products[(products["tensor_cores"] == "no") & ~products["category"].isin(set(fast["category"]))]
    slow = chosen(products, lambda row: product_dtype(row) == "fp32")
    cost = ms_per_step(slow, steps)
    if context.share(cost) < WORTH_NAMING:
        return
    edit = retimed_products(slow, gpu, "tf32")
    needed = factorizes(context)
    yield context.finding(
        RULE.slug,
        f"TF32 is off: {in_words(cost)} of each step are FP32 products on ordinary units",
        "Allow TF32 for products and convolutions: one line, inputs and outputs stay FP32.",
        ceiling_ms=cost,
        edits=[edit] if edit else [],
        confidence="medium",
        severity="warning" if needed and severity_of(context.share(cost)) == "critical" else None,
        note="These kernels as long as TF32 ones of their shapes take on such a GPU.",
        risk=FP32_BY_NEED if needed else "Products round their inputs to 10 bits of mantissa.",
        changes=CHANGES,
        evidence=evidence_of(slow, steps, ("flop_operator", "kernel")),
    )


RULE = Rule(
    "tf32-off",
    ("steps", "shapes", "gpu"),
    check,
    Explains(sets=("dtype TF32", "dtype bf16", "dtype fp16")),
    reads=OF_TRACE | {"shapes", "gpu_peaks"},
)
