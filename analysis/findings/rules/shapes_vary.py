"""Shapes change from step to step, or batches contain padding.

What it checks
    The share of padding in a batch. The recorder measures this share by the lengths of the samples. If there is little padding,
    the rule compares the FLOPs of the profiled steps.
Why it costs time
    Kernels compute on padding as well. With short batches the GPU waits for launches. Long batches determine how much memory
    the training needs. A compiler, cuDNN's search and the allocator start again for each shape. With several ranks, each step
    takes as long as the longest batch of all ranks.
What to do
    Batch by length, pad to a few lengths, or pack sequences up to a fixed number of tokens.
When it is wrong
    The model skips padding, but the operators' names do not show this. Or the loop has steps of several kinds, such as a
    generator's and a critic's, which look like steps of different shapes.
References
    https://docs.pytorch.org/docs/stable/compile/programming_model.dynamic_shapes.html
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from sawtooth.analysis.findings.batch.step import kernels_for_batch
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.judging import reaches_threshold, severity_of
from sawtooth.analysis.findings.loader_limits import MUCH_PADDING, limiting_stage
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Judgement, Rule, finding_from
from sawtooth.analysis.findings.policy import CALL_TO_CHECK, FEW_LINES_TO_CHANGE
from sawtooth.analysis.findings.queries.shapes import MIN_STEPS, differing_step_flops
from sawtooth.analysis.findings.recorded.counted_operations import evidence_of, ms_per_step, numel
from sawtooth.analysis.replay.edits import ScaledOps
from sawtooth.analysis.run.model import Action, CodeChange, Finding, RunResult
from sawtooth.analysis.units import in_words, significant

# Operators of models that skip padding: attention over packed sequences, nested tensors, packed recurrent layers.
PADDING_FREE_OPERATORS = r"(?i)varlen|jagged|unpad_input|^aten::(_nested_|_pack_padded_sequence)"
# Kernels grow with the number of tokens if they take longer for this many times the tokens. Doubled sizes keep their alignment.
LONGER_FACTOR = 2.0
GROUP_BY_LENGTH = Action("Batch", "samples of similar length together", ", or pack sequences up to a fixed number of tokens.")
LESS_RANDOM_RISK = "Sorted batches are less random; shuffle among batches."

CHANGES = (
    CodeChange(
        "PyTorch",
        "DataLoader(dataset, …, shuffle=True, collate_fn=pad)",
        "order = sorted(range(len(dataset)), key=lambda i: len(dataset[i]))\nbatches = [order[i:i + 32] for i in range(0, len(order), 32)]\nrandom.shuffle(batches)   # anew for each epoch\nDataLoader(dataset, …, batch_sampler=batches, collate_fn=pad)",
    ),
    CodeChange(
        "Transformers",
        "TrainingArguments()",
        'TrainingArguments(train_sampling_strategy="group_by_length")   # before Transformers 5: group_by_length=True',
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding on padding, or else an info finding if the FLOPs of steps of one kind differ much."""
    padding = _evidence_of_padding(context)
    if padding is not None and reaches_threshold(padding, context.step, CALL_TO_CHECK):
        yield padding
        return
    flops = differing_step_flops(context)
    if flops is None:
        return
    evidence = [
        {"step": int(step), "gflop": float(flops[step]) / 1e9, "ms": float(part["dur_ns"].sum()) / 1e6, **_largest_input(part)}
        for step, part in context.work.groupby("step")
        if step in flops
    ]
    yield Evidence(
        Advice(
            f"Shapes change from step to step: the largest of {len(flops)} profiled steps computes {significant(flops.max() / flops.min(), 2)} times as much as the smallest",
            Action(
                "Batch",
                "by length or pad to a few lengths",
                ". Mark changing dimensions as dynamic before compiling. Profile more steps.",
            ),
            note="Not predicted: the gain depends on the lengths of the whole data set.",
            risk=LESS_RANDOM_RISK,
            changes=CHANGES,
        ),
        confidence="high" if len(flops) > MIN_STEPS else "medium",
        severity="info",
        rows=evidence,
    )


def _evidence_of_padding(context: RuleContext) -> Evidence | None:
    """Return the evidence that kernels compute on padding; None if there is little, or the model skips it.

    The gain is at most the padding's share of the kernels that grow with the number of tokens. It is also at most the gain of a
    replay in which these kernels are shorter by the padding's share. This gain is smaller if the host or the loader limits the step.
    """
    padding_share = context.run.manifest.facts.loader_padding or 0.0
    if padding_share < MUCH_PADDING or context.recording.named(PADDING_FREE_OPERATORS):
        return None
    if _is_loader_advised_to_group(context):
        return None
    kernels = context.work[(context.work["kind"] == "kernel") & (context.work["category"] != "communication")]
    growing = kernels[kernels_for_batch(context, kernels, LONGER_FACTOR).dur_ns > kernels["dur_ns"].to_numpy()]
    shorter = ScaledOps(tuple(growing["gpu_op_id"].tolist()), 1 - padding_share)
    saved_ms = context.step.gain_ms([shorter]) if len(growing) else None
    if saved_ms is None:
        return None
    growing_ms = ms_per_step(growing, context.work_steps)
    max_gain_ms = max(min(padding_share * growing_ms, saved_ms), 0.0)
    return Evidence(
        Advice(
            f"{100 * padding_share:.0f} % of each batch is padding, and the model's kernels compute on the padding",
            GROUP_BY_LENGTH,
            note=f"This is an upper limit: the padding's share of the kernels that grow with length ({in_words(growing_ms)} of each step). The gain is smaller if the "
            "host or the loader limits the step. Optimizer, communication and copies stay. Batches of nearly equal lengths keep a little padding.",
            risk=LESS_RANDOM_RISK,
            changes=CHANGES,
        ),
        lost_ms=max_gain_ms,
        cost_ms=max_gain_ms,
        at_most="warning",  # Only an upper limit is known.
        rows=evidence_of(growing, context.work_steps, ("operator",)),
    )


def _is_loader_advised_to_group(context: RuleContext) -> bool:
    """Return whether the finding on the slow loader advises to group by length already."""
    stage = limiting_stage(context.run.manifest.facts)
    return stage in ("collate", "pinning") and context.share(context.lost_ms("data_wait")) >= FEW_LINES_TO_CHANGE.share


def check_host(result: RunResult) -> Iterator[Finding]:
    """Yield a finding on the padding in the batches of a run without GPU work.

    Without padding, the operators' time is shorter at least by the padding's share. Attention saves more than this share.
    """
    padding_share, host = result.manifest.facts.loader_padding or 0.0, result.host
    if padding_share < MUCH_PADDING or host is None or not host.steps:
        return
    lost_ms = padding_share * host.operators_ms * host.of_the_step
    advice = Advice(
        f"{100 * padding_share:.0f} % of each batch is padding, and the operators compute on the padding",
        GROUP_BY_LENGTH,
        note="This is the padding's share of the operators' time. Batches of nearly equal lengths keep a little padding. Attention saves more than this share.",
        risk=LESS_RANDOM_RISK,
        changes=CHANGES,
    )
    judgement = Judgement(severity_of(padding_share * host.operators_ms / host.total_ms), "medium", ceiling_ms_per_step=lost_ms)
    yield finding_from(RULE.slug, Evidence(advice), judgement, RULE.explains)


def _largest_input(part: pd.DataFrame) -> dict[str, str | None]:
    """Return the largest input of a step's products, as evidence."""
    shapes = [shape for dims in part["flop_dims"] for shape in (dims or []) if numel(shape)]
    return {"largest_input": str(max(shapes, key=numel)) if shapes else None}


RULE = Rule(
    "shapes-vary",
    measure,
    reads=TRACE_SOURCES | {"shapes", "loader_timing"},
    requires=("steps", "shapes"),
    threshold=CALL_TO_CHECK,
    host_check=check_host,
)
