"""Dimensions do not fit the tiles of tensor cores.

What it checks
    16-bit products with a matrix whose row length is not a multiple of 8 elements. These are the 16 bytes that a tensor-core
    tile loads at once. Rows lie along the contiguous dimension, by the recorded strides. The other dimension (often batch
    times length) may have any size.
Why it costs time
    The library uses kernels that load element by element, or copies the data into padded form. On an H200 this is four times
    slower for 4093 instead of 4096.
What to do
    Change a model's width to a multiple of 64, and its head size with it (width = heads · head size): the sizes of queries, keys,
    values and MLP are multiples of the width and follow. A vocabulary can be padded separately, because the model never samples its added rows.
When it is wrong
    The sizes come from the data (ragged batches): pad or bucket them instead. A size that no layer multiplies by is taken
    for the length of a sequence. FP8 needs multiples of 16.
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
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import CALL_TO_LOOK_AT
from sawtooth.analysis.findings.recorded.counted_operations import evidence_of, ms_per_step, product_dtype, select_rows
from sawtooth.analysis.knowledge.dtypes import FIRST_OPERAND
from sawtooth.analysis.knowledge.tensor_cores import ALIGNMENT_16_BIT, misaligned_rows
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

ALIGNED_KERNEL = "align8"  # CUTLASS puts the alignment of a kernel's loads, in elements, into its name.
PADDED_TO = 64  # The fix advises multiples of this number, because they fill whole tiles.

MIN_HEAD, MAX_HEAD = 32, 256  # Head sizes of attention in use.
# A layer has at most this many times the model's width: 3 for queries, keys and values, 4 and 8/3 for an MLP.
MOST_OF_WIDTH = 8
MAX_MULTIPLES = 128 * MOST_OF_WIDTH  # A width has at most about 128 heads.
NEAR = 0.07  # Share of a size. A width of 774 becomes 768, because the model hardly shrinks.

HEAD_SIZES = """SELECT DISTINCT TRY_CAST(s.input_dims->>'$[0][#-1]' AS BIGINT) FROM named_cpu_ops JOIN signatures s USING (signature_id)
    WHERE name = 'aten::scaled_dot_product_attention'"""

VOCABULARY = 8192  # A larger size is most likely that of a vocabulary, on whose padding nothing else depends.
OF_TOKENIZER = CodeChange(
    "Transformers",
    "model.resize_token_embeddings(len(tokenizer))",
    "model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64)",
)
PADDED_MODEL = "A padded vocabulary or hidden size changes the model's shape: old checkpoints need padding too."
MASKED = "Padded rows of a sequence must be masked in the attention."
OTHER_MODEL = "Another width is another model: old checkpoints do not fit. Keep width = heads · head size."


def is_slow(row: Any) -> bool:
    """Return whether a row of ``step_work`` is a 16-bit product that loads misaligned rows.

    A kernel for aligned rows (align8) shows that all rows are aligned.
    """
    if product_dtype(row) not in ("bf16", "fp16") or ALIGNED_KERNEL in row.kernel:
        return False
    return bool(misaligned_rows(row.flop_operator, row.flop_dims, row.flop_strides, ALIGNMENT_16_BIT))


@dataclass(frozen=True)
class _ModelWidth:
    """A model's width and the head size that divides it, each as recorded and as advised.

    ``head`` is None if no head size is misaligned. ``follow`` are the further recorded sizes that are multiples of the width.
    """

    width: tuple[int, int]
    head: tuple[int, int] | None
    follow: tuple[int, ...]

    @property
    def action(self) -> str:
        """The change of the width, in short."""
        return f"the model's width {self.width[1]} instead of {self.width[0]}"

    @property
    def how(self) -> str:
        """The sizes that change with the width, as the end of a sentence."""
        old = self.width[0]
        following = " and ".join(f"{n} = {n // old} · {old}" for n in self.follow)
        follow = f"{following} {'follows' if len(self.follow) == 1 else 'follow'} from it" if following else ""
        heads = f"{old // self.head[0]} heads of {self.head[1]} instead of {self.head[0]}" if self.head else ""
        return f": {'. '.join(filter(None, (heads, follow)))}."

    def resized(self, sizes: Iterable[int]) -> dict[int, int]:
        """Return the new values of those of ``sizes`` that are multiples of the width, or of the head size."""
        old, new = self.head or self.width
        return {n: n // old * new for n in sizes if n % old == 0 and n // old <= MAX_MULTIPLES}


def _next_aligned(size: int) -> int:
    """Return the multiple of PADDED_TO next to a width or head size.

    If none is near, return the next multiple of ALIGNMENT_16_BIT.
    """
    whole = max(round(size / PADDED_TO), 1) * PADDED_TO
    return whole if abs(whole - size) <= NEAR * size else _next_multiple(size, ALIGNMENT_16_BIT)


def _model_width(odd: Sequence[int], sizes: Collection[int]) -> _ModelWidth | None:
    """Return the model's width if the sizes ``odd`` are multiples of one width, such as 2322 = 3 · 774.

    ``odd`` are misaligned, ``sizes`` are all sizes of the products and attentions. A padded size would no longer be a multiple of the width, so the
    width itself must change. None if the sizes are independent.
    """
    features = [n for n in sorted(odd) if n >= MIN_HEAD]
    for base in features:
        if base >= VOCABULARY:
            break
        max_multiples = MAX_MULTIPLES if base <= MAX_HEAD else MOST_OF_WIDTH
        multiples = sorted(n for n in sizes if n > base and n % base == 0 and n // base <= max_multiples)
        if not multiples:
            continue
        widths = [n for n in multiples if n in odd]
        if base > MAX_HEAD or not widths:
            return _ModelWidth((base, _next_aligned(base)), None, tuple(multiples))
        width, head = widths[0], (base, _next_aligned(base))
        follow = tuple(n for n in multiples if n > width and n % width == 0)
        return _ModelWidth((width, width // base * head[1]), head, follow)
    return None


def _next_multiple(size: int, unit: int = PADDED_TO) -> int:
    """Return the smallest multiple of ``unit`` that is not below ``size``."""
    return -(-size // unit) * unit


def _in_short(sizes: list[int]) -> str:
    """Return one or two sizes by name, such as "774 and 50257", and more sizes by the largest."""
    if len(sizes) <= 2:
        return " and ".join(str(n) for n in sorted(sizes))
    return f"{sizes[0]} and {len(sizes) - 1} other sizes"


def _changes(alone: list[int], width: _ModelWidth | None, lengths: Collection[int]) -> tuple[CodeChange, ...]:
    """Return the code change of the model's width, and of the two largest independent sizes."""
    lines = []
    if width is not None:
        old, new = (f"width = {width_of_model}" for width_of_model in width.width)
        if width.head is not None:
            heads = width.width[0] // width.head[0]
            old, new = (f"{line}   # {heads} heads of {head}" for line, head in zip((old, new), width.head, strict=True))
        lines.append((old, new))
    for size in alone[:2]:
        name, unused = ("vocabulary", "; the added tokens never occur") if size >= VOCABULARY else ("features", "")
        if size in lengths:
            name, unused = "length", "; mask the added tokens"
        lines.append((f"{name} = {size}", f"{name} = {_next_multiple(size)}   # next multiple of {PADDED_TO}{unused}"))
    before, after = ("\n".join(side) for side in zip(*lines, strict=True))
    own_change = CodeChange("PyTorch", before, after, of_run=True)
    return (own_change, OF_TOKENIZER) if alone and alone[0] >= VOCABULARY and alone[0] not in lengths else (own_change,)


def _action(alone: list[int], width: _ModelWidth | None, lengths: Collection[int]) -> Action:
    prefix = "sequences of " if alone and all(size in lengths for size in alone) else ""
    padding = f"{prefix}{_in_short(alone)} to {'a multiple' if len(alone) == 1 else 'multiples'} of {PADDED_TO}"
    if width is None:
        return Action("Pad", padding)
    if not alone:
        return Action("Make", width.action, width.how)
    return Action("Make", f"{width.action} and pad {prefix}{_in_short(alone)}", f"{width.how} Pad {padding}.")


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

    A size that only occurs in products of many matrices, or as a number of rows, is a length, such as a number of tokens.
    """
    sizes: set[int] = set()
    for operator, dims in zip(rows["flop_operator"], rows["flop_dims"], strict=True):
        second = (dims or [])[FIRST_OPERAND.get(operator, 0) + 1 :][:1]
        sizes.update(
            shape[-1] for shape in second if isinstance(shape, list) and len(shape) == 2 and isinstance(shape[-1], int)
        )
    return sizes


def _odd_heads(context: RuleContext, attention: pd.DataFrame) -> set[int]:
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
    cost = ms_per_step(slow, steps)
    if context.is_trifle(cost):
        return
    evidence = evidence_of(slow, steps, ("flop_operator", "kernel"))
    inputs = zip(slow["flop_operator"], slow["flop_dims"], slow["flop_strides"], strict=True)
    odd = {n for operator, dims, strides in inputs for n in misaligned_rows(operator, dims, strides, ALIGNMENT_16_BIT)}
    heads = _odd_heads(context, attention)
    sizes = _sizes_of(products) | heads
    lengths = odd - _feature_sizes(products)
    width = _model_width(sorted((odd - lengths) | heads), sizes)
    resized = width.resized(sizes) if width is not None else {}
    alone = sorted(odd - resized.keys(), reverse=True)
    resized |= {n: _next_multiple(n) for n in alone}
    dtype = "bf16" if gpu.peak_tflops("bf16") else "fp16"
    if width is not None and width.head is not None and heads:
        slow = pd.concat([slow, attention])
        resized |= {_next_multiple(width.head[0], ALIGNMENT_16_BIT): width.head[1]}  # PyTorch pads heads before a fused kernel.
    edit = retimed_products(slow, gpu, dtype, resized=resized)
    gain = context.predict_ms([edit]) if edit else None
    if gain is not None and context.step_ms and context.is_trifle(context.step_ms - gain):
        return  # The products are misaligned, but as fast as aligned ones, because the library has a fast kernel for them.
    largest = sorted(odd, reverse=True)
    shown = ", ".join(str(n) for n in largest[:3]) + (" and others" if len(largest) > 3 else "")
    yield Evidence(
        Advice(
            f"Products with dimensions of {shown}, which are not multiples of 8, take {in_words(cost)} of each step",
            _action(alone, width, lengths),
            note="Predicted with the time of aligned products. Other kernels on these sizes may also become faster.",
            risk=OTHER_MODEL if width is not None else MASKED if lengths.issuperset(alone) else PADDED_MODEL,
            changes=_changes(alone, width, lengths),
        ),
        lost_ms=cost,
        cost_ms=cost,
        edits=[edit] if edit else [],
        rows=evidence,
        threshold_for="both",
    )


RULE = Rule(
    "misaligned-dimensions",
    measure,
    reads=OF_TRACE | {"shapes", "gpu_peaks"},
    explains=Explains(sets=("padding",)),
    requires=("steps", "shapes", "gpu"),
    threshold=CALL_TO_LOOK_AT,
)
