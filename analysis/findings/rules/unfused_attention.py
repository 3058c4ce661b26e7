"""Attention runs as separate operators instead of one fused kernel.

What it checks
    A softmax over the rows of a matrix between two batched products: queries × keys, softmax, × values. Attention that runs
    head by head has its own finding.
Why it costs time
    Every operator reads and writes the score matrix (batch × heads × length × length): scaling, mask, softmax, dropout. Fused
    attention never writes this matrix.
What to do
    Use ``torch.nn.functional.scaled_dot_product_attention``.
When it is wrong
    The attention has a bias or a softmax that no fused kernel supports: use FlexAttention. Very short sequences gain little.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.heads import head_loops
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import CALL_TO_LOOK_AT
from sawtooth.analysis.findings.queries.attention import fusing_edits, written_out
from sawtooth.analysis.findings.recorded.counted_operations import evidence_of, ms_per_step
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

FUSED_BY_MATH = "aten::_scaled_dot_product_attention_math"

CHANGES = (
    CodeChange(
        "PyTorch",
        "scores = q @ k.transpose(-2, -1) / math.sqrt(d) + mask\ny = scores.softmax(-1) @ v",
        "y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)   # is_causal=True instead of a causal mask",
    ),
    CodeChange(
        "Transformers", "AutoModel.from_pretrained(name)", 'AutoModel.from_pretrained(name, attn_implementation="sdpa")'
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if attention in separate operators takes a relevant share of the step."""
    gpu, steps = context.rank.gpu, context.work_steps
    fused = context.recording.rows("SELECT 1 FROM names WHERE name = ? LIMIT 1", [FUSED_BY_MATH])
    if gpu is None or fused:  # The code already calls it, and the rule attention-fallback covers this.
        return
    work = context.work
    in_heads = {op for loop in head_loops(context) for op in loop.work.both["gpu_op_id"].tolist()}
    moves, products = written_out(work[~work["gpu_op_id"].isin(in_heads)] if in_heads else work)
    cost = ms_per_step(moves, steps) + ms_per_step(products, steps)
    if not len(moves) or context.is_trifle(cost):
        return
    yield Evidence(
        Advice(
            f"Attention is not fused: products, mask, softmax and copies take {in_words(cost)} of each step",
            Action("Call", "scaled_dot_product_attention", ", which never writes the score matrix."),
            note="Predicted without the kernels that only move scores, queries, keys, values or outputs. The products take as long as a fused kernel of this size.",
            risk="Attention weights are no longer returned. Dropout draws other random numbers.",
            changes=CHANGES,
        ),
        lost_ms=cost,
        cost_ms=cost,
        edits=fusing_edits(moves, products, gpu),
        rows=evidence_of(pd.concat([moves, products]), steps, ("operator",)),
    )


RULE = Rule(
    "unfused-attention",
    measure,
    reads=OF_TRACE | {"shapes", "gpu_peaks"},
    explains=Explains(sets=("attention",)),
    requires=("steps", "shapes", "gpu"),
    threshold=CALL_TO_LOOK_AT,
)
