"""Gradients are all-reduced one by one once the backward pass is over.

What it checks
    All-reduces launched after the last operator of a step's backward pass, how many there are, whether anything computes beside them, and how long the
    host is in their calls.
Why it costs time
    A gradient can be sent as soon as the backward pass has it. One all-reduce for each parameter after the pass overlaps nothing, and small ones cost
    their latency each; where the host is the limit, each costs it a call.
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
import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES
from sawtooth.analysis.findings.queries.communication import calls_inside, collectives, cost_beside, evidence_of
from sawtooth.analysis.replay.edits import Edit, MoreLaunches, TimedOps
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_words

MANY = 10  # a step: a loss, a norm and a few metrics are reduced after the backward pass by right
COPIED = 2  # times a gradient's bytes through the GPU's memory: read and written into its bucket
COPIES = 2  # launches that DistributedDataParallel has the host make for a gradient, into its bucket and back, where it made one for its all-reduce
REDUCED = 3  # and as it is reduced: read, summed and written
CALLED = "c10d::allreduce_"  # the operator of one all-reduce on the host
BUCKET_BYTES = 25 * 1024 * 1024  # DistributedDataParallel's default: the last bucket is sent when the backward pass ends

BY_THE_GPU = (
    "Predicted by the replay with all but the last bucket overlapped by the backward pass, whose kernels share memory and multiprocessors with it. The host "
    "launches two copies for each gradient, into its bucket and back, where it launched an all-reduce."
)
BY_THE_HOST = "Not predicted: the host is the limit, and what the hooks and copies of DistributedDataParallel cost it is in no trace of a run without them."

CHANGES = (
    CodeChange(
        "PyTorch",
        "loss.backward()\nfor p in model.parameters():\n    dist.all_reduce(p.grad); p.grad /= world_size",
        "model = DistributedDataParallel(model)\nloss.backward()",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding where many all-reduces follow the backward pass, and the step is shorter with all but the last bucket's overlapped."""
    rows = collectives(context)
    after = rows[(rows["name"] == "allreduce") & rows["after_backward"].fillna(False).astype(bool)]
    steps = max(len(context.rank.counted), 1)
    count = len(after) / steps
    if count < MANY or context.step_ms is None:
        return
    exposed_ms = float(after["exposed_ns"].sum()) / steps / 1e6
    edits = _overlapped(context, after)
    predicted = context.predict_ms(edits) if edits else None
    gains = predicted is not None and context.share(context.step_ms - predicted) >= FEW_LINES.share
    calls_ms = 0.0 if gains else _calls_ms(context)
    if not gains and calls_ms < FEW_LINES.share * (context.rank.best.profiled.value or 0.0):
        return
    cost = f"{in_words(exposed_ms)} that nothing overlaps" if gains else f"{in_words(calls_ms)} of the profiled host's time"
    yield Evidence(
        Advice(
            f"{count:.0f} all-reduces a step follow the backward pass, one for each gradient: {cost}",
            Action(
                "Wrap",
                "the model in DistributedDataParallel",
                ": it reduces buckets of gradients while the backward pass goes on.",
            ),
            note=BY_THE_GPU if gains else BY_THE_HOST,
            risk="The gradients are averaged within the backward pass: code that changes them on each rank before must move.",
            changes=CHANGES,
        ),
        lost_ms=exposed_ms if gains else calls_ms,
        edits=edits if gains else (),
        confidence="medium" if gains else "low",
        severity=None if gains else "info",
        rows=evidence_of(after),
    )


def _overlapped(context: RuleContext, after: pd.DataFrame) -> list[Edit]:
    """Return the edit that leaves of each all-reduce what its bucket costs beside the backward pass; none where all fit into the last bucket."""
    before = after.groupby("step")["bytes"].cumsum() - after["bytes"]
    # parameters come in the model's order, their gradients in the reverse one
    rows = after[(before >= BUCKET_BYTES).fillna(False)]
    if rows.empty:
        return []
    gpu = context.rank.gpu
    rate = gpu.bandwidth_bytes_per_s if gpu is not None else None
    once_ns = rows["bytes"].astype(float) / rate * 1e9 if rate else rows["bytes"].astype(float) * 0.0
    held_ns = rows["dur_ns"] * cost_beside(context, rows)
    still_ns = COPIED * once_ns + np.maximum(REDUCED * once_ns, held_ns)
    ops = tuple(rows["gpu_op_id"].astype(int).tolist())
    copied = tuple(after["gpu_op_id"].astype(int).tolist())
    return [
        TimedOps(ops, tuple(still_ns.clip(upper=rows["dur_ns"]).astype(int).tolist())),
        MoreLaunches(copied, (COPIES - 1,) * len(copied)),
    ]


def _calls_ms(context: RuleContext) -> float:
    """Return the ms of each profiled step that the host is in all-reduces."""
    calls = calls_inside(context, CALLED).drop_duplicates(["launch_ns", "end_ns"])
    return float((calls["end_ns"] - calls["launch_ns"]).sum()) / max(len(context.rank.counted), 1) / 1e6


RULE = Rule(
    "gradients-reduced-after",
    measure,
    reads=OF_TRACE,
    requires=("steps",),
    bar=FEW_LINES,
    part_of="exposed-communication",
)
