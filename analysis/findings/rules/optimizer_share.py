"""The optimizer takes a large part of each step.

What it checks
    Time of the kernels launched inside ``Optimizer.step``, relative to the step. Communication there is not the optimizer's
    own work and has its own rules.
Why it costs time
    The optimizer's work does not grow with the batch. With a small batch, it runs often for few samples.
What to do
    Use a larger batch if memory allows, else gradient accumulation: one optimizer step for several batches.
When it is wrong
    The optimizer is slow for another reason (not fused). Such reasons have their own rules.
References
    https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.builders import kernel_evidence
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import HALF_AS_OFTEN
from sawtooth.analysis.findings.recorded.counted_operations import OPTIMIZER_STEP, launched_by_optimizer, ms_per_step
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import percent

OPTIMIZER = OPTIMIZER_STEP + r"|^(?i:optimizer)$"  # Matches PyTorch's own annotation and the usual user annotations.

CHANGES = (
    CodeChange(
        "PyTorch",
        "loss.backward(); opt.step(); opt.zero_grad()",
        "(loss / 4).backward()\nif (i + 1) % 4 == 0:\n    opt.step(); opt.zero_grad()",
    ),
    CodeChange("Lightning", "Trainer()", "Trainer(accumulate_grad_batches=4)"),
    CodeChange("Transformers", "TrainingArguments()", "TrainingArguments(gradient_accumulation_steps=4)"),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield an info finding if the optimizer's kernels take a relevant share of the step."""
    inside = launched_by_optimizer(context.recording, context.rank.device, OPTIMIZER)
    work = context.work
    rows = work[work["gpu_op_id"].isin(inside) & (work["category"] != "communication")]
    share = context.share(ms_per_step(rows, context.work_steps))
    yield from kernel_evidence(
        context,
        rows,
        Advice(
            f"The optimizer takes {{cost}} of each step on the GPU, {percent(share)} of it, for any batch size",
            Action(
                "Take",
                "one optimizer step for several batches",
                " (gradient accumulation), or a larger batch where memory allows.",
            ),
            note="Not predicted: a step then contains several batches.",
            risk="The effective batch grows: the learning rate and its schedule must be tuned again.",
            changes=CHANGES,
        ),
        edits=[],
        severity="info",
    )


RULE = Rule(
    "optimizer-share",
    measure,
    reads=OF_TRACE,
    requires=("steps",),
    threshold=HALF_AS_OFTEN,
)
