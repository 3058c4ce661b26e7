"""Norms or histograms of single parameters are computed in each step.

What it checks
    Norms, histograms and other summaries of tensors with the shapes of parameters, after the backward pass and outside the
    optimizer. The rule host-waits-for-gpu reports summaries that the host reads one by one. Shapes whose tensors the loop also
    scales or updates are left out, because the loop then clips gradients or uses the norms.
Why it costs time
    Each summary is one or more small kernels with a launch of its own, for every parameter. Logging needs them rarely.
What to do
    Compute summaries every N steps. ``torch._foreach_norm`` computes all norms in a few kernels, and
    ``torch.nn.utils.get_total_norm`` computes one norm over all gradients. ``clip_grad_norm_`` returns this norm.
When it is wrong
    The training uses the values in each step, as an optimizer with a norm for each layer does.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.get_total_norm.html
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.weight_average import averaging_kernels
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Relation, Rule, operations_of
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.findings.queries.host_reads import READ_OPERATORS, ops_only_for_reads, waiting_calls
from sawtooth.analysis.findings.queries.passes import SCALING_OPERATORS, backward_op_ids, first_shape
from sawtooth.analysis.findings.recorded.counted_operations import (
    count_in_words,
    evidence_of,
    launched_by_optimizer,
    ms_per_step,
)
from sawtooth.analysis.findings.recorded.parameters import parameters_of
from sawtooth.analysis.replay.edits import WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange, Explains, Finding
from sawtooth.analysis.units import in_words

MIN_KERNELS = 8  # Per step. Fewer can summarize a loss or a buffer.
SUMMARIES = (
    "aten::linalg_vector_norm", "aten::norm", "aten::histc", "aten::mean", "aten::sum", "aten::std", "aten::var", "aten::max", "aten::min",
    "aten::amax", "aten::amin", "aten::aminmax",
)  # fmt: skip
# Operators by which code outside an optimizer uses the norms: it clips, or updates the parameters itself.
USING_OPERATORS = (*SCALING_OPERATORS, "aten::mul", "aten::div", "aten::add_", "aten::sub_")

CHANGES = (
    CodeChange(
        "PyTorch",
        "norms = [p.grad.norm() for p in model.parameters()]   # every step",
        "if step % 100 == 0:\n    grads = [p.grad for p in model.parameters() if p.grad is not None]\n"
        "    norms = torch._foreach_norm(grads)   # a few kernels for all\n"
        "    total = torch.nn.utils.get_total_norm(grads)   # or one norm over all",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if summaries of single parameters cost a relevant share of the step."""
    rows = _summaries(context)
    steps = context.work_steps
    if len(rows) / steps < MIN_KERNELS:
        return
    edits = [WithoutOps(tuple(rows["gpu_op_id"].tolist()))]
    kernels_ms, saved_ms = ms_per_step(rows, steps), context.step.gain_ms(edits)
    cost_ms = kernels_ms if saved_ms is None else saved_ms
    yield Evidence(
        Advice(
            f"Norms or histograms of parameters are computed one by one: {count_in_words(rows, steps)} and {in_words(kernels_ms)} of each step",
            Action(
                "Compute",
                "norms and histograms of parameters every N steps",
                ", and all norms in one call: torch._foreach_norm, or torch.nn.utils.get_total_norm for one norm over all.",
            ),
            note="Predicted for a step without these kernels and their launches.",
            risk="Only the values of every Nth step are logged.",
            changes=CHANGES,
        ),
        lost_ms=cost_ms,
        cost_ms=cost_ms,
        stated_ms=kernels_ms,
        edits=edits,
        rows=evidence_of(rows, steps, ("operator",)),
    )


def _summaries(context: RuleContext) -> pd.DataFrame:
    """Return the kernels that summarize single parameters or gradients.

    Only kernels after the last backward pass of their step count, because no later pass needs their results.
    """
    work = context.work
    rows = work[work["operator"].isin(SUMMARIES) & (work["kind"] == "kernel")]
    parameters = parameters_of(context.recording, context.rank.device) if len(rows) else None
    if not parameters:
        return rows.iloc[:0]
    backward_end_ns = work[work["gpu_op_id"].isin(backward_op_ids(context))].groupby("step")["start_ns"].max()
    read_ops = ops_only_for_reads(context, waiting_calls(context, READ_OPERATORS))
    other_ops = {
        *launched_by_optimizer(context.recording, context.rank.device).tolist(),
        *averaging_kernels(context)["gpu_op_id"].tolist(),
    }
    after_backward = work[(work["start_ns"] > work["step"].map(backward_end_ns)) & ~work["gpu_op_id"].isin(other_ops)]
    shape = after_backward["dims"].map(first_shape)
    unused_shapes = set(parameters) - set(shape[after_backward["operator"].isin(USING_OPERATORS)])
    return after_backward[
        after_backward["gpu_op_id"].isin(rows["gpu_op_id"])
        & ~after_backward["gpu_op_id"].isin(read_ops)
        & shape.isin(unused_shapes)
    ]


def _shares_kernels(_context: RuleContext, first: Finding, second: Finding) -> bool:
    """Return whether the first finding is advice and changes some GPU operations of the second finding."""
    return first.severity != "info" and not operations_of(first).isdisjoint(operations_of(second))


RULE = Rule(
    "norms-one-by-one",
    measure,
    reads=TRACE_SOURCES | {"shapes"},
    explains=Explains(("launch_bound",), called="norms of single parameters"),
    requires=("steps", "shapes"),
    threshold=FEW_LINES_TO_CHANGE,
    comes_before=(
        Relation(
            "elementwise-chains", "“{title}” comes first, because both findings count some of its kernels.", _shares_kernels
        ),
    ),
)
