"""The samples of a batch go through the model one by one.

What it checks
    Weights of layers and convolutions that are applied many times in a step, each time to a batch of one: autograd accumulates one gradient of
    each, however often it was used.
Why it costs time
    Every sample launches the whole model's kernels, forward and backward, for too little work to fill the GPU, and every use of a weight adds another
    gradient of all of it to the last one.
What to do
    Stack the samples and call the model once; pad samples of several sizes and mask the padding. ``torch.func.vmap`` where the code of one sample
    must stay.
When it is wrong
    Where a call needs what the call before it left: words made one after the other, a simulation, a recurrence over a batch of one. A trace does not
    tell what a tensor is made from; products with vectors alone, and loops that read from the GPU, may be such. So may samples of very unlike sizes.
References
    https://docs.pytorch.org/docs/stable/generated/torch.vmap.html
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.batch.memory import Shape, parameters_of
from sawtooth.analysis.findings.batch.step import kernels_at
from sawtooth.analysis.findings.builders import without_freeing
from sawtooth.analysis.findings.queries.calls import operators
from sawtooth.analysis.findings.queries.passes import passes
from sawtooth.analysis.findings.rule import Rule, RuleContext
from sawtooth.analysis.findings.source_lines import common_line
from sawtooth.analysis.findings.work import AUTOGRAD_NODE, evidence_of, ms_per_step
from sawtooth.analysis.replay.edits import Edit, WithoutOps
from sawtooth.analysis.run.model import CodeChange, Explains, Finding
from sawtooth.analysis.units import in_words

FEWEST = 6  # samples: a few views of each are a model's own (two crops, three of a triplet)
WORTH_NAMING = 0.05  # other code for the loop: worth it from 5 % of the step
ALONE = 0.9  # of the calls must be on a batch of one
READS = "^aten::_local_scalar_dense$"
CELLS = r"^aten::(lstm|gru|rnn_tanh|rnn_relu)_cell$"
MAY_DEPEND = "Where a sample's call needs what the one before left, they cannot be done at once."

CHANGES = (
    CodeChange(
        "PyTorch",
        "losses = []\nfor x, y in zip(batch, targets):\n    losses.append(loss(model(x[None]), y[None]))\ntorch.stack(losses).mean().backward()",
        "loss(model(batch), targets).backward()   # samples of several sizes: pad_sequence and a mask",
    ),
)
_LAYERS = f"""
SELECT o.cpu_op_id, t.step, s.input_dims FROM named_cpu_ops o JOIN signatures s USING (signature_id)
    JOIN steps t ON t.device = ? AND t.counted AND o.start_ns >= t.host_start_ns AND o.start_ns < t.host_end_ns
    LEFT JOIN named_cpu_ops p ON p.cpu_op_id = o.parent_id
    WHERE regexp_matches(o.name, '^aten::(linear|conv[123]d|conv_transpose[123]d)$') AND NOT coalesce(starts_with(p.name, '{AUTOGRAD_NODE}') OR p.name = o.name, false) -- autocast calls the operator again inside itself
    ORDER BY o.start_ns, o.cpu_op_id"""


@dataclass(frozen=True)
class Loop:
    """Calls of layers (cpu_op_id, step) that a loop over ``samples`` makes in each step; ``vectors``: every input is no more than a row."""

    calls: pd.DataFrame
    samples: int
    vectors: bool


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding when calling the model once would save WORTH_NAMING of the step."""
    loop = _loop(context)
    if loop is None or operators(context, CELLS).count:
        return
    launched = [_launched(context, part["cpu_op_id"].tolist()) for _, part in loop.calls.groupby("step")]
    work = pd.concat(launched)
    work = work[~work.index.duplicated()]  # numbers by which a damaged trace joins the passes of several steps
    edits = _at_once(context, work, loop.samples)
    predicted = context.predict_ms(edits) if edits else None
    if predicted is None or context.step_ms is None or context.share(context.step_ms - predicted) < WORTH_NAMING:
        return
    steps = context.work_steps
    unsure = loop.vectors or operators(context, READS).count >= loop.samples / 2
    place = _place(context, loop)
    yield context.finding(
        RULE.slug,
        f"{loop.samples} samples of a batch go through the model one by one{f', at {place}' if place else ''}: {len(work) / steps:,.0f} kernels and "
        f"{in_words(ms_per_step(work, steps))} of the GPU's work in each step",
        "Stack the samples and call the model once for all of them; pad and mask where their sizes differ.",
        ceiling_ms=context.step_ms - predicted,
        edits=edits,
        confidence="low" if unsure else "medium",
        severity="warning" if unsure else None,
        note=f"The kernels of one sample, at {loop.samples} times their batch; the launches of the others go, and so do the sums of their gradients."
        + (f" {MAY_DEPEND}" if unsure else ""),
        risk="Batch norms then see the whole batch; sums run in another order.",
        changes=CHANGES,
        evidence=evidence_of(work, steps, ("operator",)),
    )


def _loop(context: RuleContext) -> Loop | None:
    """Return the loop that most layers are called in, None where none repeats FEWEST times on batches of one."""
    parameters = parameters_of(context.recording, context.rank.device)
    if not parameters:
        return None
    rows = context.recording.frame(_LAYERS, [context.rank.device])
    rows = rows.assign(shapes=[_shapes(dims) for dims in rows["input_dims"]])
    known = [shapes is not None and shapes[1] in parameters for shapes in rows["shapes"]]
    rows = rows[np.array(known, dtype=bool)]  # a list would choose columns where there are no rows, as under torch.compile
    steps = max(rows["step"].nunique(), 1)
    rows = rows.assign(weight=[shapes[1] for shapes in rows["shapes"]])
    used = {weight: len(part) / steps / parameters[weight] for weight, part in rows.groupby("weight", sort=False)}
    often = rows[rows["weight"].map(used).astype(float) >= FEWEST]
    if often.empty:
        return None
    samples = round(float(np.median(often["weight"].map(used).astype(float))))
    calls = often[(often["weight"].map(used).astype(float) / samples).round(2).between(0.9, 1.1)]
    inputs = [shapes[0] for shapes in calls["shapes"]]
    alone = [_is_alone(*shapes) for shapes in calls["shapes"]]
    if not alone or np.mean(alone) < ALONE:
        return None
    return Loop(calls[["cpu_op_id", "step"]], samples, all(len(shape) <= 2 for shape in inputs))


def _shapes(dims: Any) -> tuple[Shape, Shape] | None:
    """Return the shapes of a layer's input and weight, None where they are not recorded."""
    shapes = json.loads(dims) if isinstance(dims, str) else []
    if len(shapes) < 2 or not all(isinstance(shape, list) and shape for shape in shapes[:2]):
        return None
    return tuple(shapes[0]), tuple(shapes[1])


def _is_alone(of_input: Shape, of_weight: Shape) -> bool:
    """Tell whether a layer's input is one sample: a batch of one, or (of a convolution, or a vector) none at all."""
    return of_input[0] == 1 or len(of_input) == 1 or (len(of_weight) > 2 and len(of_input) == len(of_weight) - 1)


def _launched(context: RuleContext, calls: Sequence[int]) -> pd.DataFrame:
    """Return what was launched from the first to the last of a step's ``calls``, and what its backward pass did; ``backward`` tells them apart."""
    both = passes(context, context.launches.begun_between(np.array(calls, np.int64)).tolist())
    return pd.concat([both.forward.assign(backward=False), both.backward.assign(backward=True)])


def _at_once(context: RuleContext, work: pd.DataFrame, samples: int) -> list[Edit]:
    """Return the edits that leave one sample's kernels of each operator, at ``samples`` times their batch: no sums of the others' gradients."""
    kept: list[int] = []
    gone: list[int] = []
    for _, part in work.sort_values("start_ns").groupby(["step", "backward", "operator"], dropna=False):
        ids = part["gpu_op_id"].to_numpy(np.int64)
        if len(ids) >= samples - 1:  # each use of a weight but the first adds its gradient
            stay = len(ids) // samples
            place = samples // 2 * stay  # the first sample's launches wait for cold caches
            kept += ids[place : place + stay].tolist()
            gone += np.delete(ids, slice(place, place + stay)).tolist()
    if not gone:
        return []
    rows = context.work[context.work["gpu_op_id"].isin(kept)]
    larger = [kernels_at(context, rows, samples)] if len(rows) else []
    return [*larger, *without_freeing(context, gone), WithoutOps(tuple(gone))]


def _place(context: RuleContext, loop: Loop) -> str | None:
    """Return the line that calls the model sample by sample, None without Python calls."""
    if not context.rank.trace.with_stack:
        return None
    first = loop.calls[loop.calls["step"] == loop.calls["step"].min()]["cpu_op_id"].to_numpy(np.int64)
    work = context.work
    launched = [work.iloc[context.launches.by(np.array([op], np.int64))] for op in (first[0], first[-1])]
    starts = [int(rows["start_ns"].min()) for rows in launched if len(rows)]
    return common_line(context.recording, context.rank.device, starts) if len(starts) == len(launched) else None


RULE = Rule(
    "samples-one-by-one",
    ("steps", "shapes"),
    check,
    Explains(("launch_bound",), called="samples that go through the model one by one"),
)
