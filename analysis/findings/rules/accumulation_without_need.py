"""A step accumulates gradients of micro-batches that would fit into the memory as one batch.

What it checks
    Forward and backward passes of equal shapes that follow one another in a step, whose gradients are added up, and whether the
    memory suffices for a larger micro-batch.
Why it costs time
    The host launches all kernels once for every micro-batch, and small kernels do not fill the GPU.
What to do
    Run fewer, larger micro-batches. The sum of the gradients stays the same.
When it is wrong
    Batch norms compute their statistics per micro-batch, so they change. There is no finding if shapes differ from one micro-batch
    to the next, or if ranks communicate after each one. The rule accumulation-syncs gives advice for the latter.
References
    https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sawtooth.analysis.findings.batch.accumulation import MicroBatch, accumulated_steps, merging_edits, micro_batches_that_fit
from sawtooth.analysis.findings.batch.sample_loop import sample_loop
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import REST_OF_LAUNCHES, TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.findings.queries.telemetry import memory_use
from sawtooth.analysis.findings.recorded.counted_operations import evidence_of
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_memory, in_words

CHANGES = (
    CodeChange(
        "PyTorch",
        "for x, y in zip(inputs.chunk(4), labels.chunk(4)):\n    (loss_fn(model(x), y) / 4).backward()\noptimizer.step()",
        "loss_fn(model(inputs), labels).backward()\noptimizer.step()",
    ),
    CodeChange(
        "Lightning",
        "Trainer(accumulate_grad_batches=4)",
        "Trainer(accumulate_grad_batches=1)   # and a batch_size 4 times as large",
    ),
    CodeChange(
        "Transformers",
        "TrainingArguments(per_device_train_batch_size=8, gradient_accumulation_steps=4)",
        "TrainingArguments(per_device_train_batch_size=32, gradient_accumulation_steps=1)",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if fewer, larger micro-batches would save a relevant share of the step."""
    communication = context.run.communication
    if (communication is not None and communication.pipeline) or context.once(sample_loop) is not None:
        return
    steps = accumulated_steps(context)
    number = len(steps[0]) if steps else 1
    remaining = micro_batches_that_fit(context, number)
    if number == remaining:
        return
    edits = merging_edits(context, steps, remaining)
    predicted_ms = context.predict_ms(edits)
    if predicted_ms is None or context.step_ms is None or context.is_negligible(context.step_ms - predicted_ms):
        return
    memory, samples = memory_use(context), _samples(context, steps[0][0])
    rows = context.work.iloc[np.concatenate([micro_batch.forward for step in steps for micro_batch in step])]
    of_samples = f" of {samples}" if samples else ""
    free = f", and {in_memory(memory[1] - memory[0])} of memory are free" if memory is not None else ""
    yield Evidence(
        Advice(
            f"Each step accumulates the gradients of {number} micro-batches{of_samples}{free}: one pass costs {in_words(context.step_ms / number)} of each step",
            Action("Run", _new_micro_batches(number, remaining, samples), ". The sum of their gradients stays the same."),
            note=f"Predicted with the launches of {'one micro-batch' if remaining == 1 else f'{remaining} micro-batches'}, and kernel times for {number // remaining} times as many samples.",
            risk=f"Batch norms then use the statistics of more samples. Activations take up to {number // remaining} times as much memory{'' if memory is not None else ', and the memory in use is not recorded'}.",
            changes=CHANGES,
        ),
        lost_ms=context.step_ms - predicted_ms,
        edits=edits,
        rest=REST_OF_LAUNCHES,
        rows=evidence_of(rows, context.work_steps, ("operator",)),
        threshold_for="gain",
        confidence="high" if memory is not None else "low",
    )


def _new_micro_batches(number: int, remaining: int, samples: int | None) -> str:
    """Return what to run instead of ``number`` micro-batches of ``samples``."""
    fewer = "one" if remaining == 1 else str(remaining)
    if samples:
        return f"{fewer} micro-batch{'' if remaining == 1 else 'es'} of {samples * number // remaining} instead of {number} of {samples}"
    return f"{fewer} larger micro-batch{'' if remaining == 1 else 'es'} instead of {number}"


def _samples(context: RuleContext, micro_batch: MicroBatch) -> int | None:
    """Return the samples of a micro-batch by its first convolution or embedding; None if there is none."""
    return next((size for row in context.work.iloc[micro_batch.forward].itertuples() if (size := _batch_of(row))), None)


def _batch_of(row: Any) -> int | None:
    dims: Sequence[Any] = row.flop_dims or row.dims or []
    if row.category == "conv" and dims and isinstance(dims[0], list) and len(dims[0]) > 2:
        return int(dims[0][0])
    if (
        row.operator in ("aten::embedding", "aten::index_select")
        and len(dims) > 1
        and isinstance(dims[1], list)
        and len(dims[1]) == 2
    ):
        return int(dims[1][0])
    return None


RULE = Rule(
    "accumulation-without-need",
    measure,
    reads=TRACE_SOURCES | {"shapes", "allocations", "telemetry"},
    requires=("steps", "shapes"),
    explains=Explains(
        ("launch_bound",), called="micro-batches run one by one", topics=frozenset({"memory"}), sets=("micro_batches",)
    ),
    threshold=FEW_LINES_TO_CHANGE,
)
