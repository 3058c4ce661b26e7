"""A boolean mask makes the host wait.

What it checks
    Host waits inside ``nonzero``, boolean indexing, ``masked_select`` and ``unique``, and the idle time after them. Waits that
    cost little are reported if they prevent a CUDA graph.
Why it costs time
    The shape of the result depends on values on the GPU. The host must wait for these values before it can allocate the result.
    After the wait, the host no longer runs ahead of the GPU.
What to do
    Keep the shape: multiply by the mask, or use ``torch.where``. Give the loss an ``ignore_index`` or a weight.
When it is wrong
    The mask keeps a small part of a large tensor. Later kernels then have less work, which can save more time than the wait
    costs.
References
    https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#avoid-unnecessary-cpu-gpu-synchronization
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sawtooth.analysis.findings.builders import wait_evidence
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.capture_obstacles import alone_or_before_a_graph, evidence_before_a_graph
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import ONE_LINE_TO_CHANGE
from sawtooth.analysis.findings.queries.host_reads import (
    GIVE_OUTPUT_SIZE,
    MASK_OPERATORS,
    REPEAT_INTERLEAVE,
    SAME_SHAPE_CHANGES,
    waiting_calls,
)
from sawtooth.analysis.run.model import Action, Explains

MASKS_WAIT = "A boolean mask or nonzero makes the host wait for the number of kept elements"
REPEATS_WAIT = "repeat_interleave makes the host wait for the length of its result"
MASKS_BEFORE_GRAPH = "Boolean masks make the host wait {times} per step, and no CUDA graph can contain these waits"
REPEATS_BEFORE_GRAPH = "repeat_interleave makes the host wait {times} per step, and no CUDA graph can contain these waits"
AVOID_MASKS = Action(
    "Avoid", "indexing with boolean masks", ": torch.where, masked_fill and a loss with ignore_index keep the shape."
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if waits in masking operators cost a relevant share or prevent a graph."""
    waits, repeats = waiting_calls(context, MASK_OPERATORS), waiting_calls(context, REPEAT_INTERLEAVE)
    if not waits:
        return
    only_repeats = len(repeats) == len(waits)
    action = GIVE_OUTPUT_SIZE if only_repeats else AVOID_MASKS
    if repeats and not only_repeats:
        action = replace(action, how=f"{action.how} {GIVE_OUTPUT_SIZE.sentence}")
    advice = Advice(
        f"{REPEATS_WAIT if only_repeats else MASKS_WAIT}: the GPU loses {{cost}} of each step",
        action,
        note="Predicted by the replay without the waits; the masking kernels stay.",
        risk="Kernels then also compute on masked elements. If the mask keeps few elements, measure with and without the change.",
        changes=SAME_SHAPE_CHANGES,
    )
    alone = list(wait_evidence(context, waits, advice))
    before_graph = replace(advice, title=REPEATS_BEFORE_GRAPH if only_repeats else MASKS_BEFORE_GRAPH)
    yield from alone_or_before_a_graph(context, alone, evidence_before_a_graph(context, waits, before_graph))


RULE = Rule(
    "boolean-mask-waits",
    measure,
    reads=TRACE_SOURCES,
    explains=Explains(("host_sync",), called="boolean masks, whose size the host waits for", sets=("reads",)),
    requires=("steps",),
    threshold=ONE_LINE_TO_CHANGE,
)
