"""How much larger a batch may be before its step takes longer, if the host's launches limit the step."""

from __future__ import annotations

from typing import NamedTuple

from sawtooth.analysis.findings.batch.step import AtBatch, host_grows_with_batch, larger_batches
from sawtooth.analysis.findings.context import RuleContext, once
from sawtooth.analysis.findings.loops.acting import acting
from sawtooth.analysis.findings.policy import LARGER_BATCH
from sawtooth.analysis.findings.queries.convolution_searches import searching_convolutions
from sawtooth.analysis.findings.queries.plan_builds import plan_builds
from sawtooth.analysis.findings.queries.telemetry import memory_use

LEAST_RATE_FACTOR = 1.3  # Multiple of today's sample rate.
AS_FAR = 0.9  # Share of the sample rate that launches alone would allow.
FREE = 0.5  # Share of the GPU's memory. With this much free, a doubled batch certainly fits.
MORE = 1.1  # Multiple of the sample rate that launches alone would allow. From here on, the predicted step decides.


class LargerBatch(NamedTuple):
    """The gain in samples per second of a larger batch, and how in words.

    ``busy_ms`` is the GPU's need per step, ``free_bytes`` its unused memory, ``predicted`` the steps of larger batches.
    """

    rate: float
    how: str
    busy_ms: float
    free_bytes: float
    predicted: list[AtBatch]


@once
def fills_launches(context: RuleContext) -> LargerBatch | None:
    """Return the larger batch that the launches of today's step allow; None if they do not limit it.

    More samples need more acting where a policy acts, which a larger update does not shorten.
    """
    use, busy, step_ms = memory_use(context), context.gpu_needs_ms(), context.step_ms
    if (
        context.share(context.lost_ms("launch_bound")) < LARGER_BATCH.share
        or use is None
        or use[0] > (1 - FREE) * use[1]
        or step_ms is None
        or not 0 < busy < step_ms
        or searching_convolutions(context).count  # The host tries algorithms instead of launching.
        or plan_builds(context).count  # The host builds plans for new shapes.
        or host_grows_with_batch(context)
        or acting(context) is not None
        or (context.rank.best.feeding is not None and context.rank.best.feeding.limits(step_ms))
    ):
        return None
    larger, rate = context.once(larger_batches), step_ms / busy
    best = max(larger, key=lambda at: at.rate, default=None)
    how = f"up to about {rate:.1f} times as large takes hardly longer"
    # Something else limits a larger batch (the loader, kernels that grow more than it), or kernels grow less than the batch.
    if best is not None and (larger[-1].rate < AS_FAR * min(larger[-1].times, rate) or best.rate > MORE * rate):
        rate, how = best.rate, f"{best.times:g} times as large trains about {best.rate:.2g} times the samples a second"
    return LargerBatch(rate, how, busy, use[1] - use[0], larger) if rate >= LEAST_RATE_FACTOR else None
