"""Activations are recomputed while memory is free.

What it checks
    FLOPs of forward operators that run again inside the backward pass (activation checkpointing), against all FLOPs of the step; and the
    memory that is still free.
Why it costs time
    Every checkpointed block runs its forward pass twice: up to a third more work.
What to do
    Checkpoint fewer blocks, or only the cheap operators (selective checkpointing), as far as memory allows.
When it is wrong
    When the model would not fit without it.
References
    https://docs.pytorch.org/docs/stable/checkpoint.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.queries.passes import run_again
from sawtooth.analysis.findings.rule import Rule, RuleContext
from sawtooth.analysis.findings.work import evidence_of, ms_per_step
from sawtooth.analysis.replay.edits import WithoutOps
from sawtooth.analysis.run.model import CodeChange, Explains, Finding

WORTH_NAMING = 0.10  # below a tenth of the FLOPs checkpointing is selective already
FULL = 0.70  # above 70 % of the device's memory there may be no room for the activations

CHANGES = (
    CodeChange(
        "PyTorch",
        "for block in blocks:\n    x = checkpoint(block, x, use_reentrant=False)",
        "for i, block in enumerate(blocks):\n    x = checkpoint(block, x, use_reentrant=False) if i % 3 == 0 else block(x)",
    ),
    CodeChange(
        "Transformers", "TrainingArguments(gradient_checkpointing=True)", "TrainingArguments(gradient_checkpointing=False)"
    ),
)


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding when recomputed FLOPs exceed WORTH_NAMING of the model's and memory is not nearly full."""
    flops = context.rank.facts.flops
    if flops is None or not flops.flops or (again := flops.recomputed_flops / flops.flops) < WORTH_NAMING:
        return
    peak = context.rank.metrics["peak_memory_bytes"].value
    rows = context.recording.rows("SELECT memory_bytes FROM devices WHERE device = ?", [context.rank.device])
    total = rows[0][0] if rows else None
    if peak is not None and total and peak / total > FULL:
        return
    steps = context.work_steps
    rows = run_again(context)
    room = f", with {1 - peak / total:.0%} of the memory free" if peak is not None and total else ""
    yield context.finding(
        RULE.slug,
        f"{again:.0%} of the model's FLOPs are computed twice each step by checkpointing{room}",
        "Checkpoint fewer blocks: as many as memory needs and no more.",
        ceiling_ms=ms_per_step(rows, steps),
        edits=[WithoutOps(tuple(rows["gpu_op_id"].tolist()))],
        confidence="medium" if peak is not None else "low",
        note="Without the second forward pass of every checkpointed block.",
        risk="Peak memory grows by the activations that are kept.",
        changes=CHANGES,
        evidence=evidence_of(rows, steps, ("operator",)),
    )


RULE = Rule("recomputation", ("steps", "shapes"), check, Explains())
