"""Most of the memory is unused.

What it checks
    The share of the GPU's memory in use at the peak, and whether a larger batch would train at least a quarter faster.
    If launches limit the step, the rule small-batch gives the advice. In a pipeline, the rule pipeline-bubble does.
Why it costs time
    A larger batch distributes the optimizer's step, launches and communication over more samples, and makes matrix products
    more efficient.
What to do
    Raise the batch size (and tune the learning rate again), or remove techniques that only save memory: recomputation, offloading,
    accumulation.
When it is wrong
    The optimization needs this batch size, or other programs share the GPU.
References
    https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.batch.code import larger_batch_code
from sawtooth.analysis.findings.batch.launches import launch_limited_batch
from sawtooth.analysis.findings.batch.step import batch_sentence, larger_batches
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.queries.telemetry import memory_use
from sawtooth.analysis.run.model import Action, Explains
from sawtooth.analysis.units import in_memory

MAX_USED_SHARE = 0.5  # Of the memory. If less is in use, a batch twice as large certainly fits.
MIN_RATE_FACTOR = 1.25  # For samples per second. A smaller gain does not justify a larger batch and another learning rate.


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield an info finding if much of the memory is unused and a larger batch trains faster."""
    memory = memory_use(context)
    if memory is None or launch_limited_batch(context) is not None:
        return
    used_bytes, total_bytes = memory
    if used_bytes > MAX_USED_SHARE * total_bytes:
        return
    if context.run.communication is not None and context.run.communication.pipeline:
        return  # A stage also waits for other stages, which its own kernels do not show.
    predictions = context.once(larger_batches)
    faster = [batch for batch in predictions if batch.rate >= MIN_RATE_FACTOR and not batch.host_limits]
    if not faster:
        return
    best = max(faster, key=lambda batch: batch.rate)
    yield Evidence(
        Advice(
            f"{in_memory(total_bytes - used_bytes)} of {in_memory(total_bytes)} of memory are unused, and a batch {best.times:g} times as large trains about {best.rate:.2g} times as many samples per second",
            Action(
                "Try",
                "a larger batch and compare samples per second",
                "; remove recomputation or accumulation where they only save memory.",
            ),
            note=batch_sentence(predictions),
            risk="A larger batch changes the optimization, and may need another learning rate.",
            changes=larger_batch_code(context.run, 2),
        ),
        confidence="low",
        severity="info",
        rows=[{"memory_used_bytes": used_bytes, "memory_bytes": total_bytes}, *(batch.row() for batch in predictions)],
    )


RULE = Rule(
    "memory-headroom",
    measure,
    reads=TRACE_SOURCES | {"allocations", "telemetry"},
    explains=Explains(topics=frozenset({"memory", "spare_memory"})),
    requires=("steps",),
)
