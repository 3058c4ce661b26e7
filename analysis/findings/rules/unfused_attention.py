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

import pandas as pd

from sawtooth.analysis.findings.model import OF_TRACE
from sawtooth.analysis.findings.queries.attention import as_fused, written_out
from sawtooth.analysis.findings.rule import Rule, RuleContext
from sawtooth.analysis.findings.work import evidence_of, ms_per_step
from sawtooth.analysis.run.model import CodeChange, Explains, Finding
from sawtooth.analysis.units import in_words

WORTH_NAMING = 0.03  # one call to change: worth it from 3 % of the step
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


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding when written-out attention takes more than WORTH_NAMING of the step."""
    gpu, steps = context.rank.gpu, context.work_steps
    fused = context.recording.rows("SELECT 1 FROM names WHERE name = ? LIMIT 1", [FUSED_BY_MATH])
    if gpu is None or fused:  # the call is there, and has a rule of its own
        return
    moves, products = written_out(context.work)
    cost = ms_per_step(moves, steps) + ms_per_step(products, steps)
    if not len(moves) or context.share(cost) < WORTH_NAMING:
        return
    yield context.finding(
        RULE.slug,
        f"Attention is written out: products, mask, softmax and copies of its score matrix take {in_words(cost)} of each step",
        "Call scaled_dot_product_attention, which never writes the score matrix.",
        ceiling_ms=cost,
        edits=as_fused(moves, products, gpu),
        confidence="medium",
        note="Without the kernels that only move the score matrix; the products as long as a fused kernel of their sizes takes.",
        risk="Attention weights are not returned any more; dropout draws other numbers.",
        changes=CHANGES,
        evidence=evidence_of(pd.concat([moves, products]), steps, ("operator",)),
    )


RULE = Rule(
    "unfused-attention",
    ("steps", "shapes", "gpu"),
    check,
    Explains(sets=("attention",)),
    reads=OF_TRACE | {"shapes", "gpu_peaks"},
)
