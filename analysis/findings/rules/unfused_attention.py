"""Attention runs as separate operators instead of one fused kernel.

What it checks
    A softmax over the rows of a matrix between two batched products: queries × keys, softmax, × values. The rule
    heads-one-by-one reports attention that runs head by head.
Why it costs time
    Every operator reads and writes the score matrix (batch × heads × length × length): scaling, mask, softmax, dropout. Fused
    attention never writes this matrix.
What to do
    Use ``torch.nn.functional.scaled_dot_product_attention``.
When it is wrong
    The attention has a bias or a softmax that no fused kernel supports. Then use FlexAttention. For very short sequences, fused
    attention saves little time.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.heads import head_loops
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import CALL_TO_CHECK
from sawtooth.analysis.findings.queries.attention import fusing_edits, unfused_attention_rows
from sawtooth.analysis.findings.recorded.counted_operations import evidence_of, ms_per_step
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

MATH_BACKEND = "aten::_scaled_dot_product_attention_math"

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
    calls_math_backend = context.recording.rows("SELECT 1 FROM names WHERE name = ? LIMIT 1", [MATH_BACKEND])
    if gpu is None or calls_math_backend:
        return  # The code already calls scaled_dot_product_attention, so the rule attention-fallback reports this.
    work = context.work
    head_ops = {op for loop in head_loops(context) for op in loop.work.both_passes["gpu_op_id"].tolist()}
    moving_rows, products = unfused_attention_rows(work[~work["gpu_op_id"].isin(head_ops)] if head_ops else work)
    cost_ms = ms_per_step(moving_rows, steps) + ms_per_step(products, steps)
    if not len(moving_rows) or context.is_negligible(cost_ms):
        return
    yield Evidence(
        Advice(
            f"Attention is not fused: products, mask, softmax and copies take {in_words(cost_ms)} of each step",
            Action("Call", "scaled_dot_product_attention", ", which never writes the score matrix."),
            note="The prediction leaves out the kernels that only move scores, queries, keys, values or outputs. It assumes that a fused kernel takes as long as the products.",
            risk="Attention weights are no longer returned. Dropout draws other random numbers.",
            changes=CHANGES,
        ),
        lost_ms=cost_ms,
        cost_ms=cost_ms,
        edits=fusing_edits(moving_rows, products, gpu),
        rows=evidence_of(pd.concat([moving_rows, products]), steps, ("operator",)),
    )


RULE = Rule(
    "unfused-attention",
    measure,
    reads=TRACE_SOURCES | {"shapes", "gpu_peaks"},
    explains=Explains(sets=("attention",)),
    requires=("steps", "shapes", "gpu"),
    threshold=CALL_TO_CHECK,
)
