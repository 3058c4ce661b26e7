"""The gain of a larger batch if the host's launches limit the step."""

from __future__ import annotations

from typing import NamedTuple

from sawtooth.analysis.findings.batch.step import PredictedBatch, host_grows_with_batch, larger_batches
from sawtooth.analysis.findings.context import RuleContext, once
from sawtooth.analysis.findings.loops.acting import acting_passes
from sawtooth.analysis.findings.policy import LARGER_BATCH
from sawtooth.analysis.findings.queries.convolution_searches import searching_convolutions
from sawtooth.analysis.findings.queries.plan_builds import plan_builds
from sawtooth.analysis.findings.queries.telemetry import memory_use

MIN_RATE_FACTOR = 1.3  # Smallest factor of the samples per second that a finding reports.
MIN_FREE_SHARE = 0.5  # Share of the GPU's memory. A doubled batch then fits.
# Limits for the predicted sample rate ÷ the rate if a larger batch only filled the GPU's idle time. Below the lower limit, the loader
# or kernels limit the step. Above the upper limit, kernels grow less than the batch. The finding then reports the prediction.
MIN_OF_FILLED_RATE, MAX_OF_FILLED_RATE = 0.9, 1.1


class LargerBatch(NamedTuple):
    """The gain of a larger batch.

    ``rate`` is the factor of the samples per second, and ``gain_clause`` belongs to the action's text. ``gpu_ms`` is the GPU's work per step, ``free_bytes`` the unused memory, and ``predictions`` has the steps of larger batches.
    """

    rate: float
    gain_clause: str
    gpu_ms: float
    free_bytes: float
    predictions: list[PredictedBatch]


@once
def launch_limited_batch(context: RuleContext) -> LargerBatch | None:
    """Return the gain of a larger batch, None if launches do not limit the step or the gain is small.

    None also if a policy acts in the loop. More samples then need more acting, and a larger batch does not shorten the acting.
    """
    memory, gpu_ms, step_ms = memory_use(context), context.gpu_work_ms(), context.step_ms
    if memory is None or step_ms is None or not 0 < gpu_ms < step_ms:
        return None
    used_bytes, total_bytes = memory
    if context.share(context.lost_ms("launch_bound")) < LARGER_BATCH.share or used_bytes > (1 - MIN_FREE_SHARE) * total_bytes:
        return None
    if _has_other_limit(context, step_ms):
        return None
    predictions, filled_rate = context.once(larger_batches), step_ms / gpu_ms
    rate = filled_rate
    gain_clause = f"with a batch up to about {rate:.1f} times as large, a step takes hardly longer"
    if predictions:
        best, largest = max(predictions, key=lambda batch: batch.rate), predictions[-1]
        largest_is_slower = largest.rate < MIN_OF_FILLED_RATE * min(largest.times, filled_rate)
        if largest_is_slower or best.rate > MAX_OF_FILLED_RATE * filled_rate:
            rate = best.rate
            gain_clause = f"a batch {best.times:g} times as large trains about {rate:.2g} times as many samples per second"
    return LargerBatch(rate, gain_clause, gpu_ms, total_bytes - used_bytes, predictions) if rate >= MIN_RATE_FACTOR else None


def _has_other_limit(context: RuleContext, step_ms: float) -> bool:
    """Return whether the host does other work than launching, or the loader limits the step."""
    feeding = context.rank.best.feeding
    return (
        bool(searching_convolutions(context).count_per_step or plan_builds(context).count_per_step)
        or host_grows_with_batch(context)
        or acting_passes(context) is not None
        or (feeding is not None and feeding.limits(step_ms))
    )
