"""The samples of a batch go through the model one by one.

What it checks
    Weights of linear and convolution layers that are used many times per step, each time with a batch of one. The number of
    gradients that autograd accumulates shows how many weights of a shape the model has.
Why it costs time
    Every sample launches all kernels of the model, forward and backward, with too little work to fill the GPU. After every use
    of a weight, the backward pass adds a gradient of the weight's full size.
What to do
    Stack the samples and call the model once. Pad samples of different sizes and mask the padding. If the code must handle
    one sample, use ``torch.func.vmap``.
When it is wrong
    A call needs the result of the previous call, as in autoregressive decoding, a simulation, or a recurrence with a batch of one.
    A trace does not show where a tensor comes from. The confidence is low if all products are matrix × vector, or if the loop
    reads values from the GPU. It is medium if the size of the input rises and falls from call to call: a state keeps its size.
    Samples of very different sizes cannot be stacked well.
References
    https://docs.pytorch.org/docs/stable/generated/torch.vmap.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.batch.sample_loop import SampleLoop, sample_loop
from sawtooth.analysis.findings.batch.step import kernels_for_batch
from sawtooth.analysis.findings.builders import without_freeing
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.findings.queries.calls import operators
from sawtooth.analysis.findings.queries.passes import passes
from sawtooth.analysis.findings.recorded.counted_operations import count_in_words, evidence_of, ms_per_step
from sawtooth.analysis.findings.recorded.source_lines import common_line
from sawtooth.analysis.replay.edits import Edit, WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

HOST_READ_OPERATORS = "^aten::_local_scalar_dense$"
MIN_READS_PER_SAMPLE = 0.5  # A loop that reads a value after at least every second sample probably depends on this value.
MAY_DEPEND = "If one call needs the result of the previous call, the samples cannot be stacked."

CHANGES = (
    CodeChange(
        "PyTorch",
        "losses = []\nfor x, y in zip(batch, targets):\n    losses.append(loss(model(x[None]), y[None]))\ntorch.stack(losses).mean().backward()",
        "loss(model(batch), targets).backward()   # samples of several sizes: pad_sequence and a mask",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if calling the model once would save a relevant share of the step."""
    loop = context.once(sample_loop)
    if loop is None:
        return
    work = pd.concat([_launched_ops(context, part["cpu_op_id"].tolist()) for _, part in loop.calls.groupby("step")])
    # In a damaged trace, autograd sequence numbers repeat, so a kernel may appear in the passes of two steps.
    work = work[~work.index.duplicated()]
    edits = _stacking_edits(context, work, loop.samples)
    predicted_ms = context.predict_ms(edits) if edits else None
    if predicted_ms is None or context.step_ms is None or context.is_negligible(context.step_ms - predicted_ms):
        return
    steps = context.work_steps
    reads_each = operators(context, HOST_READ_OPERATORS).count_per_step >= MIN_READS_PER_SAMPLE * loop.samples
    may_depend = not loop.sizes_vary and (loop.vectors or reads_each)
    loop_line = _loop_line(context, loop)
    yield Evidence(
        Advice(
            f"{loop.samples} samples of a batch go through the model one by one{f', at {loop_line}' if loop_line else ''}: {count_in_words(work, steps)} and "
            f"{in_words(ms_per_step(work, steps))} of the GPU's work in each step",
            Action("Stack", "the samples and call the model once for all of them", "; pad and mask where their sizes differ."),
            note=f"Predicted with the kernels of one sample at {loop.samples} times the batch, without the other samples' launches and gradient sums."
            + (f" {MAY_DEPEND}" if may_depend else ""),
            risk="Batch norm then uses statistics of the whole batch; results differ by rounding.",
            changes=CHANGES,
        ),
        lost_ms=context.step_ms - predicted_ms,
        edits=edits,
        confidence="low" if may_depend else "medium",
        severity="warning" if may_depend else None,
        rows=evidence_of(work, steps, ("operator",)),
        threshold_for="gain",
    )


def _launched_ops(context: RuleContext, calls: Sequence[int]) -> pd.DataFrame:
    """Return the GPU operations between a step's first and last model call, forward and backward.

    The column ``backward`` is True for the backward passes.
    """
    both_passes = passes(context, context.launches.operators_begun_between(np.array(calls, np.int64)).tolist())
    return pd.concat([both_passes.forward.assign(backward=False), both_passes.backward.assign(backward=True)])


def _stacking_edits(context: RuleContext, work: pd.DataFrame, samples: int) -> list[Edit]:
    """Return the edits that run one sample's kernels with ``samples`` times the batch and no others."""
    kept_ids: list[int] = []
    removed: list[int] = []
    for _, part in work.sort_values("start_ns").groupby(["step", "backward", "operator"], dropna=False):
        ids = part["gpu_op_id"].to_numpy(np.int64)
        # Sums of gradients occur samples − 1 times, because the first use only stores its gradient. All sums are removed.
        if len(ids) >= samples - 1:
            per_sample = len(ids) // samples
            # A middle sample is kept, because cold caches make the first sample's launches slow.
            first = samples // 2 * per_sample
            kept_ids += ids[first : first + per_sample].tolist()
            removed += np.delete(ids, slice(first, first + per_sample)).tolist()
    if not removed:
        return []
    rows = context.work[context.work["gpu_op_id"].isin(kept_ids)]
    stacked = [kernels_for_batch(context, rows, samples)] if len(rows) else []
    return [*stacked, *without_freeing(context, removed), WithoutOps(tuple(removed))]


def _loop_line(context: RuleContext, loop: SampleLoop) -> str | None:
    """Return the line that calls the model sample by sample; None if the trace has no Python stacks."""
    if not context.rank.trace.with_stack:
        return None
    calls = loop.calls[loop.calls["step"] == loop.calls["step"].min()]["cpu_op_id"].to_numpy(np.int64)
    work = context.work
    launched = [work.iloc[context.launches.by(np.array([op], np.int64))] for op in (calls[0], calls[-1])]
    starts = [int(rows["start_ns"].min()) for rows in launched if len(rows)]
    return common_line(context.recording, context.rank.device, starts) if len(starts) == len(launched) else None


RULE = Rule(
    "samples-one-by-one",
    measure,
    reads=TRACE_SOURCES | {"shapes"},
    explains=Explains(("launch_bound",), called="samples that go through the model one by one"),
    requires=("steps", "shapes"),
    threshold=OTHER_CODE,
)
