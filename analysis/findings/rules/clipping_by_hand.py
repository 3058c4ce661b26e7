"""Gradients are clipped one by one.

What it checks
    Norms of single tensors outside the backward pass and the optimizer, and in-place scaling or clamping of tensors of equal
    shape. Kernels between the norms and the scaling count as well if they square or sum norms one by one.
Why it costs time
    Each parameter takes two or three small kernels for its norm, and as many for its scaling. ``clip_grad_norm_`` needs only a
    few kernels for all parameters.
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
from sawtooth.analysis.findings.loops.weight_average import averaging_kernels
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import ONE_LINE_TO_CHANGE
from sawtooth.analysis.findings.queries.passes import SCALING_OPERATORS, backward_op_ids, first_shape, merged_body_edits
from sawtooth.analysis.findings.recorded.counted_operations import (
    count_in_words,
    evidence_of,
    launched_by_optimizer,
    ms_per_step,
)
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

NORMS = ("aten::linalg_vector_norm", "aten::norm", "aten::_foreach_norm")
# Operators that square and sum norms. Each norm is a single number on the GPU.
SUMMING_OPERATORS = ("aten::pow", "aten::square", "aten::mul", "aten::add", "aten::add_")
MIN_SCALED_TENSORS = 8  # Tensors scaled per step. Fewer can be a loss or a buffer.
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
    scaled_per_step = int(rows["operator"].isin(SCALING_OPERATORS).sum()) / steps
    if scaled_per_step < MIN_SCALED_TENSORS:
        return
    edits = merged_body_edits(rows, max(int(len(rows) / steps / (2 * REMAINING_KERNELS)), 1))
    predicted_ms = context.predict_ms(edits)
    saved_ms = context.step_ms - predicted_ms if predicted_ms is not None and context.step_ms else ms_per_step(rows, steps)
    if context.is_negligible(saved_ms):
        return
    yield Evidence(
        Advice(
            f"Gradients are clipped one by one: {count_in_words(rows, steps)} and {in_words(ms_per_step(rows, steps))} of each step",
            Action("Clip", "all gradients in one call", ": clip_grad_norm_ or clip_grad_value_."),
            note="Predicted with the same kernel time in a few launches. Another finding covers the reads of the norms.",
            risk="One norm over all gradients scales the gradients differently than one norm per gradient.",
            changes=CHANGES,
        ),
        lost_ms=saved_ms,
        cost_ms=saved_ms,
        edits=edits,
        rows=evidence_of(rows, steps, ("operator",)),
    )


def _clipping(context: RuleContext) -> pd.DataFrame:
    """Return the kernels of norms and in-place scaling for shapes that have both.

    Launches of autograd, of the optimizer and of an average of the weights are left out.
    """
    candidates = context.work[context.work["operator"].isin((*NORMS, *SCALING_OPERATORS))]
    if not len(candidates):
        return candidates
    left_out = backward_op_ids(context).union(
        launched_by_optimizer(context.recording, context.rank.device).tolist(), averaging_kernels(context)["gpu_op_id"].tolist()
    )
    candidates = candidates[~candidates["gpu_op_id"].isin(left_out)]
    shapes = candidates["dims"].map(first_shape)
    common_shapes = set(shapes[candidates["operator"].isin(NORMS)]) & set(
        shapes[candidates["operator"].isin(SCALING_OPERATORS)]
    ) - {()}
    clipping = candidates[shapes.isin(common_shapes)]
    summing_kernels = _summing_kernels(context.work[~context.work["gpu_op_id"].isin(left_out)], clipping)
    if len(summing_kernels) < MIN_SCALED_TENSORS * context.work_steps:
        return clipping
    return pd.concat([clipping, summing_kernels])


def _summing_kernels(work: pd.DataFrame, clipping: pd.DataFrame) -> pd.DataFrame:
    """Return the kernels over single numbers between the first norm and the last scaling of each step."""
    norms = clipping[clipping["operator"].isin(NORMS)].groupby("step")["start_ns"].min()
    scales = clipping[clipping["operator"].isin(SCALING_OPERATORS)].groupby("step")["start_ns"].max()
    numbers = work[work["operator"].isin(SUMMING_OPERATORS) & work["dims"].map(_is_number)]
    between = (numbers["start_ns"] > numbers["step"].map(norms)) & (numbers["start_ns"] < numbers["step"].map(scales))
    return numbers[between]


def _is_number(dims: list[Any] | None) -> bool:
    return bool(dims) and all(size == [] for size in dims or ())


RULE = Rule(
    "clipping-by-hand",
    measure,
    reads=TRACE_SOURCES | {"shapes"},
    explains=Explains(("launch_bound",), called="gradients clipped one by one"),
    requires=("steps", "shapes"),
    threshold=ONE_LINE_TO_CHANGE,
)
