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

from sawtooth.analysis.findings.rule import Rule, RuleInput, in_words
from sawtooth.analysis.findings.work import chosen, evidence_of, ms_per_step, numel
from sawtooth.analysis.knowledge.hardware import Gpu
from sawtooth.analysis.knowledge.kernel_time import Estimate, estimate
from sawtooth.analysis.knowledge.kernel_work import attention_work
from sawtooth.analysis.replay.edits import Edit, TimedOps, WithoutOps
from sawtooth.analysis.run.model import CodeChange, Explains, Finding

WORTH_NAMING = 0.03  # one call to change: worth it from 3 % of the step
SHORTEST_ROW = 32  # softmax over fewer columns is a classifier or a gate, not attention
BACKWARD_SLOWER = 1.4  # per product, flash attention's backward pass against its forward one at head sizes of 64 and 128
FUSED_BY_MATH = "aten::_scaled_dot_product_attention_math"
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


def written_out(work: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows that only move score matrices, and the products that make or take them."""
    sizes = score_sizes(work)
    moves = chosen(work, lambda row: row.category in MOVES and any(numel(shape) in sizes for shape in row.dims or []))
    products = chosen(
        work,
        lambda row: (
            row.operator == "aten::bmm" and bool({_product_size(row.dims), *(numel(s) for s in row.dims or [])} & sizes)
        ),
    )
    return moves, products


def fused_attention(rows: pd.DataFrame, gpu: Gpu) -> list[Edit]:
    """Return the edits that run attention written out in ``rows`` as fused kernels."""
    return _edits(*written_out(rows), gpu)


def _product_size(dims: Any) -> int:
    if not dims or len(dims) < 2 or len(dims[0]) != 3 or len(dims[1]) != 3:
        return 0
    return int(dims[0][0] * dims[0][1] * dims[1][2])


def check(given: RuleInput) -> Iterator[Finding]:
    """Yield a finding when written-out attention takes more than WORTH_NAMING of the step."""
    gpu, steps = given.rank.gpu, given.work_steps
    fused = given.recording.rows("SELECT 1 FROM names WHERE name = ? LIMIT 1", [FUSED_BY_MATH])
    if gpu is None or fused:  # the call is there, and has a rule of its own
        return
    moves, products = written_out(given.work)
    cost = ms_per_step(moves, steps) + ms_per_step(products, steps)
    if not len(moves) or given.share(cost) < WORTH_NAMING:
        return
    yield given.finding(
        RULE.slug,
        f"Attention is written out: products, mask, softmax and copies of its score matrix take {in_words(cost)} of each step",
        "Call scaled_dot_product_attention, which never writes the score matrix.",
        ceiling_ms=cost,
        edits=_edits(moves, products, gpu),
        confidence="medium",
        note="Without the kernels that only move the score matrix; the products as long as a fused kernel of their sizes takes.",
        risk="Attention weights are not returned any more; dropout draws other numbers.",
        changes=CHANGES,
        evidence=evidence_of(pd.concat([moves, products]), steps, ("operator",)),
    )


def _edits(moves: pd.DataFrame, products: pd.DataFrame, gpu: Gpu) -> list[Edit]:
    """Each product takes its share, by FLOPs, of what a fused kernel of these sizes takes: forward two products, backward five for four."""
    times: dict[int, Estimate | None] = {}
    edges: dict[str, list[int]] = {"ms": [], "low": [], "high": []}
    for row in products.itertuples():
        if row.signature_id not in times:
            times[row.signature_id] = _fused_share(row.dims, gpu)
        time = times[row.signature_id]
        for edge, durations in edges.items():
            durations.append(max(min(round(getattr(time, edge) * 1e6), row.dur_ns), 1) if time is not None else row.dur_ns)
    timed = TimedOps(tuple(products["gpu_op_id"].tolist()), *(tuple(durations) for durations in edges.values()))
    return [timed, WithoutOps(tuple(moves["gpu_op_id"].tolist()))]


def _fused_share(dims: Any, gpu: Gpu) -> Estimate | None:
    """Return what of a fused attention's time is one product's, half of a forward pass; a backward pass is as slow per product or slower."""
    batch, rows, inner = dims[0]
    columns = dims[1][2]
    head, seq, past = sorted((rows, inner, columns))
    work = attention_work([batch, 1, seq, head], [batch, 1, past, head], "bf16", backend="flash", causal=False, backward=False)
    time = estimate(work, gpu) if work is not None else None
    return Estimate(time.ms / 2, time.low / 2, time.high / 2 * BACKWARD_SLOWER) if time is not None else None


RULE = Rule("unfused-attention", ("steps", "shapes", "gpu"), check, Explains())
