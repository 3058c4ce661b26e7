"""The optimizer uses foreach kernels, although it could be fused.

What it checks
    ``_foreach_`` kernels inside ``Optimizer.step``, without ``_fused_`` kernels.
Why it costs time
    A foreach optimizer launches few kernels, but moves every state through memory several times.
What to do
    Use ``fused=True``, which moves every state only once.
When it is wrong
    The optimizer has no fused form. Only Adam, AdamW, SGD and Adagrad have one.
References
    https://docs.pytorch.org/docs/stable/optim.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.actions import FUSED_ON_GPU, OPTIMIZER, optimizers, step_annotations, with_optimizer
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.kernel_retiming import fused_optimizer_edit
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import ONE_LINE_TO_CHANGE
from sawtooth.analysis.findings.recorded.counted_operations import evidence_of, launched_by_optimizer, ms_per_step
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

CHANGES = (
    CodeChange(
        "PyTorch",
        "torch.optim.$optimizer(model.parameters(), $options)",
        "torch.optim.$optimizer(model.parameters(), $options, $fused)",
        slot_defaults=OPTIMIZER,
    ),
    CodeChange(
        "Transformers",
        'TrainingArguments(optim="adamw_torch")',
        'TrainingArguments(optim="adamw_torch_fused")   # the default since Transformers 4.46',
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if the optimizer's foreach kernels take a relevant share of the step."""
    steps = context.work_steps
    names = [name for name in optimizers(context.recording) if name in FUSED_ON_GPU]
    if not names:
        return  # Foreach is the best form of other optimizers.
    own_ops = launched_by_optimizer(context.recording, context.rank.device, step_annotations(names))
    work = context.work
    updates = work[work["gpu_op_id"].isin(own_ops)]
    operators = updates["operator"].fillna("")
    foreach = updates[operators.str.contains("_foreach_")]
    cost_ms = ms_per_step(foreach, steps)
    if operators.str.contains("_fused_").any() or context.is_negligible(cost_ms):
        return
    name = names[0]
    edit = fused_optimizer_edit(tuple(foreach["gpu_op_id"].tolist()), name, context.rank.gpu)
    yield Evidence(
        Advice(
            f"The optimizer moves its states several times through memory: {in_words(cost_ms)} of each step in foreach kernels",
            Action("Use", "the fused optimizer", ": one pass over parameters, gradients and states."),
            note="Predicted with the optimizer's fused kernels, which move less than half as many bytes."
            if edit
            else "Not predicted: the fused kernels of this optimizer were not measured.",
            risk="The fused update rounds differently in the last bits.",
            changes=with_optimizer(CHANGES, name),
        ),
        lost_ms=cost_ms,
        cost_ms=cost_ms,
        edits=[edit] if edit else [],
        severity=None if edit else "info",
        rows=evidence_of(foreach, steps, ("operator",)),
    )


RULE = Rule(
    "optimizer-foreach",
    measure,
    reads=TRACE_SOURCES,
    explains=Explains(sets=("optimizer",)),
    requires=("steps",),
    threshold=ONE_LINE_TO_CHANGE,
)
