"""Most of the memory is unused.

What it checks
    Peak memory in use, relative to the GPU's memory, and whether a larger batch is predicted to train at least a quarter faster.
    Where the host limits the step, the rule for small batches reports it, and in a pipeline the rule for its bubble.
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
from sawtooth.analysis.findings.batch.launches import fills_launches
from sawtooth.analysis.findings.batch.step import larger_batches, sentence
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.queries.telemetry import memory_use
from sawtooth.analysis.run.model import Action, Explains
from sawtooth.analysis.units import in_bytes

USED = 0.5  # Share of the memory. Below it, a batch twice as large certainly fits.
PAYS = 1.25  # Multiple of today's samples per second. A smaller gain does not justify a larger batch and another learning rate.


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield an info finding if less than USED of the memory is in use and a larger batch trains faster.

    If launches limit the step, the rule small-batch covers it, and in a pipeline the rule pipeline-bubble.
    """
    use = memory_use(context)
    if use is None or use[0] > USED * use[1] or fills_launches(context) is not None:
        return
    if context.run.communication is not None and context.run.communication.pipeline:
        return  # A stage also waits for the others, which its own kernels do not show.
    larger = context.once(larger_batches)
    paying = [at for at in larger if at.rate >= PAYS and not at.host_limits]
    if not paying:
        return
    best = max(paying, key=lambda at: at.rate)
    yield Evidence(
        Advice(
            f"{in_bytes(use[1] - use[0])} of {in_bytes(use[1])} of memory are unused, and a batch {best.times:g} times as large trains about {best.rate:.2g} times as many samples per second",
            Action(
                "Try",
                "a larger batch and compare samples per second",
                "; remove recomputation or accumulation where they only save memory.",
            ),
            note=sentence(larger),
            risk="A larger batch changes the optimization, and may need another learning rate.",
            changes=larger_batch_code(context.run, 2),
        ),
        confidence="low",
        severity="info",
        rows=[{"memory_used_bytes": use[0], "memory_bytes": use[1]}, *(at.row() for at in larger)],
    )


RULE = Rule(
    "memory-headroom",
    measure,
    reads=OF_TRACE | {"allocations", "telemetry"},
    explains=Explains(topics=frozenset({"memory", "spare_memory"})),
    requires=("steps",),
)
