"""Shapes change from step to step, or batches contain padding.

What it checks
    The share of padding in a batch, which the recorder measures by the lengths of its samples. If there is little padding, the
    rule compares the FLOPs of the profiled steps.
Why it costs time
    Kernels compute on padding as on everything else. With short batches the GPU waits for launches; long batches determine
    the memory that is needed. A compiler, cuDNN's search and the allocator start again for each shape. With several ranks,
    each step takes as long as the longest batch of all ranks.
What to do
    Batch by length, pad to a few lengths, or pack sequences up to a fixed number of tokens.
When it is wrong
    The model skips padding in a way that the operators' names do not show. Or lengths must differ, and the profile has too few
    steps to show how. A loop with steps of several kinds, such as a generator's and a critic's, looks the same.
References
    https://docs.pytorch.org/docs/stable/compile/programming_model.dynamic_shapes.html
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from sawtooth.analysis.findings.batch.step import kernels_at
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.judging import reaches, severity_of
from sawtooth.analysis.findings.loader_limits import MUCH_PADDING, stage_of
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Judgement, Rule, advise
from sawtooth.analysis.findings.policy import CALL_TO_LOOK_AT, FEW_LINES
from sawtooth.analysis.findings.queries.shapes import MIN_STEPS, unlike_steps
from sawtooth.analysis.findings.recorded.counted_operations import evidence_of, ms_per_step, numel
from sawtooth.analysis.replay.edits import ScaledOps
from sawtooth.analysis.run.model import Action, CodeChange, Finding, RunResult
from sawtooth.analysis.units import in_words, significant

# Operators of models that skip padding: attention over packed sequences, nested tensors, packed recurrent layers.
WITHOUT_PADDING = r"(?i)varlen|jagged|unpad_input|^aten::(_nested_|_pack_padded_sequence)"
# Kernels that take longer with this many times the tokens grow with the number of tokens. Doubled sizes keep their alignment.
LONGER = 2.0
GROUPED = Action("Batch", "samples of similar length together", ", or pack sequences up to a fixed number of tokens.")
LESS_RANDOM = "Sorted batches are less random; shuffle among batches."

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
    """Yield a finding on padding, or else an info finding if the FLOPs of like steps differ too much."""
    padding = _padding(context)
    if padding is not None and reaches(padding, context.step, CALL_TO_LOOK_AT):
        yield padding
        return
    flops = unlike_steps(context)
    if flops is None:
        return
    evidence = [
        {"step": int(step), "gflop": float(flops[step]) / 1e9, "ms": float(part["dur_ns"].sum()) / 1e6, **_largest(part)}
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
            risk=LESS_RANDOM,
            changes=CHANGES,
        ),
        confidence="high" if len(flops) > MIN_STEPS else "medium",
        severity="info",
        rows=evidence,
    )


def _padding(context: RuleContext) -> Evidence | None:
    """Return the evidence that kernels compute on padding; None if there is little, or the model skips it.

    The gain is at most the padding's share of the kernels that grow with the number of tokens. It is also at most what the
    replay saves when these kernels shrink by that share: a host or loader that limits the step leaves less.
    """
    share = context.run.manifest.facts.loader_padding or 0.0
    if share < MUCH_PADDING or context.recording.named(WITHOUT_PADDING) or _grouped_for_the_loader(context):
        return None
    kernels = context.work[(context.work["kind"] == "kernel") & (context.work["category"] != "communication")]
    rows = kernels[kernels_at(context, kernels, LONGER).dur_ns > kernels["dur_ns"].to_numpy()]
    saved_ms = context.step.gain_ms([ScaledOps(tuple(rows["gpu_op_id"].tolist()), 1 - share)]) if len(rows) else None
    if saved_ms is None:
        return None
    grows_ms = ms_per_step(rows, context.work_steps)
    most_ms = max(min(share * grows_ms, saved_ms), 0.0)
    return Evidence(
        Advice(
            f"{100 * share:.0f} % of each batch is padding, and the model's kernels compute on all of it",
            GROUPED,
            note=f"This is an upper limit: the padding's share of the kernels that grow with length ({in_words(grows_ms)} of each step). It is less if the "
            "host or the loader limits the step. Optimizer, communication and copies stay. Batches of nearly equal lengths keep a little padding.",
            risk=LESS_RANDOM,
            changes=CHANGES,
        ),
        lost_ms=most_ms,
        cost_ms=most_ms,
        at_most="warning",  # Only an upper limit is known.
        rows=evidence_of(rows, context.work_steps, ("operator",)),
    )


def _grouped_for_the_loader(context: RuleContext) -> bool:
    """Return whether the finding on the slow loader advises to group by length already."""
    stage = stage_of(context.run.manifest.facts)
    return stage in ("collate", "pinning") and context.share(context.lost_ms("data_wait")) >= FEW_LINES.share


def check_host(result: RunResult) -> Iterator[Finding]:
    """Yield a finding on the padding in the batches of a run without GPU work.

    Operators compute on padding as on everything else. Without it, their time shrinks at least by the padding's share;
    attention shrinks more.
    """
    share, host = result.manifest.facts.loader_padding or 0.0, result.host
    if share < MUCH_PADDING or host is None or not host.steps:
        return
    lost_ms = share * host.operators_ms * host.of_the_step
    advice = Advice(
        f"{100 * share:.0f} % of each batch is padding, and the operators compute on all of it",
        GROUPED,
        note="This is the padding's share of the operators' time. Batches of nearly equal lengths keep a little padding. Attention saves more than this share.",
        risk=LESS_RANDOM,
        changes=CHANGES,
    )
    judgement = Judgement(severity_of(share * host.operators_ms / host.total_ms), "medium", ceiling_ms_per_step=lost_ms)
    yield advise(RULE.slug, Evidence(advice), judgement, RULE.explains)


def _largest(part: pd.DataFrame) -> dict[str, str | None]:
    """Return the largest input of a step's products, as evidence."""
    shapes = [shape for dims in part["flop_dims"] for shape in (dims or []) if numel(shape)]
    return {"largest_input": str(max(shapes, key=numel)) if shapes else None}


RULE = Rule(
    "shapes-vary",
    measure,
    reads=OF_TRACE | {"shapes", "loader_timing"},
    requires=("steps", "shapes"),
    threshold=CALL_TO_LOOK_AT,
    of_the_host=check_host,
)
