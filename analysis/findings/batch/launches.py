"""The gain of a larger batch if the host's launches limit the step."""

from __future__ import annotations

from typing import NamedTuple

from sawtooth.analysis.findings.batch.step import AtBatch, host_grows_with_batch, larger_batches
from sawtooth.analysis.findings.context import RuleContext, once
from sawtooth.analysis.findings.loops.acting import acting
from sawtooth.analysis.findings.policy import LARGER_BATCH
from sawtooth.analysis.findings.queries.convolution_searches import searching_convolutions
from sawtooth.analysis.findings.queries.plan_builds import plan_builds
from sawtooth.analysis.findings.queries.telemetry import memory_use

MIN_RATE_FACTOR = 1.3  # Smallest gain in samples per second that is reported.
FREE = 0.5  # A doubled batch fits if at least this share of the GPU's memory is free.
# Limits for the predicted sample rate ÷ the rate of a step that launches alone limit. Outside these limits, the prediction is
# reported: below, the loader or kernels limit the step; above, kernels grow less than the batch.
AS_FAR, MORE = 0.9, 1.1


class LargerBatch(NamedTuple):
    """The gain of a larger batch: the factor ``rate`` of the samples per second, and a clause ``how``.

    ``busy_ms`` is the GPU's work per step, ``free_bytes`` its unused memory, ``predicted`` has the steps of larger batches.
    """

    rate: float
    how: str
    busy_ms: float
    free_bytes: float
    predicted: list[AtBatch]


@once
def fills_launches(context: RuleContext) -> LargerBatch | None:
    """Return the gain of a larger batch if launches limit the step; None if not, or for a small gain.

    None also if a policy acts in the loop: more samples then need more acting, which a larger batch does not shorten.
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
    how = f"a step with a batch up to about {rate:.1f} times as large hardly takes longer"
    if best is not None and (larger[-1].rate < AS_FAR * min(larger[-1].times, rate) or best.rate > MORE * rate):
        rate, how = (
            best.rate,
            f"a batch {best.times:g} times as large trains about {best.rate:.2g} times as many samples per second",
        )
    return LargerBatch(rate, how, busy, use[1] - use[0], larger) if rate >= MIN_RATE_FACTOR else None
