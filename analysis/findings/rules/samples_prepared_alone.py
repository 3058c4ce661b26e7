"""The samples of a batch are prepared on the GPU one after the other.

What it checks
    A batch is taken apart in the training's own code (``unbind``, which ``for image in batch`` calls, or a row selected for every sample), operators run
    on each sample, and ``torch.stack`` puts them together again. Nothing of it belongs to the model: no product, and no gradient flows through it.
Why it costs time
    Every sample launches each kernel of its own, for as little work as one sample has.
What to do
    Transform the batch as a whole, or prepare samples in the data loader's workers.
When it is wrong
    Where a row needs what the one before left, as a running mean without gradients does. Where samples differ in size until they were cropped, a batch of
    them must be padded first.
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
from sawtooth.analysis.findings.recorded.work import count_in_words, evidence_of, ms_per_step
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

FEWEST = 8  # samples
AXES = 3  # of a batch, at least: rows of numbers are no samples that somebody prepares
PRODUCTS = r"^aten::(?:linear|matmul|mm|addmm|bmm|baddbmm|\w*_cell|lstm|gru)$"  # what a model, or a recurrence, is made of
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
        "x = transform(batch)   # random for each sample of it: Kornia's augmentations",
    ),
    CodeChange(
        "DataLoader",
        "x = torch.stack([transform(image.cuda()) for image in images])",
        "dataset = ImageFolder(root, transform=transform)   # in the loader's workers",
    ),
)


@dataclass(frozen=True)
class _Loop:
    """What the calls from taking ``samples`` apart to joining them launched: rows of ``RuleContext.work``."""

    samples: int
    work: pd.DataFrame


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding when preparing the batch at once would save a part that is worth naming of the step."""
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
            f"{in_words(ms_per_step(work, steps))} of its work in each step",
            Action("Transform", "the batch as a whole", ", or prepare samples in the data loader's workers."),
            note="The loop's kernels as those of one sample over all the data: their work stays, the other launches go.",
            risk="A transform that is random draws once for a batch that it gets whole, unless it is made for batches.",
            changes=CHANGES,
        ),
        lost_ms=context.step_ms - predicted,
        edits=edits,
        rows=evidence_of(work, steps, ("operator",)),
        weighed_by="gain",
    )


def _loops(context: RuleContext, calls: pd.DataFrame) -> Iterator[_Loop]:
    """Yield the loops among a step's calls below one parent that take a batch apart and join it again."""
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
    """Return how many samples the batch has that a call takes apart, 0 where it is none."""
    shapes = json.loads(dims) if isinstance(dims, str) else []
    shape = shapes[0] if shapes and isinstance(shapes[0], list) else []
    return shape[0] if len(shape) >= AXES and isinstance(shape[0], int) else 0


def _loop(context: RuleContext, taken: int, joined: int, samples: int) -> _Loop | None:
    """Return what runs from the call that takes a batch of ``samples`` apart to the one that joins it; None where that computes, is learned, or is little."""
    inside = context.launches.begun_between(np.array([taken, joined], np.int64))
    work = context.work.iloc[np.sort(context.launches.by(inside))]
    learned = (
        len(context.launches.backward_of(inside)) >= samples
    )  # what needs no gradient shows the number of the next operator that does
    if learned or len(work) < samples or work["operator"].str.contains(PRODUCTS, na=False).any():
        return None
    return _Loop(samples, work)


RULE = Rule(
    "samples-prepared-alone",
    measure,
    reads=OF_TRACE | {"shapes"},
    explains=Explains(("launch_bound",), called="samples that are prepared one by one"),
    requires=("steps", "shapes"),
    bar=OTHER_CODE,
)
