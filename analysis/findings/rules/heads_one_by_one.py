"""Attention is computed one head after the other.

What it checks
    Attentions of the same shapes that follow one another in a forward pass. Each is a product of queries and keys, a softmax and
    a product with values, or one fused attention. Between two attentions lie at most the products that make the queries, keys and
    values of one head. The attentions' results are joined afterwards (``torch.cat``, ``torch.stack``, or a copy of each).
Why it costs time
    Every head launches the same small kernels, forward and backward. If each head slices a common tensor, the gradient of each
    slice is as large as the whole tensor.
What to do
    Give the tensors the shape (batch, heads, length, head size) and call ``scaled_dot_product_attention`` once.
When it is wrong
    The parts are not heads but pieces of a long sequence, computed one by one to save memory. Fused attention saves this memory
    without pieces, because it never stores the scores. Heads of different sizes cannot be batched and are not reported.
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
from sawtooth.analysis.findings.loops.projections import fewer_parameters_edits, with_joined_projections
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.findings.queries.attention import fusing_edits, unfused_attention_rows
from sawtooth.analysis.findings.queries.calls import operators
from sawtooth.analysis.findings.queries.passes import evidence_of_saved_launches, merged_body_edits
from sawtooth.analysis.findings.recorded.counted_operations import count_in_words, ms_per_step
from sawtooth.analysis.replay.edits import Edit, TimedOps, WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

# Backward passes of slices. The gradient of a head's slice is a tensor of zeros as large as the whole tensor.
SLICE_BACKWARDS = r"^autograd::engine::evaluate_function: (Slice|Select|Narrow)Backward"

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
    steps, heads = context.work_steps, max(loop.heads for loop in loops)
    rows = pd.concat([loop.work.both_passes for loop in loops])
    yield from evidence_of_saved_launches(
        context,
        Advice(
            f"Attention is computed one head after the other, {heads} heads each time: {count_in_words(rows, steps)} and {in_words(ms_per_step(rows, steps))} of each step",
            Action("Compute", "all heads in one attention", ": reshape to (batch, heads, length, head size) and call scaled_dot_product_attention once."),
            note="Predicted with the launches of one head, in which each kernel does the work of all heads. Kernels that fused attention does not need are left out.",
            risk="Sums are added in another order. Projections of single heads become one weight, so old checkpoints need renaming.",
            changes=CHANGES,
        ),
        _edits(context, loops),
        rows,
    )  # fmt: skip


def _edits(context: RuleContext, loops: Sequence[HeadLoop]) -> list[Edit]:
    """Return the edits that run each loop as one fused attention over all heads.

    The kernels of one head remain. Each takes the sum of its times in all heads. Products with the scores take their share of a fused
    kernel's time. The products of the heads' projections become one product. The gradients of slices are removed.
    """
    rows = pd.concat([loop.work.both_passes for loop in loops])
    rows = rows[~rows.index.duplicated()]
    moving_rows, products = unfused_attention_rows(rows)
    fusing = fusing_edits(moving_rows, products, context.rank.gpu) if context.rank.gpu is not None and len(moving_rows) else []
    slice_nodes = np.array(operators(context, SLICE_BACKWARDS).ids, np.int64)
    is_slice_gradient = rows["gpu_op_id"].isin(context.work["gpu_op_id"].iloc[context.launches.launched_during(slice_nodes)])
    removed = [op for edit in fusing if isinstance(edit, WithoutOps) for op in edit.ops] + rows.loc[
        is_slice_gradient, "gpu_op_id"
    ].tolist()
    fused_ns = {op: ns for edit in fusing if isinstance(edit, TimedOps) for op, ns in zip(edit.ops, edit.dur_ns, strict=True)}
    edits: list[Edit] = [WithoutOps(tuple(removed))] if removed else []
    for loop in loops:
        for one_pass in (loop.work.forward, loop.work.backward):
            remaining = one_pass[~one_pass["gpu_op_id"].isin(removed)]
            new_ns = remaining["gpu_op_id"].map(fused_ns).fillna(remaining["dur_ns"]).astype("int64")
            edits += merged_body_edits(
                with_joined_projections(remaining.assign(dur_ns=new_ns), loop, context.rank.gpu), loop.heads
            )
    removed_ops = [op for edit in edits if isinstance(edit, WithoutOps) for op in edit.ops]
    return [*without_freeing(context, removed_ops), *fewer_parameters_edits(context, loops), *edits]


RULE = Rule(
    "heads-one-by-one",
    measure,
    reads=TRACE_SOURCES | {"shapes"},
    explains=Explains(("launch_bound",), called="attention computed head by head", sets=("attention",)),
    requires=("steps", "shapes"),
    threshold=OTHER_CODE,
)
