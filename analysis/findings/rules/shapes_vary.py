"""Shapes change from step to step.

What it checks
    FLOPs of the profiled steps, and the input sizes of their first products. Without a GPU: the share of padding in a batch,
    which the recorder measures by the lengths of its samples.
Why it costs time
    With short batches the GPU waits for launches; long batches determine the memory that is needed. A compiler, cuDNN's
    search and the allocator start again for each shape. With several ranks, each step takes as long as the longest batch of
    all ranks.
What to do
    Batch by length, pad to a few lengths, or pack sequences up to a fixed number of tokens.
When it is wrong
    Lengths must differ, and the profile has too few steps to show how. Steps of several kinds (a generator and a critic) look
    the same.
References
    https://docs.pytorch.org/docs/stable/compile/programming_model.dynamic_shapes.html
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.judging import severity_of
from sawtooth.analysis.findings.loader_limits import MUCH_PADDING
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Judgement, Rule, advise
from sawtooth.analysis.findings.queries.shapes import LEAST_STEPS, unlike_steps
from sawtooth.analysis.findings.recorded.counted_operations import numel
from sawtooth.analysis.run.model import Action, CodeChange, Finding, RunResult
from sawtooth.analysis.units import significant

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
    """Yield an info finding if the FLOPs of steps with the same operators differ by more than UNLIKE."""
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
                "; mark changing dimensions dynamic before compiling. Profile more steps.",
            ),
            note="Not predicted: it depends on the lengths of the whole data set.",
            risk="Sorted batches are less random; shuffle among batches.",
            changes=CHANGES,
        ),
        confidence="high" if len(flops) > LEAST_STEPS else "medium",
        severity="info",
        rows=evidence,
    )


def check_host(result: RunResult) -> Iterator[Finding]:
    """Yield a finding on the padding in the batches of a run without GPU work.

    The operators compute on padding as on everything else: their time shrinks at least by its share, because attention
    shrinks more.
    """
    share, host = result.manifest.facts.loader_padding or 0.0, result.host
    if share < MUCH_PADDING or host is None or not host.steps:
        return
    lost_ms = share * host.operators_ms * host.of_the_step
    advice = Advice(
        f"{100 * share:.0f} % of each batch is padding, and the operators compute on all of it",
        Action("Batch", "samples of similar length together", ", or pack sequences up to a fixed number of tokens."),
        note="The padding's share of the operators' time. Batches of nearly equal lengths keep a little padding; attention saves more than its share.",
        risk="Sorted batches are less random; shuffle among batches.",
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
    of_the_host=check_host,
)
