"""A boolean mask makes the host wait.

What it checks
    Host waits inside ``nonzero``, boolean indexing, ``masked_select`` and ``unique``, and the idle time after them.
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

from sawtooth.analysis.findings.builders import wait_evidence
from sawtooth.analysis.findings.context import RuleContext
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
AVOID_MASKS = Action(
    "Avoid", "indexing with boolean masks", ": torch.where, masked_fill and a loss with ignore_index keep the shape."
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if waits inside masking operators cost a relevant share of the step."""
    waits, repeats = waiting_calls(context, MASK_OPERATORS), waiting_calls(context, REPEAT_INTERLEAVE)
    only_repeats = bool(waits) and len(repeats) == len(waits)
    yield from wait_evidence(
        context,
        waits,
        Advice(
            f"{REPEATS_WAIT if only_repeats else MASKS_WAIT}: the GPU loses {{cost}} of each step",
            GIVE_OUTPUT_SIZE if only_repeats else AVOID_MASKS,
            note="Predicted by the replay without the waits; the masking kernels stay.",
            risk="Kernels then also compute on masked elements. If the mask keeps few elements, measure with and without the change.",
            changes=SAME_SHAPE_CHANGES,
        ),
    )


RULE = Rule(
    "boolean-mask-waits",
    measure,
    reads=TRACE_SOURCES,
    explains=Explains(("host_sync",), called="boolean masks, whose size the host waits for", sets=("reads",)),
    requires=("steps",),
    threshold=ONE_LINE_TO_CHANGE,
)
