"""Layers wait for weights that FSDP could have gathered during the previous layer.

What it checks
    All-gathers of a step with reduce-scattered gradients: how long each runs while no kernel computes. The first gather of
    each pass is left out.
Why it costs time
    A layer cannot start without its weights. If they are gathered one layer ahead, they arrive during the previous layer's
    computation.
What to do
    Prefetch: ``set_modules_to_forward_prefetch`` and ``set_modules_to_backward_prefetch`` of ``fully_shard``, or
    ``forward_prefetch=True`` and ``BackwardPrefetch.BACKWARD_PRE`` of ``FullyShardedDataParallel``.
When it is wrong
    The previous layer computes for less time than the gather takes, so the links or the layer sizes are the limit. A late
    host also launches gathers late.
References
    https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import CALL_TO_LOOK_AT
from sawtooth.analysis.findings.queries.communication import collectives, evidence_of, overlap_cost
from sawtooth.analysis.replay.edits import TimedOps
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_words

FEWEST = 2  # Gathers per step that could run ahead.

CHANGES = (
    CodeChange(
        "PyTorch",
        "for block in model.blocks:\n    fully_shard(block)",
        "from itertools import pairwise\nfor block in model.blocks:\n    fully_shard(block)\n"
        "for block, following in pairwise(model.blocks):\n    block.set_modules_to_forward_prefetch([following])",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if gathers are exposed that could run one layer ahead, and hiding them helps."""
    rows = collectives(context)
    gathers = rows[(rows["name"] == "allgather") & rows["forward"].notna()]
    if gathers.empty or not (rows["name"] == "reducescatter").any() or context.step_ms is None:
        return
    later = gathers[gathers.duplicated(["step", "forward"])]  # No kernel of a pass computes before its first gather.
    stuck = later[later["exposed_ns"] > 0]
    steps = max(len(context.rank.counted), 1)
    if len(stuck) < FEWEST * steps:
        return
    hidden_ns = (stuck["dur_ns"] - stuck["exposed_ns"] * (1 - overlap_cost(context, stuck))).astype(int)
    edits = [TimedOps(tuple(stuck["gpu_op_id"].astype(int).tolist()), tuple(hidden_ns.tolist()))]
    predicted = context.predict_ms(edits)
    if predicted is None or context.is_trifle(context.step_ms - predicted):
        return
    cost_ms = float(stuck["exposed_ns"].sum()) / steps / 1e6
    yield Evidence(
        Advice(
            f"Layers wait {in_words(cost_ms)} of each step for weights that are gathered only when they are needed",
            Action(
                "Gather",
                "the next layer's weights while this layer computes",
                ": prefetch in the forward and in the backward pass.",
            ),
            note="Predicted by the replay with the exposed parts of these gathers hidden. Kernels that run at the same time lose the multiprocessors that the gathers use.",
            risk="The weights of one more layer are in GPU memory.",
            changes=CHANGES,
        ),
        lost_ms=cost_ms,
        edits=edits,
        rows=evidence_of(stuck),
        threshold_for="gain",
    )


RULE = Rule(
    "fsdp-prefetch",
    measure,
    reads=OF_TRACE,
    requires=("steps",),
    threshold=CALL_TO_LOOK_AT,
    part_of="exposed-communication",
)
