"""Gradients are all-reduced one by one after the backward pass.

What it checks
    All-reduces launched after the last operator of a step's backward pass: how many there are, whether kernels overlap them,
    and how long the host is in their calls.
Why it costs time
    A gradient can be sent as soon as the backward pass has computed it. Separate all-reduces after the pass overlap nothing,
    and each small one costs its latency. If the host is the limit, each also costs a call.
What to do
    Use DistributedDataParallel, which reduces buckets of gradients during the backward pass.
When it is wrong
    The code needs complete gradients first, for example to clip them on each rank before averaging.
References
    https://docs.pytorch.org/docs/stable/notes/ddp.html#internal-design
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES
from sawtooth.analysis.findings.queries.communication import calls_inside, collectives, evidence_of, overlap_cost
from sawtooth.analysis.replay.edits import Edit, MoreLaunches, TimedOps
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_words

MANY = 10  # All-reduces per step. A loss, a norm and a few metrics are usually reduced after the backward pass.
COPY_PASSES = 2  # Passes of a gradient's bytes through GPU memory to copy it into its bucket: one read, one write.
REDUCE_PASSES = 3  # Passes of a gradient's bytes through GPU memory during the reduction: read, sum and write.
# Copies that DistributedDataParallel launches per gradient, into its bucket and back. They replace one launch of an all-reduce.
COPY_LAUNCHES = 2
CALLED = "c10d::allreduce_"  # The host operator of one all-reduce has this name.
# DistributedDataParallel's default bucket size. The last bucket is sent when the backward pass ends.
BUCKET_BYTES = 25 * 1024 * 1024

BY_THE_GPU = (
    "Predicted by the replay. All buckets but the last overlap with the backward pass, and share memory and multiprocessors with its kernels. For each "
    "gradient, the host launches two copies (into the bucket and back) instead of one all-reduce."
)
BY_THE_HOST = "Not predicted: the host is the limit, and this trace does not show the host's cost of DistributedDataParallel's hooks and copies."

CHANGES = (
    CodeChange(
        "PyTorch",
        "loss.backward()\nfor p in model.parameters():\n    dist.all_reduce(p.grad); p.grad /= world_size",
        "model = DistributedDataParallel(model)\nloss.backward()",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if many all-reduces follow the backward pass and overlapping them helps.

    All but the last bucket would overlap.
    """
    rows = collectives(context)
    after = rows[(rows["name"] == "allreduce") & rows["after_backward"].fillna(False).astype(bool)]
    steps = max(len(context.rank.counted), 1)
    count = len(after) / steps
    if count < MANY or context.step_ms is None:
        return
    exposed_ms = float(after["exposed_ns"].sum()) / steps / 1e6
    edits = _overlap_edit(context, after)
    predicted = context.predict_ms(edits) if edits else None
    gains = predicted is not None and context.share(context.step_ms - predicted) >= FEW_LINES.share
    calls_ms = 0.0 if gains else _calls_ms(context)
    if not gains and calls_ms < FEW_LINES.share * (context.rank.best.profiled.value or 0.0):
        return
    cost = f"{in_words(exposed_ms)} that nothing overlaps" if gains else f"{in_words(calls_ms)} of the profiled host's time"
    yield Evidence(
        Advice(
            f"{count:.0f} all-reduces per step follow the backward pass, one for each gradient: {cost}",
            Action(
                "Wrap",
                "the model in DistributedDataParallel",
                ": it reduces buckets of gradients during the backward pass.",
            ),
            note=BY_THE_GPU if gains else BY_THE_HOST,
            risk="Gradients are averaged during the backward pass. Code that changes them on each rank before that must move.",
            changes=CHANGES,
        ),
        lost_ms=exposed_ms if gains else calls_ms,
        edits=edits if gains else (),
        confidence="medium" if gains else "low",
        severity=None if gains else "info",
        rows=evidence_of(after),
    )


def _overlap_edit(context: RuleContext, after: pd.DataFrame) -> list[Edit]:
    """Return the edit that reduces each all-reduce to its cost during the backward pass.

    Empty if all gradients fit into the last bucket.
    """
    before = after.groupby("step")["bytes"].cumsum() - after["bytes"]
    # The loop reduces gradients in the order of the parameters. Buckets fill in reverse order, so the last bucket has the first
    # parameters.
    rows = after[(before >= BUCKET_BYTES).fillna(False)]
    if rows.empty:
        return []
    gpu = context.rank.gpu
    rate = gpu.bandwidth_bytes_per_s if gpu is not None else None
    once_ns = rows["bytes"].astype(float) / rate * 1e9 if rate else rows["bytes"].astype(float) * 0.0
    shared_ns = rows["dur_ns"] * overlap_cost(context, rows)
    remaining_ns = COPY_PASSES * once_ns + np.maximum(REDUCE_PASSES * once_ns, shared_ns)
    ops = tuple(rows["gpu_op_id"].astype(int).tolist())
    copied = tuple(after["gpu_op_id"].astype(int).tolist())
    return [
        TimedOps(ops, tuple(remaining_ns.clip(upper=rows["dur_ns"]).astype(int).tolist())),
        MoreLaunches(copied, (COPY_LAUNCHES - 1,) * len(copied)),
    ]


def _calls_ms(context: RuleContext) -> float:
    """Return the host's time in all-reduces, ms per profiled step."""
    calls = calls_inside(context, CALLED).drop_duplicates(["launch_ns", "end_ns"])
    return float((calls["end_ns"] - calls["launch_ns"]).sum()) / max(len(context.rank.counted), 1) / 1e6


RULE = Rule(
    "gradients-reduced-after",
    measure,
    reads=OF_TRACE,
    requires=("steps",),
    threshold=FEW_LINES,
    part_of="exposed-communication",
)
