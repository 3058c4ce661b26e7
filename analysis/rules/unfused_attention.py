"""Attention is written out instead of fused.

What it checks
    A softmax over the rows of a matrix that a batched product made and a batched product consumes: queries × keys, softmax, × values.
Why it costs time
    The matrix of scores (batch × heads × length × length) is written and read by every step of it: scaling, mask, softmax, dropout.
    Fused attention never writes it.
What to do
    ``torch.nn.functional.scaled_dot_product_attention``.
When it is wrong
    Attention with a bias or a softmax that no fused kernel supports: then FlexAttention. Very short sequences gain little.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from analysis.findings import Rule, RuleInput, in_words
from analysis.hardware import Gpu
from analysis.run_result import CodeChange, Finding
from analysis.step_work import ATTENTION_ATTAINED, chosen, evidence_of, ms_per_step, numel
from analysis.whatif import Edit, TimedOps, WithoutOps

WORTH_NAMING = 0.03  # one call to change: worth it from 3 % of the step
SHORTEST_ROW = 32  # softmax over fewer columns is a classifier or a gate, not attention
MOVES = ("elementwise", "softmax", "copy", "reduction")

CHANGES = (
    CodeChange(
        "PyTorch",
        "scores = q @ k.transpose(-2, -1) / math.sqrt(d) + mask\ny = scores.softmax(-1) @ v",
        "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)",
    ),
    CodeChange(
        "Transformers", "AutoModel.from_pretrained(name)", 'AutoModel.from_pretrained(name, attn_implementation="sdpa")'
    ),
)


def score_sizes(work: pd.DataFrame) -> set[int]:
    """Return the element counts of score matrices: softmaxes of at least three dimensions whose size a batched product also has."""
    made = {_product_size(row.dims) for row in work[work["operator"] == "aten::bmm"].itertuples()}
    sizes = set()
    for row in work[work["operator"].isin(("aten::_softmax", "aten::_safe_softmax"))].itertuples():
        shape = row.dims[0] if row.dims else None
        if (
            isinstance(shape, list)
            and len(shape) >= 3
            and shape[-1] >= SHORTEST_ROW
            and shape[-2] >= SHORTEST_ROW
            and numel(shape) in made
        ):
            sizes.add(numel(shape))
    return sizes


def _product_size(dims: Any) -> int:
    if not dims or len(dims) < 2 or len(dims[0]) != 3 or len(dims[1]) != 3:
        return 0
    return int(dims[0][0] * dims[0][1] * dims[1][2])


def check(given: RuleInput) -> Iterator[Finding]:
    """Yield a finding when written-out attention takes more than WORTH_NAMING of the step."""
    gpu, steps = given.rank.gpu, given.work_steps
    if gpu is None:
        return
    work = given.work
    sizes = score_sizes(work)
    if not sizes:
        return
    moves = chosen(work, lambda row: row.category in MOVES and any(numel(shape) in sizes for shape in row.dims or []))
    products = chosen(
        work,
        lambda row: (
            row.operator == "aten::bmm" and bool({_product_size(row.dims), *(numel(s) for s in row.dims or [])} & sizes)
        ),
    )
    cost = ms_per_step(moves, steps) + ms_per_step(products, steps)
    if given.share(cost) < WORTH_NAMING:
        return
    yield given.finding(
        RULE.slug,
        f"Attention is written out: products, mask, softmax and copies of its score matrix take {in_words(cost)} of each step",
        "Call scaled_dot_product_attention, which never writes the score matrix.",
        ceiling_ms=cost,
        edits=_edits(moves, products, gpu),
        confidence="medium",
        note="Without the kernels that only move the score matrix; the products at the rate fused attention attains.",
        risk="Attention weights are not returned any more; dropout draws other numbers.",
        changes=CHANGES,
        evidence=evidence_of(pd.concat([moves, products]), steps, ("operator",)),
    )


def _edits(moves: pd.DataFrame, products: pd.DataFrame, gpu: Gpu) -> list[Edit]:
    rate = gpu.peak_16bit_tflops * 1e12 * ATTENTION_ATTAINED
    wanted = (products["flops"] / rate * 1e9).fillna(products["dur_ns"])
    timed = wanted.clip(upper=products["dur_ns"]).clip(lower=1).astype(int)
    return [
        TimedOps(tuple(products["gpu_op_id"].tolist()), tuple(timed.tolist())),
        WithoutOps(tuple(moves["gpu_op_id"].tolist())),
    ]


RULE = Rule("unfused-attention", ("steps", "shapes", "gpu"), check)
