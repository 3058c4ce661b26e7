"""Attention is computed one head after the other.

What it checks
    Attentions of the same shapes that follow one another in a forward pass: products of queries and keys, a softmax and a product
    with values, or one fused attention. Only products of their own queries, keys and values lie between them, and their results
    are joined afterwards (``torch.cat``, ``torch.stack``, or a copy of each).
Why it costs time
    Every head launches the same small kernels, forward and backward. Slices of a common tensor also cost a gradient of full size
    for each head.
What to do
    Give the tensors the shape (batch, heads, length, head size) and call ``scaled_dot_product_attention`` once.
When it is wrong
    The parts are not heads but pieces of a long sequence, computed one by one to save memory. Fused attention never stores the
    scores, so it does not need pieces either. Heads of different sizes cannot be batched and are not reported.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.builders import without_freeing
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.heads import HeadLoop, head_loops
from sawtooth.analysis.findings.model import LAUNCHES, OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.findings.queries.attention import fusing_edits, written_out
from sawtooth.analysis.findings.queries.calls import operators
from sawtooth.analysis.findings.queries.passes import at_once
from sawtooth.analysis.findings.recorded.counted_operations import count_in_words, evidence_of, ms_per_step
from sawtooth.analysis.replay.edits import Edit, TimedOps, WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

# The gradient of a head's slice is a tensor of zeros as large as the whole tensor.
SLICED = r"^autograd::engine::evaluate_function: (Slice|Select|Narrow)Backward"

CHANGES = (
    CodeChange(
        "PyTorch",
        "for i in range(heads):\n    a = (q[i] @ k[i].transpose(-2, -1) / math.sqrt(size)).softmax(-1)\n    outs.append(a @ v[i])   # a head's slice\n"
        "y = torch.cat(outs, -1)",
        "q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in (q, k, v))   # batch, heads, length, size\n"
        "y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)   # is_causal=True instead of a causal mask",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if computing all heads at once would save a relevant share of the step."""
    loops = head_loops(context)
    if not loops:
        return
    edits = _edits(context, loops)
    predicted = context.predict_ms(edits)
    if predicted is None or context.step_ms is None or context.is_trifle(context.step_ms - predicted):
        return
    steps, heads = context.work_steps, max(loop.heads for loop in loops)
    rows = pd.concat([loop.work.both for loop in loops])
    yield Evidence(
        Advice(
            f"Attention is computed one head after the other, {heads} heads each time: {count_in_words(rows, steps)} and {in_words(ms_per_step(rows, steps))} of each step",
            Action("Compute", "all heads in one attention", ": reshape to (batch, heads, length, head size) and call scaled_dot_product_attention once."),
            note="Predicted with the launches of one head. Its kernels do the work of all heads. Kernels that fused attention does not need are left out.",
            risk="Sums are added in another order. Projections of single heads become one weight, so old checkpoints need renaming.",
            changes=CHANGES,
        ),
        lost_ms=context.step_ms - predicted,
        stated_ms=ms_per_step(rows, steps),
        edits=edits,
        rest=LAUNCHES,
        rows=evidence_of(rows, steps, ("operator",)),
        threshold_for="gain",
    )  # fmt: skip


def _edits(context: RuleContext, loops: Sequence[HeadLoop]) -> list[Edit]:
    """Return the edits that run each loop as one fused attention over all heads.

    Each remaining kernel takes the sum of the times that it had in all heads. Products with the scores take their share of a fused
    kernel's time. The gradients of slices are removed.
    """
    rows = pd.concat([loop.work.both for loop in loops])
    rows = rows[~rows.index.duplicated()]
    moves, products = written_out(rows)
    fused = fusing_edits(moves, products, context.rank.gpu) if context.rank.gpu is not None and len(moves) else []
    slices = np.array(operators(context, SLICED).ids, np.int64)
    sliced = rows["gpu_op_id"].isin(context.work["gpu_op_id"].iloc[context.launches.during(slices)])
    removed = [op for edit in fused if isinstance(edit, WithoutOps) for op in edit.ops] + rows.loc[sliced, "gpu_op_id"].tolist()
    timed = {op: ns for edit in fused if isinstance(edit, TimedOps) for op, ns in zip(edit.ops, edit.dur_ns, strict=True)}
    edits: list[Edit] = [WithoutOps(tuple(removed))] if removed else []
    for loop in loops:
        for part in (loop.work.forward, loop.work.backward):
            part = part[~part["gpu_op_id"].isin(removed)]
            new_ns = part["gpu_op_id"].map(timed).fillna(part["dur_ns"]).astype("int64")
            edits += at_once(part.assign(dur_ns=new_ns), loop.heads)
    gone = [op for edit in edits if isinstance(edit, WithoutOps) for op in edit.ops]
    return [*without_freeing(context, gone), *edits]


RULE = Rule(
    "heads-one-by-one",
    measure,
    reads=OF_TRACE | {"shapes"},
    explains=Explains(("launch_bound",), called="attention computed head by head", sets=("attention",)),
    requires=("steps", "shapes"),
    threshold=OTHER_CODE,
)
