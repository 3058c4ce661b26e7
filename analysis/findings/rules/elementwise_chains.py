"""Elementwise work is not fused.

What it checks
    Chains of kernels over the same number of elements that follow one another on a stream and only move data.
Why it costs time
    Each kernel reads and writes all of it from memory; a compiled chain reads the inputs once and writes the result once.
What to do
    ``torch.compile(model)``: inductor fuses such chains into one Triton kernel each.
When it is wrong
    Shapes that change every step recompile: mark them dynamic. The first steps take minutes.
References
    https://docs.pytorch.org/docs/stable/generated/torch.compile.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sawtooth.analysis.findings.chains import chains, fused
from sawtooth.analysis.findings.rule import Rule, RuleContext, in_words
from sawtooth.analysis.findings.work import evidence_of, ms_per_step
from sawtooth.analysis.run.model import CodeChange, Explains, Finding

WORTH_NAMING = 0.10  # compiling costs minutes and care: worth it from 10 % of the step

CHANGES = (
    CodeChange("PyTorch", "model = Net().cuda()", "model = torch.compile(Net().cuda())"),
    CodeChange("Lightning", "model = LitNet()", "model = torch.compile(LitNet())"),
    CodeChange("Transformers", "TrainingArguments(...)", "TrainingArguments(..., torch_compile=True)"),
)


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding when fusing chains would save more than WORTH_NAMING of the step."""
    steps = context.work_steps
    work = context.work
    fusible = chains(context)
    if not fusible or work["kernel"].str.startswith("triton_").any():
        return
    rows = work.iloc[np.concatenate([chain.rows for chain in fusible])]
    edits = fused(work, fusible)
    predicted = context.predict_ms(edits)
    saved = ms_per_step(rows, steps) - sum(work["dur_ns"].to_numpy()[c.rows].max() for c in fusible) / 1e6 / steps
    if context.share(saved if predicted is None or not context.step_ms else context.step_ms - predicted) < WORTH_NAMING:
        return
    yield context.finding(
        RULE.slug,
        f"{len(rows) / steps:,.0f} kernels a step work in chains on the same data: {in_words(ms_per_step(rows, steps))} of each step, mostly memory traffic",
        "Compile the model: each chain becomes one kernel.",
        ceiling_ms=saved,
        edits=edits,
        severity="info",
        confidence="low",
        note="Each chain as one kernel as long as its slowest; compiling also saves the host launches.",
        risk="Compilation takes minutes at the start and again when shapes change.",
        changes=CHANGES,
        evidence=evidence_of(rows, steps, ("operator",)),
    )


RULE = Rule("elementwise-chains", ("steps", "shapes"), check, Explains())
