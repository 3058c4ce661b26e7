"""The samples of a batch are prepared on the GPU one after the other.

What it checks
    Code that splits a batch into samples, runs operators on each sample, and joins the samples with ``torch.stack``. It splits
    with ``unbind``, which ``for image in batch`` calls, or by selecting a row for every sample. Operators of the model do not
    count. Such operators contain products, or gradients flow through them.
Why it costs time
    Every sample launches each kernel separately, with only one sample's work.
What to do
    Transform the batch as a whole, or prepare samples in the data loader's workers.
When it is wrong
    A row needs the result of the row before, for example a running mean without gradients. If the samples have different sizes
    before they are cropped, pad them to a batch first.
References
    https://docs.pytorch.org/vision/stable/transforms.html (transforms of batches)
    https://kornia.readthedocs.io/en/latest/augmentation.html (random numbers for each sample of a batch)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.findings.queries.passes import merged_body_edits
from sawtooth.analysis.findings.recorded.counted_operations import count_in_words, evidence_of, ms_per_step
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

MIN_SAMPLES = 8  # A batch must have at least this many samples.
MIN_DIMENSIONS = 3  # Of a batch. The rows of a matrix are usually not samples to prepare.
# Operators of a model or of a recurrence.
MODEL_OPERATORS = r"^aten::(?:linear|matmul|mm|addmm|bmm|baddbmm|\w*_cell|lstm|gru)$"
SPLITS, JOINS = ("aten::unbind", "aten::select"), "aten::stack"
_SPLITS_AND_JOINS = f"""
SELECT t.step, o.thread_id, o.parent_id, o.cpu_op_id, o.name, s.input_dims FROM named_cpu_ops o
    JOIN steps t ON t.device = ? AND t.counted AND o.start_ns >= t.host_start_ns AND o.start_ns < t.host_end_ns
    LEFT JOIN named_cpu_ops p ON p.cpu_op_id = o.parent_id
    LEFT JOIN signatures s ON s.signature_id = o.signature_id
    WHERE o.kind = 'op' AND p.kind IS DISTINCT FROM 'op' AND o.name IN {(*SPLITS, JOINS)} ORDER BY o.start_ns, o.cpu_op_id"""

CHANGES = (
    CodeChange(
        "PyTorch",
        "x = torch.stack([transform(image) for image in batch])",
        "x = transform(batch)   # Kornia's augmentations draw random numbers for each sample",
    ),
    CodeChange(
        "DataLoader",
        "x = torch.stack([transform(image.cuda()) for image in images])",
        "dataset = ImageFolder(root, transform=transform)   # in the loader's workers",
    ),
)


@dataclass(frozen=True)
class _Loop:
    """Launches between splitting a batch into ``samples`` and joining it: rows of ``RuleContext.work``."""

    samples: int
    work: pd.DataFrame


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if preparing the batch at once would save a relevant share of the step."""
    if not context.recording.named(f"^{JOINS}$"):
        return
    rows = context.recording.frame(_SPLITS_AND_JOINS, [context.rank.device])
    loops = [
        loop for _, part in rows.groupby(["step", "thread_id", "parent_id"], dropna=False) for loop in _loops(context, part)
    ]
    edits = [edit for loop in loops for edit in merged_body_edits(loop.work, loop.samples)]
    predicted_ms = context.predict_ms(edits) if edits else None
    if predicted_ms is None or context.step_ms is None or context.is_negligible(context.step_ms - predicted_ms):
        return
    work, steps = pd.concat([loop.work for loop in loops]), context.work_steps
    yield Evidence(
        Advice(
            f"{max(loop.samples for loop in loops)} samples of a batch are prepared on the GPU one by one: {count_in_words(work, steps)} and "
            f"{in_words(ms_per_step(work, steps))} of GPU work in each step",
            Action("Transform", "the batch as a whole", ", or prepare samples in the data loader's workers."),
            note="Predicted with one iteration for all samples. The launches of the other iterations are removed.",
            risk="A random transform that is not made for batches draws only one random number for the whole batch.",
            changes=CHANGES,
        ),
        lost_ms=context.step_ms - predicted_ms,
        edits=edits,
        rows=evidence_of(work, steps, ("operator",)),
        threshold_for="gain",
    )


def _loops(context: RuleContext, calls: pd.DataFrame) -> Iterator[_Loop]:
    """Yield the loops among a step's calls with one parent that split a batch and join it again."""
    repetitions = calls.groupby(["name", "input_dims"])["cpu_op_id"].count()
    split, samples = None, 0
    for call in calls.itertuples():
        if call.name == JOINS:
            if split is not None and (loop := _loop(context, split, int(call.cpu_op_id), samples)) is not None:
                yield loop
            split = None
        elif split is None and (rows := _samples(call.input_dims)) >= MIN_SAMPLES:
            takes_all_rows = call.name == SPLITS[0] or repetitions[call.name, call.input_dims] >= rows
            if takes_all_rows:
                split, samples = int(call.cpu_op_id), rows


def _samples(dims: object) -> int:
    """Return the number of samples of the batch that a call splits, 0 if it is not a batch."""
    shapes = json.loads(dims) if isinstance(dims, str) else []
    shape = shapes[0] if shapes and isinstance(shapes[0], list) else []
    return shape[0] if len(shape) >= MIN_DIMENSIONS and isinstance(shape[0], int) else 0


def _loop(context: RuleContext, split: int, join: int, samples: int) -> _Loop | None:
    """Return the loop from the call ``split``, which splits a batch of ``samples``, to the call ``join``.

    None if the loop contains operators of the model, if gradients flow through it, or if it has too few launches.
    """
    inside = context.launches.operators_begun_between(np.array([split, join], np.int64))
    work = context.work.iloc[np.sort(context.launches.by(inside))]
    # A few backward launches do not show gradients, because an operator without a gradient has the sequence number of the next
    # operator that has one.
    has_gradients = len(context.launches.launched_in_backward_of(inside)) >= samples
    if has_gradients or len(work) < samples or work["operator"].str.contains(MODEL_OPERATORS, na=False).any():
        return None
    return _Loop(samples, work)


RULE = Rule(
    "samples-prepared-alone",
    measure,
    reads=TRACE_SOURCES | {"shapes"},
    explains=Explains(("launch_bound",), called="samples that are prepared one by one"),
    requires=("steps", "shapes"),
    threshold=OTHER_CODE,
)
