"""Activations are recomputed although memory is free.

What it checks
    The share of the step's FLOPs in forward operators that run again inside the backward pass (activation checkpointing), and the
    free memory.
Why it costs time
    Every checkpointed block runs its forward pass twice. The step then has up to a third more work.
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
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import RECOMPUTED
from sawtooth.analysis.findings.queries.calls import launching_calls, operators
from sawtooth.analysis.findings.queries.passes import backward_op_ids, recomputed_rows
from sawtooth.analysis.findings.recorded.counted_operations import evidence_of, launched_by_optimizer, ms_per_step
from sawtooth.analysis.replay.edits import Edit, FasterHost, WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import percent

# Host time of an operator without checkpointing's hooks ÷ with hooks. One pair of runs showed 0.7 forward and 0.8 backward.
HOOKLESS_FACTOR = 0.75
MIN_HOOKLESS_FACTOR = 0.6  # Lower bound, because one pair is little evidence.
REENTRANT = r"^CheckpointFunction$"
MAX_USED_SHARE = 0.70  # Of the GPU's memory. With more in use, the activations may not fit.

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
    recomputed_share = flops.recomputed_flops / flops.flops
    peak_bytes = context.rank.metrics["peak_memory_bytes"].value
    devices = context.recording.rows("SELECT memory_bytes FROM devices WHERE device = ?", [context.rank.device])
    total_bytes = devices[0][0] if devices else None
    used_share = peak_bytes / total_bytes if peak_bytes is not None and total_bytes else None
    if used_share is not None and used_share > MAX_USED_SHARE:
        return
    steps = context.work_steps
    rows = recomputed_rows(context)
    edits: list[Edit] = [WithoutOps(tuple(rows["gpu_op_id"].tolist())), *_without_hooks(context, rows)]
    memory_clause = f", with {percent(1 - used_share)} of the memory free" if used_share is not None else ""
    yield Evidence(
        Advice(
            f"{percent(recomputed_share)} of the model's FLOPs are computed a second time in each step by checkpointing{memory_clause}",
            Action("Checkpoint", "fewer blocks", ": only as many as memory requires."),
            note="Predicted without the second forward pass of every checkpointed block, and without the Python hooks for each saved tensor.",
            risk="Peak memory grows by the activations that are kept.",
            changes=CHANGES,
        ),
        share=recomputed_share,
        lost_ms=ms_per_step(rows, steps),
        edits=edits,
        confidence="medium" if peak_bytes is not None else "low",
        rows=evidence_of(rows, steps, ("operator",)),
    )


def _without_hooks(context: RuleContext, recomputed: pd.DataFrame) -> list[Edit]:
    """Return the edit that removes the host time of checkpointing's hooks.

    Empty for reentrant checkpointing, which has no hooks. PyTorch calls a hook, which no trace shows, when the forward pass saves a
    tensor and when the backward pass needs it.
    """
    if operators(context, REENTRANT).count_per_step:
        return []
    backward = backward_op_ids(context)
    ids, by_optimizer = context.work["gpu_op_id"], launched_by_optimizer(context.recording, context.rank.device)
    remaining = context.work[~(ids.isin(recomputed["gpu_op_id"]) | ids.isin(by_optimizer))]
    forward = remaining[~remaining["gpu_op_id"].isin(backward)]
    share = min(len(recomputed) / max(len(forward), 1), 1.0)
    likely_share, least_share = (1 - share * (1 - factor) for factor in (HOOKLESS_FACTOR, MIN_HOOKLESS_FACTOR))
    return [FasterHost(likely_share, launching_calls(context, remaining["gpu_op_id"].tolist()), low=least_share, high=1.0)]


RULE = Rule(
    "recomputation",
    measure,
    reads=TRACE_SOURCES | {"shapes", "allocations"},
    explains=Explains(topics=frozenset({"memory", "choice"})),
    requires=("steps", "shapes"),
    threshold=RECOMPUTED,
    same_work_as="smaller findings",
)
