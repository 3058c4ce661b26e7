"""Activations are recomputed although memory is free.

What it checks
    FLOPs of forward operators that run again inside the backward pass (activation checkpointing), relative to all FLOPs of
    the step, and the free memory.
Why it costs time
    Every checkpointed block runs its forward pass twice, which is up to a third more work.
What to do
    Checkpoint fewer blocks, or only the cheap operators (selective checkpointing), as far as memory allows.
When it is wrong
    The model would not fit into memory without checkpointing.
References
    https://docs.pytorch.org/docs/stable/checkpoint.html
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import RECOMPUTED
from sawtooth.analysis.findings.queries.calls import calls_of, operators
from sawtooth.analysis.findings.queries.passes import in_backward, run_again
from sawtooth.analysis.findings.recorded.counted_operations import evidence_of, launched_by_optimizer, ms_per_step
from sawtooth.analysis.replay.edits import Edit, FasterHost, WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import percent

# Host time of an operator without checkpointing's hooks on its tensors, relative to the time with hooks. One measured pair:
# 0.7 forward, 0.8 backward.
HOOKLESS = 0.75
MIN_HOOKLESS = 0.6  # The lower bound of the predicted range, below the measured pair.
REENTRANT = r"^CheckpointFunction$"
FULL = 0.70  # Above 70 % of the device's memory there may be no space for the activations.

CHANGES = (
    CodeChange(
        "PyTorch",
        "for block in blocks:\n    x = checkpoint(block, x, use_reentrant=False)",
        "for block in blocks:\n    x = block(x)   # where memory is short, keep some of them checkpointed",
    ),
    CodeChange(
        "Transformers", "TrainingArguments(gradient_checkpointing=True)", "TrainingArguments(gradient_checkpointing=False)"
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if recomputed FLOPs are a relevant share and memory is not nearly full."""
    flops = context.rank.facts.flops
    if flops is None or not flops.flops or not flops.recomputed_flops:
        return
    again = flops.recomputed_flops / flops.flops
    peak = context.rank.metrics["peak_memory_bytes"].value
    rows = context.recording.rows("SELECT memory_bytes FROM devices WHERE device = ?", [context.rank.device])
    total = rows[0][0] if rows else None
    if peak is not None and total and peak / total > FULL:
        return
    steps = context.work_steps
    rows = run_again(context)
    edits: list[Edit] = [WithoutOps(tuple(rows["gpu_op_id"].tolist())), *_without_hooks(context, rows)]
    room = f", with {percent(1 - peak / total)} of the memory free" if peak is not None and total else ""
    yield Evidence(
        Advice(
            f"{percent(again)} of the model's FLOPs are computed a second time in each step by checkpointing{room}",
            Action("Checkpoint", "fewer blocks", ": only as many as memory requires."),
            note="Predicted without the second forward pass of every checkpointed block, and without the Python hooks for each saved tensor.",
            risk="Peak memory grows by the activations that are kept.",
            changes=CHANGES,
        ),
        share=again,
        lost_ms=ms_per_step(rows, steps),
        edits=edits,
        confidence="medium" if peak is not None else "low",
        rows=evidence_of(rows, steps, ("operator",)),
    )


def _without_hooks(context: RuleContext, again: pd.DataFrame) -> list[Edit]:
    """Return the edit that removes the host time of checkpointing's hooks.

    Empty for the reentrant kind, which has no hooks. The hooks are Python code inside operators that no trace shows: one call
    for each tensor that the forward pass saves, and one when the backward pass needs it.
    """
    if operators(context, REENTRANT).count:
        return []
    backward = in_backward(context)
    ids, by_optimizer = context.work["gpu_op_id"], launched_by_optimizer(context.recording, context.rank.device)
    first = context.work[~(ids.isin(again["gpu_op_id"]) | ids.isin(by_optimizer))]
    forward = first[~first["gpu_op_id"].isin(backward)]
    share = min(len(again) / max(len(forward), 1), 1.0)
    likely_share, least_share = (1 - share * (1 - factor) for factor in (HOOKLESS, MIN_HOOKLESS))
    return [FasterHost(likely_share, calls_of(context, first["gpu_op_id"].tolist()), low=least_share, high=1.0)]


RULE = Rule(
    "recomputation",
    measure,
    reads=OF_TRACE | {"shapes", "allocations"},
    explains=Explains(topics=frozenset({"memory", "choice"})),
    requires=("steps", "shapes"),
    threshold=RECOMPUTED,
    same_work_as="smaller findings",
)
