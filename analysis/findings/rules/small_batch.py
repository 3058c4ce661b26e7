"""The batch is too small for this GPU.

What it checks
    A launch-bound step on a GPU with mostly free memory. The batch goes through the model at once, and the loader delivers it
    in time.
Why it costs time
    The host needs the same time to launch a step for any batch size. A larger batch gives each launch more work.
What to do
    Raise the batch size until the GPU is busy or memory is used, and the learning rate with it. Or accumulate less.
When it is wrong
    The optimization needs this batch size, or you need low latency. Then launch less often (CUDA graph, compile).
References
    https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from sawtooth.analysis.findings.batch.code import larger_batch_code
from sawtooth.analysis.findings.batch.step import NOT_PREDICTED, host_grows_with_batch, larger_batches, sentence
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import LARGER_BATCH
from sawtooth.analysis.findings.queries.convolution_searches import searching_convolutions
from sawtooth.analysis.findings.queries.plan_builds import plan_builds
from sawtooth.analysis.findings.queries.telemetry import memory_use
from sawtooth.analysis.run.model import Action, Explains
from sawtooth.analysis.units import in_bytes, in_words

LEAST_RATE_FACTOR = 1.3  # Multiple of today's sample rate.
AS_FAR = 0.9  # Share of the sample rate that launches alone would allow.
FREE = 0.5  # Share of the GPU's memory. With this much free, a doubled batch certainly fits.


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if launches cost a relevant share and at least FREE of the memory is unused."""
    use = memory_use(context)
    busy = context.gpu_needs_ms()
    if (
        context.is_trifle(context.lost_ms("launch_bound"))
        or use is None
        or use[0] > (1 - FREE) * use[1]
        or context.step_ms is None
        or not 0 < busy < context.step_ms
        or searching_convolutions(context).count  # The host tries algorithms instead of launching.
        or plan_builds(context).count  # The host builds plans for new shapes.
        or host_grows_with_batch(context)
        or (context.rank.best.feeding is not None and context.rank.best.feeding.limits(context.step_ms))
    ):
        return
    larger, times = context.once(larger_batches), context.step_ms / busy
    if larger and larger[-1].rate < AS_FAR * min(larger[-1].times, times):
        # Something else limits a larger batch: the loader, or kernels that grow more than the batch.
        times = max(at.rate for at in larger)
    if times < LEAST_RATE_FACTOR:
        return
    trains = len(context.launches.in_backward()) > 0
    yield Evidence(
        Advice(
            f"Launching a step takes the CPU {in_words(context.step_ms)}; the GPU needs {in_words(busy)} and has {in_bytes(use[1] - use[0])} free",
            Action(
                "Raise",
                "the batch size",
                f": up to about {times:.1f} times as large takes hardly longer.{' Raise the learning rate with it.' if trains else ''}",
            ),
            note=f"The step stays as long and does more work. {sentence(larger) or NOT_PREDICTED}",
            risk=f"{'A larger batch changes the optimization' if trains else 'Each request waits for the rest of its batch'}; memory grows with it.",
            changes=larger_batch_code(context.run, 2 ** max(int(math.log2(times)), 1)),
        ),
        severity="info",
        rows=[*(at.row() for at in larger), *context.gap_evidence("launch_bound")],
        samples_per_second_times=times,
        cost_ms=context.lost_ms("launch_bound"),
    )


RULE = Rule(
    "small-batch",
    measure,
    reads=OF_TRACE | {"allocations", "telemetry"},
    explains=Explains(("launch_bound", "python_host"), topics=frozenset({"memory"})),
    requires=("steps",),
    bar=LARGER_BATCH,
)
