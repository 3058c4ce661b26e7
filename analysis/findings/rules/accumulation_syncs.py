"""Gradients are reduced after every micro-batch of an accumulated step.

What it checks
    How many bytes are all-reduced after each forward pass of DistributedDataParallel in a step.
Why it costs time
    The optimizer uses only the sum of all micro-batches' gradients. A reduction after each micro-batch sends the same number
    of bytes several times.
What to do
    Run all micro-batches of a step except the last one under ``model.no_sync()``.
When it is wrong
    The forward passes belong to different models, each with its own gradients.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html#torch.nn.parallel.DistributedDataParallel.no_sync
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES
from sawtooth.analysis.findings.queries.communication import by_pass, calls_inside, collectives, evidence_of
from sawtooth.analysis.replay.edits import Edit, WithoutCalls, WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

FORWARD = "DistributedDataParallel.forward"
# Host work of DistributedDataParallel for each gradient in each pass that reduces gradients.
REDUCES = ("c10d::allreduce_", "torch::distributed::reducer::mul_out", "torch.distributed.ddp.reducer::copy_bucket_to_grad")
# Share of the last micro-batch's bytes. A micro-batch that reduces at least this share reduces the gradients again, not only a
# loss or a norm.
ALL_GRADIENTS = 0.9

CHANGES = (
    CodeChange(
        "PyTorch",
        "for batch in micro_batches:\n    loss(model(batch)).backward()",
        "from contextlib import nullcontext\n"
        "for i, batch in enumerate(micro_batches):\n"
        "    last = i == len(micro_batches) - 1\n"
        "    with nullcontext() if last else model.no_sync():   # FSDP2: model.set_requires_gradient_sync(last)\n"
        "        loss(model(batch)).backward()",
    ),
    CodeChange(
        "Lightning",
        "fabric.backward(loss)",
        "with fabric.no_backward_sync(model, enabled=accumulating):\n    fabric.backward(loss)",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if every micro-batch reduces as many bytes as the last one of its step."""
    reductions = collectives(context)
    reductions = reductions[reductions["name"] == "allreduce"]
    rows = by_pass(context, reductions, FORWARD) if len(reductions) else reductions
    if rows.empty:
        return
    micro = int(rows["passes"].median())
    moved = (
        rows.groupby(["step", "nth"])["bytes"]
        .sum()
        .astype(float)
        .unstack(fill_value=0.0)
        .reindex(columns=range(micro), fill_value=0.0)
    )
    last = moved[micro - 1].to_numpy()
    if micro < 2 or not (last > 0).all() or not (moved.to_numpy() >= ALL_GRADIENTS * last[:, None]).all():
        return
    early = rows[rows["nth"] < rows["passes"] - 1]
    cost_ms = float(early["dur_ns"].sum()) / len(moved) / 1e6
    calls = by_pass(context, calls_inside(context, *REDUCES), FORWARD)
    without: list[Edit] = [
        WithoutOps(tuple(early["gpu_op_id"].astype(int).tolist())),
        WithoutCalls(tuple(calls.loc[calls["nth"] < calls["passes"] - 1, "call_id"].astype(int).tolist())),
    ]
    yield Evidence(
        Advice(
            f"Gradients are all-reduced after each of {micro} micro-batches per step: all but the last cost {in_words(cost_ms)}",
            Action(
                "Run",
                "all but the last micro-batch of a step under model.no_sync()",
                ": their gradients are then added up before they are sent.",
            ),
            note="Predicted by the replay without the earlier reductions, including the waits in them, the copies to and from buckets, and the host's time.",
            risk="The gradients of a step stay in memory in full precision until the last micro-batch, as without accumulation.",
            changes=CHANGES,
        ),
        lost_ms=cost_ms,
        cost_ms=cost_ms,
        threshold_for="gain",
        edits=without,
        rows=evidence_of(early),
    )


RULE = Rule(
    "accumulation-syncs",
    measure,
    reads=OF_TRACE,
    requires=("steps",),
    explains=Explains(sets=("gradient_sync",)),
    threshold=FEW_LINES,
    part_of="exposed-communication",
)
