"""TF32 is off although FP32 products run.

What it checks
    FP32 matrix products and convolutions without tensor cores on a GPU that has TF32.
Why it costs time
    With the default precision "highest", FP32 products do not use tensor cores.
What to do
    Call ``torch.set_float32_matmul_precision("high")`` before training. All dtypes stay the same.
When it is wrong
    The code needs more than the 10 mantissa bits of TF32. If the code allows bf16 autocast, this saves more time.
References
    https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from sawtooth.analysis.findings.actions import MODEL
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.kernel_retiming import retimed_products
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.findings.queries.calls import FACTORIZATION_RISK, factorizes
from sawtooth.analysis.findings.recorded.counted_operations import evidence_of, ms_per_step, product_dtype, select_rows
from sawtooth.analysis.knowledge.recurrent import RECURRENT
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

CHANGES = (
    CodeChange(
        "PyTorch",
        "model = $model.cuda()",
        'torch.set_float32_matmul_precision("high")\ntorch.backends.cudnn.allow_tf32 = True\nmodel = $model.cuda()',
        slot_defaults=MODEL,
    ),
    CodeChange("Lightning", "Trainer()", 'torch.set_float32_matmul_precision("high")\nTrainer()'),
    CodeChange("Transformers", "TrainingArguments(...)", "TrainingArguments(..., tf32=True)"),
)
NO_SHAPES = "Not predicted: the products inside cuDNN's recurrent layer have no recorded shapes."


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if FP32 products take a relevant share of the step on a GPU with TF32."""
    gpu, steps = context.rank.gpu, context.work_steps
    peak = gpu.peak_tflops("tf32") if gpu is not None else None
    if gpu is None or peak is None:
        return
    work = context.work
    products = work[work["category"].isin(("gemm", "conv")) & work["flop_operator"].notna()]
    on_tensor_cores = products[products["tensor_cores"].isin(("yes", "likely"))]
    in_tf32 = select_rows(on_tensor_cores, lambda row: product_dtype(row) == "tf32")
    # If some products of a category run in TF32, TF32 is on, and the library chose other kernels for the rest.
    candidates = products[(products["tensor_cores"] == "no") & ~products["category"].isin(set(in_tf32["category"]))]
    slow = select_rows(candidates, lambda row: product_dtype(row) == "fp32")
    recurrent = _recurrent_fp32(work)
    lacks_shapes = not context.is_negligible(ms_per_step(recurrent, steps))
    slow = pd.concat([slow, recurrent]) if lacks_shapes else slow
    cost_ms = ms_per_step(slow, steps)
    if context.is_negligible(cost_ms):
        return
    edit = None if lacks_shapes else retimed_products(slow, gpu, "tf32")
    max_gain_share = 1 - (gpu.peak_tflops("fp32") or 0.0) / peak if lacks_shapes else 1.0
    needs_fp32 = factorizes(context)
    yield Evidence(
        Advice(
            f"TF32 is off: FP32 products without tensor cores take {in_words(cost_ms)} of each step",
            Action("Allow", "TF32 for products and convolutions", ", with one line of code. Inputs and outputs stay FP32."),
            note=NO_SHAPES if lacks_shapes else "Predicted with the time of TF32 kernels of these shapes on this GPU.",
            risk=FACTORIZATION_RISK if needs_fp32 else "Products round their inputs to 10 bits of mantissa.",
            changes=CHANGES,
        ),
        lost_ms=max_gain_share * cost_ms,
        cost_ms=cost_ms,
        edits=[edit] if edit else [],
        at_most="warning" if needs_fp32 else None,
        rows=evidence_of(slow, steps, ("flop_operator", "kernel")),
    )


def _recurrent_fp32(work: pd.DataFrame) -> pd.DataFrame:
    """Return the FP32 products without tensor cores that cuDNN's recurrent layers launch."""
    inside = (work["category"] == "gemm") & (work["tensor_cores"] == "no") & work["operator"].isin(RECURRENT)
    return select_rows(work[inside], lambda row: bool(row.types) and row.types[0] == "float")


RULE = Rule(
    "tf32-off",
    measure,
    reads=TRACE_SOURCES | {"shapes", "gpu_peaks"},
    explains=Explains(sets=("dtype TF32", "dtype bf16", "dtype fp16")),
    requires=("steps", "shapes", "gpu"),
    threshold=OTHER_CODE,
)
