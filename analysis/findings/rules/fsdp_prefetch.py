"""Layers wait for weights that FSDP could have gathered during the previous layer.

What it checks
    How long each all-gather runs while no kernel computes, in steps with reduce-scattered gradients. The first gather of each
    pass is left out, because no kernel of the pass can compute before it.
Why it costs time
    A layer cannot start without its weights. Weights that are gathered one layer ahead arrive during the previous layer's
    computation.
What to do
    Prefetch: ``set_modules_to_forward_prefetch`` and ``set_modules_to_backward_prefetch`` of ``fully_shard``, or
    ``forward_prefetch=True`` and ``BackwardPrefetch.BACKWARD_PRE`` of ``FullyShardedDataParallel``.
When it is wrong
    The previous layer computes for less time than the gather takes, so the links or the layer sizes are the limit. Or the host
    is late, and launches the gathers late.
References
    https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import CALL_TO_CHECK
from sawtooth.analysis.findings.queries.communication import collective_evidence, collectives, overlap_delay_share
from sawtooth.analysis.replay.edits import TimedOps
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_words

MIN_EXPOSED_GATHERS = 2  # Per step.

CHANGES = (
    CodeChange(
        "PyTorch",
        "for block in model.blocks:\n    fully_shard(block)",
        "from itertools import pairwise\nfor block in model.blocks:\n    fully_shard(block)\n"
        "for block, following in pairwise(model.blocks):\n    block.set_modules_to_forward_prefetch([following])",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if exposed gathers could run one layer ahead, and hiding them shortens the step."""
    rows = collectives(context)
    gathers = rows[(rows["name"] == "allgather") & rows["forward"].notna()]
    if gathers.empty or not (rows["name"] == "reducescatter").any() or context.step_ms is None:
        return
    later = gathers[gathers.duplicated(["step", "forward"])]
    exposed = later[later["exposed_ns"] > 0]
    steps = max(len(context.rank.counted), 1)
    if len(exposed) < MIN_EXPOSED_GATHERS * steps:
        return
    hidden_ns = (exposed["dur_ns"] - exposed["exposed_ns"] * (1 - overlap_delay_share(context, exposed))).astype(int)
    edits = [TimedOps(tuple(exposed["gpu_op_id"].astype(int).tolist()), tuple(hidden_ns.tolist()))]
    predicted_ms = context.predict_ms(edits)
    if predicted_ms is None or context.is_negligible(context.step_ms - predicted_ms):
        return
    cost_ms = float(exposed["exposed_ns"].sum()) / steps / 1e6
    yield Evidence(
        Advice(
            f"Layers wait {in_words(cost_ms)} of each step for weights that are gathered only when they are needed",
            Action(
                "Gather",
                "the next layer's weights while this layer computes",
                ": prefetch in the forward and in the backward pass.",
            ),
            note="Predicted by the replay with these gathers during computation. Kernels that run at the same time lose the multiprocessors that the gathers use.",
            risk="The weights of one more layer are in GPU memory.",
            changes=CHANGES,
        ),
        lost_ms=cost_ms,
        edits=edits,
        rows=collective_evidence(exposed),
        threshold_for="gain",
    )


RULE = Rule(
    "fsdp-prefetch",
    measure,
    reads=TRACE_SOURCES,
    requires=("steps",),
    threshold=CALL_TO_CHECK,
    part_of="exposed-communication",
)
