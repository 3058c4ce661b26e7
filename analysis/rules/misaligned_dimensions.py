"""Dimensions that tensor cores cannot tile.

What it checks
    16-bit products whose matrix dimensions are not multiples of 8, the 16 bytes that a tensor-core tile loads at once.
Why it costs time
    The library falls back to kernels that load element by element, or pads copies: four times slower on an H200 for 4093 instead of 4096.
What to do
    Round sizes up to a multiple of 64: vocabulary, hidden sizes, sequence buckets. Padding rows of a vocabulary are never sampled.
When it is wrong
    Sizes that come from the data (ragged batches): pad or bucket them instead. FP8 needs multiples of 16.
References
    https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from analysis.findings import Rule, RuleInput, in_words
from analysis.run_result import CodeChange, Finding
from analysis.step_work import chosen, evidence_of, ms_per_step, product_dtype, retimed_products

WORTH_NAMING = 0.03  # padding costs memory and some work: below 3 % of the step it is not worth a changed model
ALIGNMENT = 8  # elements of 16 bits in the 16 bytes one load of a tile takes
SMALL = 8  # sizes up to 8 are vectors: alignment is not what slows them

CHANGES = (
    CodeChange(
        "PyTorch",
        "vocabulary = 50257\nhead = nn.Linear(768, vocabulary)",
        "vocabulary = 50304   # next multiple of 64; the added tokens never occur\nhead = nn.Linear(768, vocabulary)",
    ),
    CodeChange(
        "Transformers",
        "model.resize_token_embeddings(len(tokenizer))",
        "model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64)",
    ),
)


def misaligned(dims: Any) -> list[int]:
    """Return the matrix sizes of a product's inputs that are no multiples of ALIGNMENT; batch sizes in front do not count."""
    shapes = [shape for shape in dims or [] if isinstance(shape, list) and len(shape) >= 2]
    return sorted({n for shape in shapes for n in shape[-2:] if isinstance(n, int) and n > SMALL and n % ALIGNMENT})


def check(given: RuleInput) -> Iterator[Finding]:
    """Yield a finding when misaligned 16-bit products take more than WORTH_NAMING of the step."""
    gpu, steps = given.rank.gpu, given.work_steps
    if gpu is None:
        return
    work = given.work
    products = work[(work["category"] == "gemm") & work["flop_operator"].notna()]
    slow = chosen(products, lambda row: product_dtype(row) in ("bf16", "fp16") and bool(misaligned(row.flop_dims)))
    cost = ms_per_step(slow, steps)
    if given.share(cost) < WORTH_NAMING:
        return
    edit = retimed_products(slow, gpu, "bf16" if gpu.peak_tflops("bf16") else "fp16")
    gain = given.predict_ms([edit]) if edit else None
    if gain is not None and given.step_ms and given.share(given.step_ms - gain) < WORTH_NAMING:
        return  # misaligned, but as fast as aligned ones: the library found a way
    sizes = sorted({n for dims in slow["flop_dims"] for n in misaligned(dims)}, reverse=True)
    shown = ", ".join(str(n) for n in sizes[:3]) + (" and others" if len(sizes) > 3 else "")
    yield given.finding(
        RULE.slug,
        f"Products with dimensions of {shown}, no multiples of 8, take {in_words(cost)} of each step",
        "Round these dimensions up to multiples of 64.",
        ceiling_ms=cost,
        edits=[edit] if edit else [],
        confidence="medium",
        note="These products at the rate aligned ones attain; kernels around them that also work on the odd size gain on top.",
        risk="A padded vocabulary or hidden size changes the model's shape: old checkpoints need padding too.",
        changes=CHANGES,
        evidence=evidence_of(slow, steps, ("flop_operator", "kernel")),
    )


RULE = Rule("misaligned-dimensions", ("steps", "shapes", "gpu"), check)
