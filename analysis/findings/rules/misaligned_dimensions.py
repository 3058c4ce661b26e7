"""Dimensions do not fit the tiles of tensor cores.

What it checks
    16-bit products with a matrix whose row length is no multiple of 8 elements. These are the 16 bytes that a tensor-core
    tile loads at once. Rows lie along the contiguous dimension, by the recorded strides. The other dimension (often batch
    times length) may have any size.
Why it costs time
    The library uses kernels that load element by element, or copies the data into padded form. On an H200 this is four times
    slower for 4093 instead of 4096.
What to do
    Round sizes up to a multiple of 64: vocabulary, hidden sizes, sequence buckets. The model never samples the added rows of
    a vocabulary.
When it is wrong
    The sizes come from the data (ragged batches): pad or bucket them instead. FP8 needs multiples of 16.
References
    https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.kernel_retiming import retimed_products
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import CALL_TO_LOOK_AT
from sawtooth.analysis.findings.recorded.counted_operations import chosen, evidence_of, ms_per_step, product_dtype
from sawtooth.analysis.knowledge.tensor_cores import ALIGNMENT_16_BIT, misaligned_rows
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

ALIGNED_KERNEL = "align8"  # CUTLASS puts the alignment of a kernel's loads, in elements, into its name.
PADDED_TO = 64  # The multiple that the fix advises: whole tiles.

VOCABULARY = 8192  # A size from here on most likely belongs to a vocabulary. Nothing else depends on its padding.
OF_TOKENIZER = CodeChange(
    "Transformers",
    "model.resize_token_embeddings(len(tokenizer))",
    "model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64)",
)


def is_slow(row: Any) -> bool:
    """Return whether a row of ``step_work`` is a 16-bit product that loads misaligned rows.

    A kernel for aligned rows (align8) proves that it does not.
    """
    if product_dtype(row) not in ("bf16", "fp16") or ALIGNED_KERNEL in row.kernel:
        return False
    return bool(misaligned_rows(row.flop_operator, row.flop_dims, row.flop_strides, ALIGNMENT_16_BIT))


def _in_short(sizes: list[int]) -> str:
    """Return one or two sizes by name, such as "774 and 50257", and more sizes by the largest."""
    if len(sizes) <= 2:
        return " and ".join(str(n) for n in sorted(sizes))
    return f"{sizes[0]} and {len(sizes) - 1} other sizes"


def _changes(sizes: list[int]) -> tuple[CodeChange, ...]:
    """Return the code change that pads the two largest of the run's own sizes."""
    lines = []
    for size in sizes[:2]:
        name, unused = ("vocabulary", "; the added tokens never occur") if size >= VOCABULARY else ("features", "")
        padded = -(-size // PADDED_TO) * PADDED_TO
        lines.append((f"{name} = {size}", f"{name} = {padded}   # next multiple of {PADDED_TO}{unused}"))
    before, after = ("\n".join(side) for side in zip(*lines, strict=True))
    own = CodeChange("PyTorch", before, after, of_run=True)
    return (own, OF_TOKENIZER) if sizes[0] >= VOCABULARY else (own,)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if misaligned 16-bit products take a relevant share of the step."""
    gpu, steps = context.rank.gpu, context.work_steps
    if gpu is None:
        return
    work = context.work
    products = work[(work["category"] == "gemm") & work["flop_operator"].notna()]
    slow = chosen(products, is_slow)
    cost = ms_per_step(slow, steps)
    if context.is_trifle(cost):
        return
    edit = retimed_products(slow, gpu, "bf16" if gpu.peak_tflops("bf16") else "fp16", padded_to=PADDED_TO)
    gain = context.predict_ms([edit]) if edit else None
    if gain is not None and context.step_ms and context.is_trifle(context.step_ms - gain):
        return  # The products are misaligned, but as fast as aligned ones, because the library has a fast kernel for them.
    inputs = zip(slow["flop_operator"], slow["flop_dims"], slow["flop_strides"], strict=True)
    sizes = sorted(
        {n for operator, dims, strides in inputs for n in misaligned_rows(operator, dims, strides, ALIGNMENT_16_BIT)},
        reverse=True,
    )
    shown = ", ".join(str(n) for n in sizes[:3]) + (" and others" if len(sizes) > 3 else "")
    yield Evidence(
        Advice(
            f"Products with dimensions of {shown}, no multiples of 8, take {in_words(cost)} of each step",
            Action("Pad", f"{_in_short(sizes)} to {'a multiple' if len(sizes) == 1 else 'multiples'} of 64"),
            note="These products as long as padded ones take; kernels around them that also work on the odd size gain on top.",
            risk="A padded vocabulary or hidden size changes the model's shape: old checkpoints need padding too.",
            changes=_changes(sizes),
        ),
        lost_ms=cost,
        cost_ms=cost,
        edits=[edit] if edit else [],
        rows=evidence_of(slow, steps, ("flop_operator", "kernel")),
        weighed_by="both",
    )


RULE = Rule(
    "misaligned-dimensions",
    measure,
    reads=OF_TRACE | {"shapes", "gpu_peaks"},
    explains=Explains(sets=("padding",)),
    requires=("steps", "shapes", "gpu"),
    bar=CALL_TO_LOOK_AT,
)
