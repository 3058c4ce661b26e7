"""Dimensions do not fit the tiles of tensor cores.

What it checks
    16-bit products with a matrix whose row length is not a multiple of 8 elements. A tensor-core tile loads 8 elements (16 bytes)
    at once. Rows lie along the contiguous dimension, by the recorded strides. The other dimension (often batch times length) may
    have any size.
Why it costs time
    The library uses kernels that load element by element, or copies the data into padded form. On an H200, products of size 4093
    take four times as long as products of size 4096.
What to do
    Change a model's width to a multiple of 64, and change the head size with the width (width = heads · head size). The sizes of
    queries, keys, values and MLP are multiples of the width, so they change too. A vocabulary can be padded separately, because
    the model never samples the added rows.
When it is wrong
    The sizes come from the data (ragged batches). Then pad or bucket the batches. The rule takes a size for a sequence length if
    no layer multiplies by it.
References
    https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.kernel_retiming import retimed_products
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import CALL_TO_CHECK
from sawtooth.analysis.findings.recorded.counted_operations import evidence_of, ms_per_step, product_dtype, select_rows
from sawtooth.analysis.knowledge.dtypes import FIRST_OPERAND
from sawtooth.analysis.knowledge.tensor_cores import ALIGNMENT_16_BIT, misaligned_rows
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

ALIGNED_KERNEL = "align8"  # CUTLASS puts the alignment of a kernel's loads, in elements, into its name.
PADDED_TO = 64  # The fix advises multiples of this number, because they fill whole tiles.

MIN_HEAD, MAX_HEAD = 32, 256  # Usual head sizes of attention.
# A layer's size ÷ the model's width is at most this number: 3 for queries, keys and values, 4 and 8/3 for an MLP.
MAX_WIDTHS = 8
MAX_MULTIPLES = 128 * MAX_WIDTHS  # A width has at most about 128 heads.
NEAR_SHARE = 0.07  # Share of a size. A width of 774 becomes 768, because the model hardly shrinks.

HEAD_SIZES = """SELECT DISTINCT TRY_CAST(s.input_dims->>'$[0][#-1]' AS BIGINT) FROM named_cpu_ops JOIN signatures s USING (signature_id)
    WHERE name = 'aten::scaled_dot_product_attention'"""

MIN_VOCABULARY = 8192  # A larger size is most likely that of a vocabulary. No other size depends on a vocabulary's padding.
PADDED_VOCABULARY = CodeChange(
    "Transformers",
    "model.resize_token_embeddings(len(tokenizer))",
    "model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64)",
)
PADDED_MODEL_RISK = "A padded vocabulary or hidden size changes the model's shape: old checkpoints need padding too."
MASK_RISK = "Padded rows of a sequence must be masked in the attention."
OTHER_MODEL_RISK = "Another width is another model: old checkpoints do not fit. Keep width = heads · head size."


def is_slow(row: Any) -> bool:
    """Return whether a row of ``step_work`` is a 16-bit product that loads misaligned rows.

    A kernel for aligned rows (align8) shows that all rows are aligned.
    """
    if product_dtype(row) not in ("bf16", "fp16") or ALIGNED_KERNEL in row.kernel:
        return False
    return bool(misaligned_rows(row.flop_operator, row.flop_dims, row.flop_strides, ALIGNMENT_16_BIT))


@dataclass(frozen=True)
class _ModelWidth:
    """A model's width and its head size, each as (recorded, advised).

    ``head`` is None if no head size is misaligned. ``multiples`` are the other recorded sizes that are multiples of the width.
    """

    width: tuple[int, int]
    head: tuple[int, int] | None
    multiples: tuple[int, ...]

    @property
    def action(self) -> str:
        """The change of the width, in short."""
        return f"the model's width {self.width[1]} instead of {self.width[0]}"

    @property
    def how(self) -> str:
        """The sizes that change with the width, as the end of a sentence."""
        old_width = self.width[0]
        products = " and ".join(f"{n} = {n // old_width} · {old_width}" for n in self.multiples)
        multiples_clause = f"{products} {'changes' if len(self.multiples) == 1 else 'change'} with it" if products else ""
        heads_clause = f"{old_width // self.head[0]} heads of {self.head[1]} instead of {self.head[0]}" if self.head else ""
        return f": {'. '.join(filter(None, (heads_clause, multiples_clause)))}."

    def resized(self, sizes: Iterable[int]) -> dict[int, int]:
        """Return the new values of those of ``sizes`` that are multiples of the width, or of the head size."""
        old, new = self.head or self.width
        return {n: n // old * new for n in sizes if n % old == 0 and n // old <= MAX_MULTIPLES}


def _next_aligned(size: int) -> int:
    """Return the nearest multiple of PADDED_TO, or the next multiple of ALIGNMENT_16_BIT if none is near."""
    nearest = max(round(size / PADDED_TO), 1) * PADDED_TO
    return nearest if abs(nearest - size) <= NEAR_SHARE * size else _next_multiple(size, ALIGNMENT_16_BIT)


def _model_width(misaligned: Sequence[int], sizes: Collection[int]) -> _ModelWidth | None:
    """Return the model's width if ``misaligned`` sizes are multiples of one width, such as 2322 = 3 · 774.

    ``sizes`` are all sizes of the products and attentions. The width itself must change, because a padded size would no longer be a
    multiple of the width. None if the sizes are independent.
    """
    features = [n for n in sorted(misaligned) if n >= MIN_HEAD]
    for base in features:
        if base >= MIN_VOCABULARY:
            break
        max_multiples = MAX_MULTIPLES if base <= MAX_HEAD else MAX_WIDTHS
        multiples = sorted(n for n in sizes if n > base and n % base == 0 and n // base <= max_multiples)
        if not multiples:
            continue
        widths = [n for n in multiples if n in misaligned]
        if base > MAX_HEAD or not widths:
            return _ModelWidth((base, _next_aligned(base)), None, tuple(multiples))
        width, head = widths[0], (base, _next_aligned(base))
        larger_multiples = tuple(n for n in multiples if n > width and n % width == 0)
        return _ModelWidth((width, width // base * head[1]), head, larger_multiples)
    return None


def _next_multiple(size: int, unit: int = PADDED_TO) -> int:
    """Return the smallest multiple of ``unit`` that is not below ``size``."""
    return -(-size // unit) * unit


def _size_list(sizes: list[int]) -> str:
    """Return the sizes in words, such as "774 and 50257" or "50257 and 3 other sizes"."""
    if len(sizes) <= 2:
        return " and ".join(str(n) for n in sorted(sizes))
    return f"{sizes[0]} and {len(sizes) - 1} other sizes"


def _changes(independent: list[int], width: _ModelWidth | None, lengths: Collection[int]) -> tuple[CodeChange, ...]:
    """Return the code change of the model's width, and of the two largest independent sizes."""
    lines = []
    if width is not None:
        old, new = (f"width = {size}" for size in width.width)
        if width.head is not None:
            heads = width.width[0] // width.head[0]
            old, new = (f"{line}   # {heads} heads of {head}" for line, head in zip((old, new), width.head, strict=True))
        lines.append((old, new))
    for size in independent[:2]:
        name, unused = ("vocabulary", "; the added tokens never occur") if size >= MIN_VOCABULARY else ("features", "")
        if size in lengths:
            name, unused = "length", "; mask the added tokens"
        lines.append((f"{name} = {size}", f"{name} = {_next_multiple(size)}   # next multiple of {PADDED_TO}{unused}"))
    before, after = ("\n".join(code_lines) for code_lines in zip(*lines, strict=True))
    own_change = CodeChange("PyTorch", before, after, of_run=True)
    return (
        (own_change, PADDED_VOCABULARY)
        if independent and independent[0] >= MIN_VOCABULARY and independent[0] not in lengths
        else (own_change,)
    )


def _action(independent: list[int], width: _ModelWidth | None, lengths: Collection[int]) -> Action:
    prefix = "sequences of " if independent and all(size in lengths for size in independent) else ""
    padding = f"{prefix}{_size_list(independent)} to {'a multiple' if len(independent) == 1 else 'multiples'} of {PADDED_TO}"
    if width is None:
        return Action("Pad", padding)
    if not independent:
        return Action("Make", width.action, width.how)
    return Action("Make", f"{width.action} and pad {prefix}{_size_list(independent)}", f"{width.how} Pad {padding}.")


def _sizes_of(rows: pd.DataFrame) -> set[int]:
    """Return the numbers of rows and columns of the matrices that ``rows`` multiply."""
    sizes: set[int] = set()
    for operator, dims in zip(rows["flop_operator"], rows["flop_dims"], strict=True):
        first = FIRST_OPERAND.get(operator, 0)
        shapes = [shape for shape in (dims or [])[first : first + 2] if isinstance(shape, list)]
        sizes.update(n for shape in shapes for n in shape[-2:] if isinstance(n, int))
    return sizes


def _feature_sizes(rows: pd.DataFrame) -> set[int]:
    """Return the sizes that layers multiply by: the columns of second operands that are a single matrix.

    All other sizes are lengths, such as a number of tokens.
    """
    sizes: set[int] = set()
    for operator, dims in zip(rows["flop_operator"], rows["flop_dims"], strict=True):
        second = (dims or [])[FIRST_OPERAND.get(operator, 0) + 1 :][:1]
        sizes.update(
            shape[-1] for shape in second if isinstance(shape, list) and len(shape) == 2 and isinstance(shape[-1], int)
        )
    return sizes


def _misaligned_heads(context: RuleContext, attention: pd.DataFrame) -> set[int]:
    """Return the misaligned head sizes of the step's fused ``attention``, as the model calls it."""
    if attention.empty:
        return set()
    rows = context.recording.rows(HEAD_SIZES)
    return {int(size) for (size,) in rows if size is not None and int(size) % ALIGNMENT_16_BIT}


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if misaligned 16-bit products take a relevant share of the step."""
    gpu, steps = context.rank.gpu, context.work_steps
    if gpu is None:
        return
    work = context.work
    products = work[(work["category"] == "gemm") & work["flop_operator"].notna()]
    attention = work[(work["category"] == "attention") & work["flop_operator"].notna()]
    slow = select_rows(products, is_slow)
    cost_ms = ms_per_step(slow, steps)
    if context.is_negligible(cost_ms):
        return
    evidence = evidence_of(slow, steps, ("flop_operator", "kernel"))
    inputs = zip(slow["flop_operator"], slow["flop_dims"], slow["flop_strides"], strict=True)
    misaligned = {n for operator, dims, strides in inputs for n in misaligned_rows(operator, dims, strides, ALIGNMENT_16_BIT)}
    heads = _misaligned_heads(context, attention)
    sizes = _sizes_of(products) | heads
    lengths = misaligned - _feature_sizes(products)
    model_width = _model_width(sorted((misaligned - lengths) | heads), sizes)
    resized = model_width.resized(sizes) if model_width is not None else {}
    independent = sorted(misaligned - resized.keys(), reverse=True)
    resized |= {n: _next_multiple(n) for n in independent}
    dtype = "bf16" if gpu.peak_tflops("bf16") else "fp16"
    if model_width is not None and model_width.head is not None and heads:
        slow = pd.concat([slow, attention])
        resized |= {
            _next_multiple(model_width.head[0], ALIGNMENT_16_BIT): model_width.head[1]
        }  # PyTorch pads heads before a fused kernel.
    edit = retimed_products(slow, gpu, dtype, resized=resized)
    after_ms = context.predict_ms([edit]) if edit else None
    if after_ms is not None and context.step_ms and context.is_negligible(context.step_ms - after_ms):
        return  # The library has a fast kernel for these misaligned products.
    by_size = sorted(misaligned, reverse=True)
    sizes_in_words = ", ".join(str(n) for n in by_size[:3]) + (" and others" if len(by_size) > 3 else "")
    yield Evidence(
        Advice(
            f"Products with dimensions of {sizes_in_words}, which are not multiples of 8, take {in_words(cost_ms)} of each step",
            _action(independent, model_width, lengths),
            note="Predicted with the time of aligned products. Other kernels on these sizes may also become faster.",
            risk=OTHER_MODEL_RISK
            if model_width is not None
            else MASK_RISK
            if lengths.issuperset(independent)
            else PADDED_MODEL_RISK,
            changes=_changes(independent, model_width, lengths),
        ),
        lost_ms=cost_ms,
        cost_ms=cost_ms,
        edits=[edit] if edit else [],
        rows=evidence,
        threshold_for="both",
    )


RULE = Rule(
    "misaligned-dimensions",
    measure,
    reads=TRACE_SOURCES | {"shapes", "gpu_peaks"},
    explains=Explains(sets=("padding",)),
    requires=("steps", "shapes", "gpu"),
    threshold=CALL_TO_CHECK,
)
