"""FSDP gathers the same weights twice per step.

What it checks
    Bytes of all-gathers launched before and after the start of the backward pass, in steps with reduce-scattered gradients.
Why it costs time
    FSDP frees weights after the forward pass and gathers them again for the backward pass. With slow links or without overlap,
    the GPU waits for each gather. The host launches the copies and calls of each gather twice. A CUDA graph of such a step
    cannot be captured, because work of FSDP's streams began outside the graph. So this change comes before a CUDA graph.
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
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Relation, Rule
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.findings.queries.communication import calls_inside, collective_evidence, collectives
from sawtooth.analysis.findings.queries.telemetry import memory_use
from sawtooth.analysis.replay.edits import Edit, WithoutCalls, WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_memory, in_words

# fully_shard gives this name to the host work of a gather, including the copies to and from the gather's buffer.
GATHER_ANNOTATION = "FSDP::all_gather"
MIN_SECOND_SHARE = 0.7  # Share of the bytes gathered in the forward pass. FSDP may keep the last layers' weights.

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
    """Yield a finding if the backward pass gathers weights again, and the step is shorter without this."""
    rows = collectives(context)
    gathers = rows[(rows["name"] == "allgather") & rows["forward"].notna() & rows["bytes"].notna()]
    if gathers.empty or not (rows["name"] == "reducescatter").any():
        return
    steps = max(len(context.rank.counted), 1)
    in_forward = gathers["forward"].astype(bool)
    first_bytes, second_bytes = (float(gathers.loc[rows, "bytes"].sum()) / steps for rows in (in_forward, ~in_forward))
    if not first_bytes or second_bytes < MIN_SECOND_SHARE * first_bytes:
        return
    second = gathers[~in_forward]
    cost_ms = float(second["dur_ns"].sum()) / steps / 1e6
    calls = calls_inside(context, GATHER_ANNOTATION)
    first_launch_ns = calls["step"].map(second.groupby("step")["launch_ns"].min())
    edits: list[Edit] = [
        WithoutOps(tuple(second["gpu_op_id"].astype(int).tolist())),
        WithoutCalls(tuple(calls.loc[calls["end_ns"] > first_launch_ns, "call_id"].astype(int).tolist())),
    ]
    memory = memory_use(context)
    free_bytes = memory[1] - memory[0] if memory else None
    memory_note = (
        ""
        if free_bytes is None
        else f" This takes {in_memory(first_bytes)} more memory; {in_memory(max(free_bytes, 0))} are free."
    )
    yield Evidence(
        Advice(
            f"Weights are gathered twice per step: the second gathers, for the backward pass, take {in_words(cost_ms)}",
            Action("Keep", "the gathered weights until the backward pass", f" (reshard_after_forward=False).{memory_note}"),
            note="Predicted by the replay without the second gathers, their waits, their copies and their host time.",
            risk="The gathered weights of all layers stay in memory between the forward and the backward pass.",
            changes=CHANGES,
        ),
        lost_ms=cost_ms,
        cost_ms=cost_ms,
        threshold_for="gain",
        edits=edits,
        severity="info" if free_bytes is not None and free_bytes < first_bytes else None,
        rows=collective_evidence(second),
    )


RULE = Rule(
    "fsdp-reshard",
    measure,
    reads=TRACE_SOURCES | {"allocations", "telemetry"},
    requires=("steps",),
    threshold=FEW_LINES_TO_CHANGE,
    part_of="exposed-communication",
    comes_before=(
        Relation(
            "launch-bound",
            "“{title}” comes first: it is the smaller change, and a step that frees its weights and gathers them again often cannot be captured in a CUDA graph.",
        ),
    ),
)
