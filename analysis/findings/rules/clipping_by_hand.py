"""Gradients are clipped one by one.

What it checks
    Norms of single tensors outside the backward pass and the optimizer, and equally shaped tensors that are scaled or clamped
    in place. Kernels between them that square or sum the norms one by one count as well.
Why it costs time
    A norm and a multiplication for each parameter take two or three small kernels each. ``clip_grad_norm_`` needs only a few
    kernels for all parameters.
What to do
    Use ``torch.nn.utils.clip_grad_norm_`` or ``clip_grad_value_``.
When it is wrong
    You clip each tensor to its own norm on purpose. Then use ``torch._foreach_norm`` and ``torch._foreach_mul_``.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.weight_average import averaging
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import ONE_LINE
from sawtooth.analysis.findings.queries.passes import SCALES, at_once, first_shape, in_backward
from sawtooth.analysis.findings.recorded.counted_operations import (
    count_in_words,
    evidence_of,
    launched_by_optimizer,
    ms_per_step,
)
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

NORMS = ("aten::linalg_vector_norm", "aten::norm", "aten::_foreach_norm")
# Operators that square and sum norms, which are single numbers on the GPU.
SUMS = ("aten::pow", "aten::square", "aten::mul", "aten::add", "aten::add_")
FEWEST = 8  # Tensors scaled per step. Fewer can be a loss or a buffer.
REMAINING_KERNELS = 2  # Kernels that clip_grad_norm_ needs for the norms, and as many for scaling.

CHANGES = (
    CodeChange(
        "PyTorch",
        "for p in model.parameters():\n    norm = p.grad.norm()\n    p.grad.mul_(torch.clamp(1.0 / norm, max=1))",
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)   # by the norm of all gradients, not of each",
    ),
    CodeChange("Lightning", "Trainer()", "Trainer(gradient_clip_val=1.0)"),
    CodeChange("Transformers", "TrainingArguments(max_grad_norm=0)", "TrainingArguments(max_grad_norm=1.0)"),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if clipping tensor by tensor costs a relevant share of the step."""
    rows = _clipping(context)
    steps = context.work_steps
    scaled = int(rows["operator"].isin(SCALES).sum()) / steps
    if scaled < FEWEST:
        return
    edits = at_once(rows, max(int(len(rows) / steps / (2 * REMAINING_KERNELS)), 1))
    predicted = context.predict_ms(edits)
    saved = context.step_ms - predicted if predicted is not None and context.step_ms else ms_per_step(rows, steps)
    if context.is_trifle(saved):
        return
    yield Evidence(
        Advice(
            f"Gradients are clipped one by one: {count_in_words(rows, steps)} and {in_words(ms_per_step(rows, steps))} of each step",
            Action("Clip", "all gradients in one call", ": clip_grad_norm_ or clip_grad_value_."),
            note="Predicted with the same kernel time in a few launches. Another finding covers the reads of the norms.",
            risk="One norm over all gradients scales them differently from one norm per gradient.",
            changes=CHANGES,
        ),
        lost_ms=saved,
        cost_ms=saved,
        edits=edits,
        rows=evidence_of(rows, steps, ("operator",)),
    )


def _clipping(context: RuleContext) -> pd.DataFrame:
    """Return the kernels of norms and in-place scaling for shapes that have both.

    Launches of autograd, of the optimizer and of an average of the weights are left out.
    """
    work = context.work[context.work["operator"].isin((*NORMS, *SCALES))]
    if not len(work):
        return work
    left_out = in_backward(context).union(
        launched_by_optimizer(context.recording, context.rank.device).tolist(), averaging(context)["gpu_op_id"].tolist()
    )
    candidates = work[~work["gpu_op_id"].isin(left_out)]
    shape = candidates["dims"].map(first_shape)
    common_shapes = set(shape[candidates["operator"].isin(NORMS)]) & set(shape[candidates["operator"].isin(SCALES)]) - {()}
    clipping = candidates[shape.isin(common_shapes)]
    sums = _sums(context.work[~context.work["gpu_op_id"].isin(left_out)], clipping)
    if len(sums) < FEWEST * context.work_steps:
        return clipping
    return pd.concat([clipping, sums])


def _sums(work: pd.DataFrame, clipping: pd.DataFrame) -> pd.DataFrame:
    """Return the kernels over single numbers between the first norm and the last scaling of each step."""
    norms = clipping[clipping["operator"].isin(NORMS)].groupby("step")["start_ns"].min()
    scales = clipping[clipping["operator"].isin(SCALES)].groupby("step")["start_ns"].max()
    numbers = work[work["operator"].isin(SUMS) & work["dims"].map(_is_number)]
    between = (numbers["start_ns"] > numbers["step"].map(norms)) & (numbers["start_ns"] < numbers["step"].map(scales))
    return numbers[between]


def _is_number(dims: list[Any] | None) -> bool:
    return bool(dims) and all(size == [] for size in dims or ())


RULE = Rule(
    "clipping-by-hand",
    measure,
    reads=OF_TRACE | {"shapes"},
    explains=Explains(("launch_bound",), called="gradients clipped one by one"),
    requires=("steps", "shapes"),
    threshold=ONE_LINE,
)
