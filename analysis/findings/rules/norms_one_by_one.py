"""Norms or histograms of single parameters are computed in each step.

What it checks
    Norms, histograms and other summaries of tensors with the shapes of parameters, after the backward pass and outside the
    optimizer. Summaries that the host reads one by one belong to the finding on these reads. Shapes of which tensors are also
    scaled or updated are left out, because the loop then clips gradients or uses the norms.
Why it costs time
    Each summary is one or more small kernels with a launch of its own, for every parameter. Logging needs them rarely.
What to do
    Compute them every N steps. ``torch._foreach_norm`` gives all norms in a few kernels, and
    ``torch.nn.utils.get_total_norm`` one norm over all. ``clip_grad_norm_`` returns that norm already.
When it is wrong
    The training uses the values in each step, as an optimizer with a norm for each layer does.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.get_total_norm.html
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.weight_average import averaging
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Relation, Rule, operations_of
from sawtooth.analysis.findings.policy import FEW_LINES
from sawtooth.analysis.findings.queries.host_reads import READS, ops_serving_only, waiting_calls
from sawtooth.analysis.findings.queries.passes import SCALES, first_shape, in_backward
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

FEWEST = 8  # Kernels per step. Fewer can be a loss or a buffer.
SUMMARIES = (
    "aten::linalg_vector_norm", "aten::norm", "aten::histc", "aten::mean", "aten::sum", "aten::std", "aten::var", "aten::max", "aten::min",
    "aten::amax", "aten::amin", "aten::aminmax",
)  # fmt: skip
# Operators by which code outside an optimizer uses the norms: it clips, or updates the parameters itself.
USES = (*SCALES, "aten::mul", "aten::div", "aten::add_", "aten::sub_")

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
    if len(rows) / steps < FEWEST:
        return
    edits = [WithoutOps(tuple(rows["gpu_op_id"].tolist()))]
    saved = context.step.gain_ms(edits)
    cost = ms_per_step(rows, steps) if saved is None else saved
    yield Evidence(
        Advice(
            f"Norms or histograms of parameters are computed one by one: {count_in_words(rows, steps)} and {in_words(ms_per_step(rows, steps))} of each step",
            Action(
                "Compute",
                "norms and histograms of parameters every N steps",
                ", and all norms in one call: torch._foreach_norm, or torch.nn.utils.get_total_norm for one norm over all.",
            ),
            note="Predicted for a step that computes no norms, without these kernels and their launches.",
            risk="Only the values of every Nth step are logged.",
            changes=CHANGES,
        ),
        lost_ms=cost,
        cost_ms=cost,
        stated_ms=ms_per_step(rows, steps),
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
    ended = work[work["gpu_op_id"].isin(in_backward(context))].groupby("step")["start_ns"].max()
    reads = ops_serving_only(context, waiting_calls(context, READS))
    by_others = {
        *launched_by_optimizer(context.recording, context.rank.device).tolist(),
        *averaging(context)["gpu_op_id"].tolist(),
    }
    after_backward = work[(work["start_ns"] > work["step"].map(ended)) & ~work["gpu_op_id"].isin(by_others)]
    shape = after_backward["dims"].map(first_shape)
    unused = set(parameters) - set(shape[after_backward["operator"].isin(USES)])
    return after_backward[
        after_backward["gpu_op_id"].isin(rows["gpu_op_id"]) & ~after_backward["gpu_op_id"].isin(reads) & shape.isin(unused)
    ]


def _shares_kernels(_context: RuleContext, first: Finding, second: Finding) -> bool:
    """Return whether the first finding is advice and changes some of the other's GPU operations."""
    return first.severity != "info" and not operations_of(first).isdisjoint(operations_of(second))


RULE = Rule(
    "norms-one-by-one",
    measure,
    reads=OF_TRACE | {"shapes"},
    explains=Explains(("launch_bound",), called="norms of single parameters"),
    requires=("steps", "shapes"),
    threshold=FEW_LINES,
    comes_before=(
        Relation("elementwise-chains", "“{title}” comes first: some of its kernels are counted here, too.", _shares_kernels),
    ),
)
