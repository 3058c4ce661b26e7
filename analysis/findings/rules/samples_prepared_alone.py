"""The samples of a batch are prepared on the GPU one after the other.

What it checks
    The training's own code splits a batch into samples, runs operators on each, and ``torch.stack`` joins them again. It
    splits with ``unbind``, which ``for image in batch`` calls, or by selecting a row for every sample. The operators do not
    belong to the model: they contain no product, and no gradient flows through them.
Why it costs time
    Every sample launches each kernel separately, with only one sample's work.
What to do
    Transform the batch as a whole, or prepare samples in the data loader's workers.
When it is wrong
    A row needs the result of the row before, for example a running mean without gradients. If samples differ in size before
    they are cropped, a batch of them must be padded first.
References
    https://docs.pytorch.org/vision/stable/transforms.html (transforms of batches)
    https://kornia.readthedocs.io/en/latest/augmentation.html (random for each sample of a batch)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.findings.queries.passes import at_once
from sawtooth.analysis.findings.recorded.counted_operations import count_in_words, evidence_of, ms_per_step
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

FEWEST = 8  # A batch must have at least this many samples.
AXES = 3  # Minimum number of dimensions of a batch. Rows of numbers are usually not samples to prepare.
# These operators belong to a model or to a recurrence.
PRODUCTS = r"^aten::(?:linear|matmul|mm|addmm|bmm|baddbmm|\w*_cell|lstm|gru)$"
TAKEN, JOINED = ("aten::unbind", "aten::select"), "aten::stack"
_OWN = f"""
SELECT t.step, o.thread_id, o.parent_id, o.cpu_op_id, o.name, s.input_dims FROM named_cpu_ops o
    JOIN steps t ON t.device = ? AND t.counted AND o.start_ns >= t.host_start_ns AND o.start_ns < t.host_end_ns
    LEFT JOIN named_cpu_ops p ON p.cpu_op_id = o.parent_id
    LEFT JOIN signatures s ON s.signature_id = o.signature_id
    WHERE o.kind = 'op' AND p.kind IS DISTINCT FROM 'op' AND o.name IN {(*TAKEN, JOINED)} ORDER BY o.start_ns, o.cpu_op_id"""

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
    if not context.recording.named(f"^{JOINED}$"):
        return
    rows = context.recording.frame(_OWN, [context.rank.device])
    loops = [
        loop for _, part in rows.groupby(["step", "thread_id", "parent_id"], dropna=False) for loop in _loops(context, part)
    ]
    edits = [edit for loop in loops for edit in at_once(loop.work, loop.samples)]
    predicted = context.predict_ms(edits) if edits else None
    if predicted is None or context.step_ms is None or context.is_trifle(context.step_ms - predicted):
        return
    work, steps = pd.concat([loop.work for loop in loops]), context.work_steps
    yield Evidence(
        Advice(
            f"{max(loop.samples for loop in loops)} samples of a batch are prepared on the GPU one by one: {count_in_words(work, steps)} and "
            f"{in_words(ms_per_step(work, steps))} of GPU work in each step",
            Action("Transform", "the batch as a whole", ", or prepare samples in the data loader's workers."),
            note="Predicted with one iteration that does the work of all samples. The launches of the other iterations are removed.",
            risk="A random transform draws only once for a whole batch, unless it is made for batches.",
            changes=CHANGES,
        ),
        lost_ms=context.step_ms - predicted,
        edits=edits,
        rows=evidence_of(work, steps, ("operator",)),
        threshold_for="gain",
    )


def _loops(context: RuleContext, calls: pd.DataFrame) -> Iterator[_Loop]:
    """Yield the loops among a step's calls with one parent that split a batch and join it again."""
    times = calls.groupby(["name", "input_dims"])["cpu_op_id"].count()
    taken, samples = None, 0
    for call in calls.itertuples():
        if call.name == JOINED:
            if taken is not None and (loop := _loop(context, taken, int(call.cpu_op_id), samples)) is not None:
                yield loop
            taken = None
        elif (
            taken is None
            and (rows := _samples(call.input_dims)) >= FEWEST
            and (call.name == TAKEN[0] or times[call.name, call.input_dims] >= rows)
        ):
            taken, samples = int(call.cpu_op_id), rows


def _samples(dims: object) -> int:
    """Return the number of samples of the batch that a call splits, 0 if it is not a batch."""
    shapes = json.loads(dims) if isinstance(dims, str) else []
    shape = shapes[0] if shapes and isinstance(shapes[0], list) else []
    return shape[0] if len(shape) >= AXES and isinstance(shape[0], int) else 0


def _loop(context: RuleContext, taken: int, joined: int, samples: int) -> _Loop | None:
    """Return the loop from the call that splits a batch of ``samples`` to the one that joins it.

    None if it contains products, if gradients flow through it, or if it has too few launches.
    """
    inside = context.launches.begun_between(np.array([taken, joined], np.int64))
    work = context.work.iloc[np.sort(context.launches.by(inside))]
    # Some backward operators may be found without any gradient: an operator without one has the sequence number of the next
    # operator that has one.
    learned = len(context.launches.backward_of(inside)) >= samples
    if learned or len(work) < samples or work["operator"].str.contains(PRODUCTS, na=False).any():
        return None
    return _Loop(samples, work)


RULE = Rule(
    "samples-prepared-alone",
    measure,
    reads=OF_TRACE | {"shapes"},
    explains=Explains(("launch_bound",), called="samples that are prepared one by one"),
    requires=("steps", "shapes"),
    threshold=OTHER_CODE,
)
