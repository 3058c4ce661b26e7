"""A boolean mask makes the host wait.

What it checks
    Host waits inside ``nonzero``, boolean indexing, ``masked_select`` and ``unique``, and the idle time after them.
Why it costs time
    The shape of the result depends on values on the GPU. The host must wait for them before it can allocate the result. After
    that, it no longer runs ahead of the GPU.
What to do
    Keep the shape: multiply by the mask, or use ``torch.where``. Give the loss an ``ignore_index`` or a weight.
When it is wrong
    The mask keeps a small part of a large tensor. The smaller work afterwards can save more time than the wait costs.
References
    https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#avoid-unnecessary-cpu-gpu-synchronization
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.builders import wait_evidence
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import ONE_LINE
from sawtooth.analysis.findings.queries.host_reads import MASK_OPERATORS, OUTPUT_SIZE, REPEATS, SAME_SHAPE, waiting_calls
from sawtooth.analysis.run.model import Action, Explains

MASKS = "A boolean mask or nonzero makes the host wait for the number of kept elements"


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if waits inside masking operators cost a relevant share of the step."""
    waits, repeats = waiting_calls(context, MASK_OPERATORS), waiting_calls(context, REPEATS)
    of_repeats = bool(waits) and len(repeats) == len(waits)
    yield from wait_evidence(
        context,
        waits,
        Advice(
            f"{'repeat_interleave makes the host wait for the length of its result' if of_repeats else MASKS}: the GPU loses {{cost}} of each step",
            OUTPUT_SIZE
            if of_repeats
            else Action(
                "Avoid",
                "indexing with boolean masks",
                ": torch.where, masked_fill and a loss with ignore_index keep the shape.",
            ),
            note="Predicted by the replay without the waits; the masking kernels stay.",
            risk="The work then includes masked elements. If few elements are kept, measure both ways.",
            changes=SAME_SHAPE,
        ),
    )


RULE = Rule(
    "boolean-mask-waits",
    measure,
    reads=OF_TRACE,
    explains=Explains(("host_sync",), called="boolean masks, whose size the host waits for", sets=("reads",)),
    requires=("steps",),
    threshold=ONE_LINE,
)
