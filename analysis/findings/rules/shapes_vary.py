"""Steps work on other shapes each time.

What it checks
    FLOPs of the profiled steps, and the sizes of the inputs that their first products take.
Why it costs time
    Short batches leave the GPU waiting for launches, long ones decide how much memory is needed; a compiler, cuDNN's search and the allocator begin
    anew with each shape, and with several ranks each step takes as long as the longest batch of all.
What to do
    Batch by length, pad to a few lengths, or pack sequences one after the other up to a fixed number of tokens.
When it is wrong
    Where lengths must differ and the profile holds too few steps to say how. Steps of several kinds (a generator and a critic) look the same.
References
    https://docs.pytorch.org/docs/stable/compile/programming_model.dynamic_shapes.html
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.queries.shapes import LEAST_STEPS, unlike_steps
from sawtooth.analysis.findings.recorded.work import numel
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import significant

CHANGES = (
    CodeChange(
        "PyTorch",
        "DataLoader(dataset, …, shuffle=True, collate_fn=pad)",
        "DataLoader(dataset, batch_sampler=by_length(dataset, tokens=32768), collate_fn=pad)   # batches of about as many tokens",
    ),
    CodeChange("Transformers", "TrainingArguments()", "TrainingArguments(group_by_length=True)"),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield information when a step's FLOPs are more than UNLIKE times another's, and the same operators took other shapes in it."""
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


def _largest(part: pd.DataFrame) -> dict[str, str | None]:
    """Return the largest input of a step's products, as evidence."""
    shapes = [shape for dims in part["flop_dims"] for shape in (dims or []) if numel(shape)]
    return {"largest_input": str(max(shapes, key=numel)) if shapes else None}


RULE = Rule(
    "shapes-vary",
    measure,
    reads=OF_TRACE | {"shapes"},
    requires=("steps", "shapes"),
)
