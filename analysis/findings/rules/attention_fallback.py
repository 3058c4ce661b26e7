"""Fused attention is called, but it runs unfused or padded.

What it checks
    Calls of ``scaled_dot_product_attention`` that run the math backend, with separate kernels for products, mask and softmax.
    Also calls that pad the head size to a multiple of 8 before a fused kernel.
Why it costs time
    The math backend writes the score matrix several times. Fused kernels never write it. Padding copies queries, keys and
    values.
What to do
    Find out why no fused kernel was chosen: FP32 inputs with a mask, a head size above 256, a mask that needs a gradient, or
    a disabled backend. With ``torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION)`` around the call, PyTorch prints
    the reason as a warning. Choose a head size of 64 or 128.
When it is wrong
    The run needs second derivatives of attention. No fused kernel supports them.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import CALL_TO_CHECK
from sawtooth.analysis.findings.queries.attention import fusing_edits, unfused_attention_rows
from sawtooth.analysis.findings.queries.calls import operators
from sawtooth.analysis.findings.queries.passes import passes
from sawtooth.analysis.findings.recorded.counted_operations import evidence_of, ms_per_step
from sawtooth.analysis.replay.edits import Edit, WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

MATH_BACKEND = "^aten::_scaled_dot_product_attention_math"
ATTENTION_CALL = "^aten::scaled_dot_product_attention$"
PADDING_OPERATORS = ("aten::constant_pad_nd", "aten::pad")

CHANGES = (
    CodeChange(
        "PyTorch",
        "y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)",
        "from torch.nn.attention import SDPBackend, sdpa_kernel\nwith sdpa_kernel(SDPBackend.FLASH_ATTENTION):   # warns why it cannot be used\n    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)   # is_causal=True only instead of a causal mask",
    ),
)


FIND_OUT = Action("Change", "the attention's inputs so that a fused kernel accepts them", ": check dtype, head size and mask.")
CHOOSE_SIZE = Action("Choose", "a head size that is a multiple of 8", ", such as 64 or 128.")
SIZE_CHANGES = (
    CodeChange(
        "PyTorch",
        "attention = nn.MultiheadAttention(600, 8)   # head size 75",
        "attention = nn.MultiheadAttention(640, 8)   # head size 80",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if attention's math backend or padding takes a relevant share of the step."""
    gpu = context.rank.gpu
    math_rows = passes(context, operators(context, MATH_BACKEND).ids).both_passes
    if gpu is not None and len(math_rows):
        behaviour = "its math backend, which writes the matrix of scores"
        note = "Predicted with the time of fused kernels for these sizes."
        yield from _finding(
            context,
            math_rows,
            fusing_edits(*unfused_attention_rows(math_rows), gpu),
            behaviour,
            note,
            advice=(FIND_OUT, CHANGES),
        )
        return
    calls = operators(context, ATTENTION_CALL)
    if not calls.count_per_step:
        return
    attention_rows = passes(context, calls.ids).both_passes
    padding_rows = attention_rows[attention_rows["cpu_op_id"].isin(set(_operators_in_padding(context)))]
    yield from _finding(
        context,
        padding_rows,
        [WithoutOps(tuple(padding_rows["gpu_op_id"].tolist()))],
        "kernels that pad the head size",
        "Predicted without the padding copies; the attention kernels stay.",
        advice=(CHOOSE_SIZE, SIZE_CHANGES),
    )


def _operators_in_padding(context: RuleContext) -> list[int]:
    """Return the padding operators and all operators that they call, at any depth."""
    sql = "SELECT cpu_op_id FROM named_cpu_ops WHERE name IN (SELECT unnest(?::VARCHAR[]))"
    padding = [int(row[0]) for row in context.recording.rows(sql, [list(PADDING_OPERATORS)])]
    return context.launches.operators_begun_in(np.array(padding, np.int64)).tolist()


def _finding(
    context: RuleContext,
    rows: pd.DataFrame,
    edits: list[Edit],
    behaviour: str,
    note: str,
    *,
    advice: tuple[Action, tuple[CodeChange, ...]],
) -> Iterator[Evidence]:
    action, changes = advice
    cost_ms = ms_per_step(rows, context.work_steps)
    if not len(rows) or context.is_negligible(cost_ms):
        return
    yield Evidence(
        Advice(
            f"scaled_dot_product_attention runs {behaviour}: {in_words(cost_ms)} of each step",
            action,
            note=note,
            risk="Fused kernels round differently in the last bits, and dropout draws other random numbers.",
            changes=changes,
        ),
        lost_ms=cost_ms,
        cost_ms=cost_ms,
        edits=edits,
        rows=evidence_of(rows, context.work_steps, ("operator",)),
    )


RULE = Rule(
    "attention-fallback",
    measure,
    reads=TRACE_SOURCES | {"shapes", "gpu_peaks"},
    explains=Explains(sets=("attention",)),
    requires=("steps", "shapes", "gpu"),
    threshold=CALL_TO_CHECK,
)
