"""The optimizer takes a large part of each step.

What it checks
    The share of the step in kernels that ``Optimizer.step`` launches. Other rules report the communication of an optimizer.
Why it costs time
    The optimizer's work does not grow with the batch. With a small batch, it runs often for few samples.
What to do
    Use a larger batch if memory allows, else gradient accumulation: one optimizer step for several batches.
When it is wrong
    The optimizer is slow because it is not fused. Other rules report this.
References
    https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.builders import kernel_evidence
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import CALL_TO_HALVE
from sawtooth.analysis.findings.recorded.counted_operations import OPTIMIZER_STEP, launched_by_optimizer, ms_per_step
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import percent

OPTIMIZER_ANNOTATIONS = OPTIMIZER_STEP + r"|^(?i:optimizer)$"  # PyTorch's own annotation, and the usual user annotation.

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
    optimizer_ops = launched_by_optimizer(context.recording, context.rank.device, OPTIMIZER_ANNOTATIONS)
    work = context.work
    rows = work[work["gpu_op_id"].isin(optimizer_ops) & (work["category"] != "communication")]
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
            note="Not predicted, because a step then contains several batches.",
            risk="The effective batch grows, so the learning rate and its schedule must be tuned again.",
            changes=CHANGES,
        ),
        edits=[],
        severity="info",
    )


RULE = Rule(
    "optimizer-share",
    measure,
    reads=TRACE_SOURCES,
    requires=("steps",),
    threshold=CALL_TO_HALVE,
)
