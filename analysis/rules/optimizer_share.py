"""The optimizer takes a large part of each step.

What it checks
    Device time of the optimizer's phase against the step.
Why it costs time
    The optimizer's work does not grow with the batch. A small batch pays for it often.
What to do
    A larger batch where memory allows, else gradient accumulation: one optimizer step for several batches.
When it is wrong
    The optimizer may be slow for other reasons (not fused), which have rules of their own.
References
    https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation
"""

from __future__ import annotations

from collections.abc import Iterator

from analysis.findings import CodeChange, Finding, Rule, RuleInput, in_words

WORTH_NAMING = 0.20  # of the step: below it accumulating two batches brings less than a tenth

CHANGES = (
    CodeChange(
        "PyTorch",
        "loss.backward(); opt.step(); opt.zero_grad()",
        "(loss / 4).backward()\nif (i + 1) % 4 == 0:\n    opt.step(); opt.zero_grad()",
    ),
    CodeChange("Lightning", "Trainer()", "Trainer(accumulate_grad_batches=4)"),
    CodeChange("Transformers", "TrainingArguments()", "TrainingArguments(gradient_accumulation_steps=4)"),
)


def check(given: RuleInput) -> Iterator[Finding]:
    """Yield information when the optimizer takes more than WORTH_NAMING of the step on the GPU."""
    phases = {str(p.get("name")): p for p in given.rank.phases}
    spent = float((phases.get("optimizer") or {}).get("device_ms_per_step") or 0.0)
    if given.share(spent) < WORTH_NAMING:
        return
    yield given.finding(
        RULE.slug,
        f"The optimizer takes {in_words(spent)} of each step on the GPU, {given.share(spent):.0%} of it, whatever the batch",
        "Take one optimizer step for several batches (gradient accumulation), or a larger batch where memory allows.",
        ceiling_ms=spent,
        severity="info",
        confidence="medium",
        note="Not predicted: a step then means several batches.",
        risk="The effective batch grows: the learning rate and its schedule must follow.",
        changes=CHANGES,
        evidence=[{"phase": "optimizer", "device_ms_per_step": spent}],
    )


RULE = Rule("optimizer-share", ("steps",), check)
