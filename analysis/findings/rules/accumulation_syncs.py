"""Gradients are reduced after every micro-batch of an accumulated step.

What it checks
    How many bytes are all-reduced after each forward pass of DistributedDataParallel in a step.
Why it costs time
    The optimizer uses only the sum of all micro-batches' gradients. One reduction per step is therefore enough, but the loop
    reduces all gradients after each micro-batch.
What to do
    Run all micro-batches of a step except the last one under ``model.no_sync()``.
When it is wrong
    The forward passes belong to different models, each with its own gradients.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html#torch.nn.parallel.DistributedDataParallel.no_sync
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.findings.queries.communication import calls_inside, collective_evidence, collectives, with_pass_numbers
from sawtooth.analysis.replay.edits import Edit, WithoutCalls, WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

FORWARD = "DistributedDataParallel.forward"
# Host operators that DistributedDataParallel runs for each gradient when it reduces gradients.
REDUCTION_OPERATORS = (
    "c10d::allreduce_",
    "torch::distributed::reducer::mul_out",
    "torch.distributed.ddp.reducer::copy_bucket_to_grad",
)
# Share of the bytes that the last micro-batch reduces. An earlier micro-batch with a smaller share reduces only a loss or a norm.
MIN_GRADIENT_SHARE = 0.9

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
    rows = with_pass_numbers(context, reductions, FORWARD) if len(reductions) else reductions
    if rows.empty:
        return
    micro_batches = int(rows["passes"].median())
    bytes_by_step = (
        rows.groupby(["step", "nth"])["bytes"]
        .sum()
        .astype(float)
        .unstack(fill_value=0.0)
        .reindex(columns=range(micro_batches), fill_value=0.0)
    )
    if micro_batches < 2 or not _all_reduce_gradients(bytes_by_step.to_numpy()):
        return
    early = rows[rows["nth"] < rows["passes"] - 1]
    cost_ms = float(early["dur_ns"].sum()) / len(bytes_by_step) / 1e6
    calls = with_pass_numbers(context, calls_inside(context, *REDUCTION_OPERATORS), FORWARD)
    edits: list[Edit] = [
        WithoutOps(tuple(early["gpu_op_id"].astype(int).tolist())),
        WithoutCalls(tuple(calls.loc[calls["nth"] < calls["passes"] - 1, "call_id"].astype(int).tolist())),
    ]
    yield Evidence(
        Advice(
            f"Gradients are all-reduced after each of {micro_batches} micro-batches per step. Once is enough; the others cost {in_words(cost_ms)}",
            Action(
                "Run",
                "all but the last micro-batch of a step under model.no_sync()",
                ": the gradients are then added up before they are sent.",
            ),
            note="Predicted by the replay without the earlier reductions, their waits, their copies to and from buckets, and their host time.",
            risk="The gradients of a step stay in memory in full precision until the last micro-batch.",
            changes=CHANGES,
        ),
        lost_ms=cost_ms,
        cost_ms=cost_ms,
        threshold_for="gain",
        edits=edits,
        rows=collective_evidence(early),
    )


def _all_reduce_gradients(bytes_by_step: NDArray[np.float64]) -> bool:
    """Return whether each micro-batch (column) of each step (row) reduces the gradients."""
    last_bytes = bytes_by_step[:, -1:]
    return bool((last_bytes > 0).all() and (bytes_by_step >= MIN_GRADIENT_SHARE * last_bytes).all())


RULE = Rule(
    "accumulation-syncs",
    measure,
    reads=TRACE_SOURCES,
    requires=("steps",),
    explains=Explains(sets=("gradient_sync",)),
    threshold=FEW_LINES_TO_CHANGE,
    part_of="exposed-communication",
)
