"""The step of a pipeline with another number of microbatches, or with equal stages.

The kernel-time model gives the stages' kernels, and the replay the host's time. The rank in the context represents all stages.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.findings.batch.step import kernels_for_batch
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.ranks.pipeline import shortest_ms
from sawtooth.analysis.replay.edits import Edit, ScaledOps, WithoutCalls, WithoutWaits
from sawtooth.analysis.replay.whatif import HOST_LIMITED_STEP_DIFFERENCE
from sawtooth.analysis.run.job import Pipeline

MICROBATCHES_PER_STAGE = 4  # With this number, the bubble is small (Huang et al., GPipe).


class HostTime(NamedTuple):
    """The host's time to launch a step if the GPU never delays the host, ms.

    ``once_ms`` is the part after the backward pass, which does not depend on the number of microbatches.
    """

    ms: float
    once_ms: float

    def ms_for(self, times: float) -> float:
        """Return the time for ``times`` as many microbatches, ms."""
        return self.once_ms + (self.ms - self.once_ms) * times


class FewerMicrobatches(NamedTuple):
    """The step in ms with fewer ``microbatches``, and its interval."""

    microbatches: int
    step_ms: float
    low_ms: float
    high_ms: float


def more_microbatches(context: RuleContext, pipeline: Pipeline, host: HostTime) -> tuple[int, float, float]:
    """Return the best number of microbatches, the gain per step, and a gain without launch time, ms.

    The last value is the gain of MICROBATCHES_PER_STAGE microbatches per stage.
    """
    present, gpu_ms = pipeline.microbatches, shortest_ms(pipeline.stage_ms, pipeline.turns)
    max_microbatches = max(MICROBATCHES_PER_STAGE * len(pipeline.stages), present)
    gpu_gains_ms = {}
    for number in (*range(2 * present, max_microbatches, present), max_microbatches):
        work_factor = _work_factor(context, pipeline, number / present)
        stage_ms = [ms * work_factor for ms in pipeline.stage_ms]
        gpu_gains_ms[number] = gpu_ms - shortest_ms(stage_ms, number * pipeline.chunks)
    gains_ms = {
        number: min(gain_ms, max(gpu_ms, host.ms) - host.ms_for(number / present)) for number, gain_ms in gpu_gains_ms.items()
    }
    best = max(gains_ms, key=lambda number: gains_ms[number])
    return best, max(gains_ms[best], 0.0), gpu_gains_ms[max_microbatches]


def fewer_microbatches(context: RuleContext, pipeline: Pipeline, host: HostTime) -> FewerMicrobatches | None:
    """Return the best smaller number of microbatches, None if no smaller number is possible.

    A schedule needs at least one microbatch per stage. An interleaved schedule needs a multiple of the number of stages.
    """
    present, stages = pipeline.microbatches, len(pipeline.stages)
    divisors = [number for number in range(stages, present // 2 + 1) if present % number == 0]
    numbers = divisors if pipeline.chunks == 1 else [number for number in divisors if number % stages == 0]
    if not numbers:
        return None
    best = min(numbers, key=lambda number: _max_step_ms(pipeline, host, number))
    return _with_fewer(context, pipeline, host, best)


def _max_step_ms(pipeline: Pipeline, host: HostTime, microbatches: int) -> float:
    """Return the upper end of the step: unchanged work of the stages, and a slow host."""
    host_ms = host.ms_for(microbatches / pipeline.microbatches) * (1 + HOST_LIMITED_STEP_DIFFERENCE)
    return max(shortest_ms(pipeline.stage_ms, microbatches * pipeline.chunks), host_ms)


def _with_fewer(context: RuleContext, pipeline: Pipeline, host: HostTime, microbatches: int) -> FewerMicrobatches:
    """Return the step with fewer, larger microbatches.

    The kernel-time model predicts too short times for larger kernels. So the upper end uses the stages' present work. The
    step keeps the time that neither the GPUs nor the host need today, such as the delay of a late rank.
    """
    needed_ms = max(shortest_ms(pipeline.stage_ms, pipeline.turns), host.ms)
    rest_ms = max((context.step_ms or 0.0) - needed_ms, 0.0)
    times, turns = microbatches / pipeline.microbatches, microbatches * pipeline.chunks
    work_factor = _work_factor(context, pipeline, times)
    model_ms = shortest_ms([ms * work_factor for ms in pipeline.stage_ms], turns)
    unchanged_ms, host_ms = shortest_ms(pipeline.stage_ms, turns), host.ms_for(times)
    return FewerMicrobatches(
        microbatches,
        rest_ms + max((model_ms + unchanged_ms) / 2, host_ms),
        rest_ms + max(model_ms, host_ms / (1 + HOST_LIMITED_STEP_DIFFERENCE)),
        rest_ms + _max_step_ms(pipeline, host, microbatches),
    )


def _work_factor(context: RuleContext, pipeline: Pipeline, times: float) -> float:
    """Return the factor of a stage's work with ``times`` as many microbatches.

    With more microbatches, the host launches each kernel more often, for less work, and the GPU waits for each launch. Work after
    the backward pass does not change.
    """
    work = context.work
    if work.empty:
        return 1.0
    is_constant = (work["category"] == "communication").to_numpy() | _after_backward(context)
    old_ns, new_ns = work["dur_ns"].to_numpy(float), np.array(kernels_for_batch(context, work, 1 / times).dur_ns, float)
    added_ms = np.where(is_constant, 0.0, times * new_ns - old_ns).sum() / context.work_steps / 1e6
    dispatch_ms = context.lost_ms("launch_latency") * float((~is_constant).mean()) * (times - 1)
    change_ms = float(added_ms) + dispatch_ms
    change_ms = max(change_ms, 0.0) if times >= 1 else min(change_ms, 0.0)
    return 1 + change_ms / max(pipeline.stage_ms)


def _after_backward(context: RuleContext) -> NDArray[np.bool_]:
    """Return which operations of ``context.work`` run after their step's backward pass.

    These operations run once per step, for any number of microbatches.
    """
    last_backward = np.full(context.work_steps, -1)
    step = context.work["step"].rank(method="dense").to_numpy(np.int64) - 1
    backward = context.launches.launched_in_backward()
    np.maximum.at(last_backward, step[backward], backward)
    return (last_backward[step] >= 0) & (np.arange(len(step)) > last_backward[step])


def even_stages_gain_ms(pipeline: Pipeline, host_ms: float) -> float:
    """Return the gain per step of stages with equal work, ms.

    The host's time also falls, because layers that move to another stage are launched there.
    """
    now_ms = max(shortest_ms(pipeline.stage_ms, pipeline.turns), host_ms)
    even_host_ms = host_ms * sum(pipeline.stage_ms) / len(pipeline.stage_ms) / max(pipeline.stage_ms)
    return max(min(pipeline.imbalance_ms, now_ms - even_host_ms), 0.0)


def host_time(context: RuleContext) -> HostTime:
    """Return the host's time to launch a step, 0 if not known."""
    if context.whatif is None:
        return HostTime(0.0, 0.0)
    edits: list[Edit] = [ScaledOps(tuple(context.whatif.problem.ops.op.tolist()), 0.0), WithoutWaits()]
    microbatch_ops = context.work.loc[~_after_backward(context), "gpu_op_id"].tolist()
    calls = context.recording.rows(
        "SELECT DISTINCT call_id FROM gpu_ops WHERE call_id IS NOT NULL AND gpu_op_id IN (SELECT unnest(?::BIGINT[])) ORDER BY 1",
        [microbatch_ops],
    )
    once_ms = context.predict_ms([*edits, WithoutCalls(tuple(call for (call,) in calls))])
    return HostTime(context.predict_ms(edits) or 0.0, once_ms or 0.0)
