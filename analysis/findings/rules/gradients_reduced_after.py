"""Gradients are all-reduced one by one after the backward pass.

What it checks
    The number of all-reduces after the last operator of a step's backward pass, their overlap with kernels, and the host's time
    in their calls.
Why it costs time
    A gradient can be sent as soon as the backward pass has computed it. All-reduces after the backward pass overlap with
    nothing, and each small one costs its latency. Each also costs a host call.
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
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.findings.queries.communication import calls_inside, collective_evidence, collectives, overlap_delay_share
from sawtooth.analysis.replay.edits import Edit, MoreLaunches, TimedOps
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_words

MIN_ALL_REDUCES = 10  # Per step. A loss, a norm and a few metrics are usually reduced after the backward pass.
COPY_PASSES = 2  # Passes of a gradient's bytes through GPU memory to copy it into its bucket: one read, one write.
REDUCE_PASSES = 3  # Passes of a gradient's bytes through GPU memory during the reduction: read, sum and write.
# DistributedDataParallel copies each gradient into a bucket and back. These launches replace the launch of one all-reduce.
COPY_LAUNCHES = 2
ALL_REDUCE_OPERATOR = "c10d::allreduce_"
# DistributedDataParallel's default bucket size. The last bucket is sent when the backward pass ends.
BUCKET_BYTES = 25 * 1024 * 1024

OVERLAP_NOTE = (
    "Predicted by the replay. All buckets but the last overlap with the backward pass, and share memory and multiprocessors with the pass's kernels. For each "
    "gradient, the host launches two copies (into the bucket and back) instead of one all-reduce."
)
HOST_LIMIT_NOTE = "Not predicted: the host is the limit, and this trace does not show the host's cost of DistributedDataParallel's hooks and copies."

CHANGES = (
    CodeChange(
        "PyTorch",
        "loss.backward()\nfor p in model.parameters():\n    dist.all_reduce(p.grad); p.grad /= world_size",
        "model = DistributedDataParallel(model)\nloss.backward()",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if many all-reduces follow the backward pass, and overlap shortens the step."""
    rows = collectives(context)
    after = rows[(rows["name"] == "allreduce") & rows["after_backward"].fillna(False).astype(bool)]
    steps = max(len(context.rank.counted), 1)
    count = len(after) / steps
    if count < MIN_ALL_REDUCES or context.step_ms is None:
        return
    exposed_ms = float(after["exposed_ns"].sum()) / steps / 1e6
    edits = _overlap_edits(context, after)
    predicted_ms = context.predict_ms(edits) if edits else None
    gains = predicted_ms is not None and context.share(context.step_ms - predicted_ms) >= FEW_LINES_TO_CHANGE.share
    calls_ms = 0.0 if gains else _calls_ms(context)
    if not gains and calls_ms < FEW_LINES_TO_CHANGE.share * (context.rank.best.profiled.value or 0.0):
        return
    cost_clause = f"{in_words(exposed_ms)} are not overlapped" if gains else f"{in_words(calls_ms)} of the profiled host's time"
    yield Evidence(
        Advice(
            f"{count:.0f} all-reduces per step follow the backward pass, one for each gradient: {cost_clause}",
            Action(
                "Wrap",
                "the model in DistributedDataParallel",
                ": it reduces buckets of gradients during the backward pass.",
            ),
            note=OVERLAP_NOTE if gains else HOST_LIMIT_NOTE,
            risk="Gradients are averaged during the backward pass. Code that changes a rank's gradients before the averaging must move.",
            changes=CHANGES,
        ),
        lost_ms=exposed_ms if gains else calls_ms,
        edits=edits if gains else (),
        confidence="medium" if gains else "low",
        severity=None if gains else "info",
        rows=collective_evidence(after),
    )


def _overlap_edits(context: RuleContext, after: pd.DataFrame) -> list[Edit]:
    """Return the edit that reduces each all-reduce to its cost during the backward pass.

    Empty if all gradients fit into the last bucket.
    """
    # The loop reduces gradients in the order of the parameters. Buckets fill in reverse order, so the last bucket has the first
    # parameters.
    earlier_bytes = after.groupby("step")["bytes"].cumsum() - after["bytes"]
    rows = after[(earlier_bytes >= BUCKET_BYTES).fillna(False)]
    if rows.empty:
        return []
    gpu = context.rank.gpu
    bytes_per_s = gpu.bandwidth_bytes_per_s if gpu is not None else None
    one_pass_ns = rows["bytes"].astype(float) / bytes_per_s * 1e9 if bytes_per_s else rows["bytes"].astype(float) * 0.0
    shared_ns = rows["dur_ns"] * overlap_delay_share(context, rows)
    remaining_ns = COPY_PASSES * one_pass_ns + np.maximum(REDUCE_PASSES * one_pass_ns, shared_ns)
    ops = tuple(rows["gpu_op_id"].astype(int).tolist())
    copied_ops = tuple(after["gpu_op_id"].astype(int).tolist())
    return [
        TimedOps(ops, tuple(remaining_ns.clip(upper=rows["dur_ns"]).astype(int).tolist())),
        MoreLaunches(copied_ops, (COPY_LAUNCHES - 1,) * len(copied_ops)),
    ]


def _calls_ms(context: RuleContext) -> float:
    """Return the host's time in all-reduces, ms per profiled step."""
    calls = calls_inside(context, ALL_REDUCE_OPERATOR).drop_duplicates(["launch_ns", "end_ns"])
    return float((calls["end_ns"] - calls["launch_ns"]).sum()) / max(len(context.rank.counted), 1) / 1e6


RULE = Rule(
    "gradients-reduced-after",
    measure,
    reads=TRACE_SOURCES,
    requires=("steps",),
    threshold=FEW_LINES_TO_CHANGE,
    part_of="exposed-communication",
)
