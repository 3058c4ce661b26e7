"""Gradients are all-reduced one by one once the backward pass is over.

What it checks
    All-reduces launched after the last operator of a step's backward pass, how many there are, and whether anything computes beside them.
Why it costs time
    A gradient can be sent as soon as the backward pass has it. One all-reduce for each parameter after the pass overlaps nothing, and small ones cost
    their latency each.
What to do
    DistributedDataParallel, which reduces buckets of gradients while the backward pass goes on.
When it is wrong
    Where gradients must be whole first: clipped on each rank before they are averaged, for one.
References
    https://docs.pytorch.org/docs/stable/notes/ddp.html#internal-design
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sawtooth.analysis.findings.queries.communication import collectives, cost_beside, evidence_of
from sawtooth.analysis.findings.rule import Rule, RuleContext
from sawtooth.analysis.replay.edits import TimedOps
from sawtooth.analysis.run.model import CodeChange, Explains, Finding
from sawtooth.analysis.units import in_words

MANY = 10  # a step: a loss, a norm and a few metrics are reduced after the backward pass by right
WORTH_NAMING = 0.02  # of the step
COPIED = 2  # times a gradient's bytes through the GPU's memory: read and written into its bucket
REDUCED = 3  # and as it is reduced: read, summed and written
BUCKET_BYTES = 25 * 1024 * 1024  # DistributedDataParallel's default: the last bucket is sent when the backward pass ends

CHANGES = (
    CodeChange(
        "PyTorch",
        "loss.backward()\nfor p in model.parameters():\n    dist.all_reduce(p.grad); p.grad /= world_size",
        "model = DistributedDataParallel(model)\nloss.backward()",
    ),
)


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding where many all-reduces follow the backward pass, and the step is shorter with all but the last bucket's overlapped."""
    rows = collectives(context)
    after = rows[(rows["name"] == "allreduce") & rows["after_backward"].fillna(False).astype(bool)]
    steps = max(len(context.rank.counted), 1)
    count = len(after) / steps
    if count < MANY or context.step_ms is None:
        return
    before = after.groupby("step")["bytes"].cumsum() - after["bytes"]
    overlapped = after[
        (before >= BUCKET_BYTES).fillna(False)
    ]  # parameters come in the model's order, their gradients in the reverse one
    gpu = context.rank.gpu
    rate = gpu.bandwidth_bytes_per_s if gpu is not None else None
    cost_ms = float(after["exposed_ns"].sum()) / steps / 1e6
    ops = tuple(overlapped["gpu_op_id"].astype(int).tolist())
    once_ns = overlapped["bytes"].astype(float) / rate * 1e9 if rate else overlapped["bytes"].astype(float) * 0.0
    held_ns = overlapped["dur_ns"] * cost_beside(context, overlapped)
    still_ns = COPIED * once_ns + np.maximum(REDUCED * once_ns, held_ns)
    edits = [TimedOps(ops, tuple(still_ns.clip(upper=overlapped["dur_ns"]).astype(int).tolist()))]
    predicted = context.predict_ms(edits)
    if overlapped.empty or predicted is None or context.share(context.step_ms - predicted) < WORTH_NAMING:
        return
    yield context.finding(
        RULE.slug,
        f"{count:.0f} all-reduces a step follow the backward pass, one for each gradient: {in_words(cost_ms)} that nothing overlaps",
        "Wrap the model in DistributedDataParallel: it reduces buckets of gradients while the backward pass goes on.",
        ceiling_ms=cost_ms,
        edits=edits,
        confidence="medium",
        note="Predicted by the replay with all but the last bucket overlapped by the backward pass, whose kernels share memory and multiprocessors with it.",
        risk="The gradients are averaged within the backward pass: code that changes them on each rank before must move.",
        changes=CHANGES,
        evidence=evidence_of(after),
    )


RULE = Rule("gradients-reduced-after", ("steps",), check, Explains(part_of="exposed-communication"))
