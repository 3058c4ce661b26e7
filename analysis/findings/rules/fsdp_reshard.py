"""FSDP gathers the same weights twice per step.

What it checks
    Bytes of all-gathers launched before and after the start of the backward pass, in steps with reduce-scattered gradients.
Why it costs time
    Weights that are freed after the forward pass are gathered again for the backward pass. With slow links or without
    overlap, the GPU waits for each gather. If the host is the limit, it makes the copies and calls of each gather twice. A
    CUDA graph of such a step cannot be captured, because work of FSDP's streams began outside of it. So this change comes
    first.
What to do
    Keep the weights if memory allows: ``fully_shard(..., reshard_after_forward=False)``, or
    ``ShardingStrategy.SHARD_GRAD_OP``. On several hosts, ``reshard_after_forward=8`` keeps all weights on each group of 8 GPUs,
    so the second gather stays within the host.
When it is wrong
    Memory is short: the gathered weights of the whole model stay until the backward pass has used them.
References
    https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
    https://github.com/pytorch/torchtitan/pull/3559
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Relation, Rule
from sawtooth.analysis.findings.policy import FEW_LINES
from sawtooth.analysis.findings.queries.communication import calls_inside, collectives, evidence_of
from sawtooth.analysis.findings.queries.telemetry import memory_use
from sawtooth.analysis.replay.edits import Edit, WithoutCalls, WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_bytes, in_words

# Name that fully_shard gives to the host work of a gather, including the copies to and from its buffer.
GATHERS = "FSDP::all_gather"
AGAIN = 0.7  # Share of the bytes gathered in the forward pass. The last layers' weights may not be freed.

CHANGES = (
    CodeChange(
        "PyTorch",
        "fully_shard(block)",
        "fully_shard(block, reshard_after_forward=False)",
    ),
    CodeChange(
        "Transformers",
        "TrainingArguments(fsdp=True)",
        'TrainingArguments(fsdp=True, fsdp_config={"reshard_after_forward": False})   # before Transformers 5: fsdp="shard_grad_op"',
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if the backward pass gathers weights again and the step is shorter without."""
    rows = collectives(context)
    gathers = rows[(rows["name"] == "allgather") & rows["forward"].notna() & rows["bytes"].notna()]
    if gathers.empty or not (rows["name"] == "reducescatter").any():
        return
    steps = max(len(context.rank.counted), 1)
    early = gathers["forward"].astype(bool)
    before, again = (float(gathers.loc[selection, "bytes"].sum()) / steps for selection in (early, ~early))
    if not before or again < AGAIN * before:
        return
    second = gathers[~early]
    cost_ms = float(second["dur_ns"].sum()) / steps / 1e6
    calls = calls_inside(context, GATHERS)
    first_ns = calls["step"].map(second.groupby("step")["launch_ns"].min())
    without: list[Edit] = [
        WithoutOps(tuple(second["gpu_op_id"].astype(int).tolist())),
        WithoutCalls(tuple(calls.loc[calls["end_ns"] > first_ns, "call_id"].astype(int).tolist())),
    ]
    use = memory_use(context)
    free = use[1] - use[0] if use else None
    fits = "" if free is None else f" This takes {in_bytes(before)} more memory; {in_bytes(max(free, 0))} are free."
    yield Evidence(
        Advice(
            f"Weights are gathered twice per step: the second gathers, for the backward pass, take {in_words(cost_ms)}",
            Action("Keep", "the gathered weights until the backward pass", f" (reshard_after_forward=False).{fits}"),
            note="Predicted by the replay without the second gathers, including the waits in them, their copies and the host's time.",
            risk="The gathered weights of all layers stay in memory between the forward and the backward pass.",
            changes=CHANGES,
        ),
        lost_ms=cost_ms,
        cost_ms=cost_ms,
        threshold_for="gain",
        edits=without,
        severity="info" if free is not None and free < before else None,
        rows=evidence_of(second),
    )


RULE = Rule(
    "fsdp-reshard",
    measure,
    reads=OF_TRACE | {"allocations", "telemetry"},
    requires=("steps",),
    threshold=FEW_LINES,
    part_of="exposed-communication",
    comes_before=(
        Relation(
            "launch-bound",
            "“{title}” comes first: it is the smaller change, and a CUDA graph of a step that frees its weights and gathers them again often cannot be captured.",
        ),
    ),
)
