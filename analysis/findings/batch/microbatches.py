"""The step of a pipeline with another number of microbatches, or with equal stages.

The stages' kernels come from the kernel-time model, and the host's time from the replay. Both come from the rank in the context,
which represents all stages.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.findings.batch.step import kernels_at
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.ranks.pipeline import shortest_ms
from sawtooth.analysis.replay.edits import Edit, ScaledOps, WithoutCalls, WithoutWaits
from sawtooth.analysis.replay.whatif import HOSTS_DIFFER
from sawtooth.analysis.run.job import Pipeline

MICROBATCHES_PER_STAGE = 4  # From this number on, the bubble is small (Huang et al., GPipe).


class HostTime(NamedTuple):
    """The host's time to launch a step if the GPU never delays it, ms.

    ``once_ms`` is its part after the backward pass, which does not depend on the number of microbatches.
    """

    ms: float
    once_ms: float

    def at(self, times: float) -> float:
        """Return the time for ``times`` as many microbatches, ms."""
        return self.once_ms + (self.ms - self.once_ms) * times


class Fewer(NamedTuple):
    """The step in ms with fewer ``microbatches``: its likely time and both ends of its interval."""

    microbatches: int
    step_ms: float
    low_ms: float
    at_most_ms: float


def more_microbatches(context: RuleContext, pipeline: Pipeline, host: HostTime) -> tuple[int, float, float]:
    """Return the best number of microbatches, its gain per step, and the gain without launch time, ms.

    The last value is for MICROBATCHES_PER_STAGE microbatches per stage.
    """
    micro, now_ms = pipeline.microbatches, shortest_ms(pipeline.stage_ms, pipeline.turns)
    max_microbatches = max(MICROBATCHES_PER_STAGE * len(pipeline.stages), micro)
    for_gpu_ms = {}
    for m in (*range(2 * micro, max_microbatches, micro), max_microbatches):
        longer = _work_factor(context, pipeline, m / micro)
        for_gpu_ms[m] = now_ms - shortest_ms([ms * longer for ms in pipeline.stage_ms], m * pipeline.chunks)
    gains_ms = {m: min(ms, max(now_ms, host.ms) - host.at(m / micro)) for m, ms in for_gpu_ms.items()}
    best = max(gains_ms, key=lambda m: gains_ms[m])
    return best, max(gains_ms[best], 0.0), for_gpu_ms[max_microbatches]


def fewer_microbatches(context: RuleContext, pipeline: Pipeline, host: HostTime) -> Fewer | None:
    """Return the best smaller number of microbatches; None if no smaller number is possible.

    There are at least as many as stages. An interleaved schedule needs a multiple of this number.
    """
    micro, stages = pipeline.microbatches, len(pipeline.stages)
    numbers = [m for m in range(stages, micro // 2 + 1) if micro % m == 0 and (pipeline.chunks == 1 or m % stages == 0)]
    if not numbers:
        return None
    best = min(numbers, key=lambda m: _at_most_ms(pipeline, host, m))
    return _with_fewer(context, pipeline, host, best)


def _at_most_ms(pipeline: Pipeline, host: HostTime, microbatches: int) -> float:
    """Return the upper end of the step: unchanged work of the stages, and a slow host."""
    host_ms = host.at(microbatches / pipeline.microbatches) * (1 + HOSTS_DIFFER)
    return max(shortest_ms(pipeline.stage_ms, microbatches * pipeline.chunks), host_ms)


def _with_fewer(context: RuleContext, pipeline: Pipeline, host: HostTime, microbatches: int) -> Fewer:
    """Return the step with fewer, larger microbatches.

    The kernel-time model makes larger kernels too fast. So the upper end has the present work of the stages. Time that neither
    the GPUs nor this host need today remains, such as the delay of a late rank.
    """
    now_ms = max(shortest_ms(pipeline.stage_ms, pipeline.turns), host.ms)
    rest_ms = max((context.step_ms or 0.0) - now_ms, 0.0)
    times, turns = microbatches / pipeline.microbatches, microbatches * pipeline.chunks
    works = _work_factor(context, pipeline, times)
    model_ms = shortest_ms([ms * works for ms in pipeline.stage_ms], turns)
    same_ms, host_ms = shortest_ms(pipeline.stage_ms, turns), host.at(times)
    return Fewer(
        microbatches,
        rest_ms + max((model_ms + same_ms) / 2, host_ms),
        rest_ms + max(model_ms, host_ms / (1 + HOSTS_DIFFER)),
        rest_ms + _at_most_ms(pipeline, host, microbatches),
    )


def _work_factor(context: RuleContext, pipeline: Pipeline, times: float) -> float:
    """Return how many times as long a stage works with ``times`` as many microbatches.

    Each kernel is then launched more often, for less work, and the GPU waits for its dispatch each time. Work after the
    backward pass does not change. The rank in ``context`` represents all stages.
    """
    work = context.work
    if work.empty:
        return 1.0
    stays = (work["category"] == "communication").to_numpy() | _after_backward(context)
    now_ns, new_ns = work["dur_ns"].to_numpy(float), np.array(kernels_at(context, work, 1 / times).dur_ns, float)
    added_ms = np.where(stays, 0.0, times * new_ns - now_ns).sum() / context.work_steps / 1e6
    dispatch_ms = context.lost_ms("launch_latency") * float((~stays).mean()) * (times - 1)
    longer_ms = float(added_ms) + dispatch_ms
    return 1 + (max(longer_ms, 0.0) if times >= 1 else min(longer_ms, 0.0)) / max(pipeline.stage_ms)


def _after_backward(context: RuleContext) -> NDArray[np.bool_]:
    """Return which operations of ``context.work`` run after the last one of their step's backward pass.

    They run once per step, for any number of microbatches.
    """
    last = np.full(context.work_steps, -1)
    step = context.work["step"].rank(method="dense").to_numpy(np.int64) - 1
    backward = context.launches.in_backward()
    np.maximum.at(last, step[backward], backward)
    return (last[step] >= 0) & (np.arange(len(step)) > last[step])


def even_stages_gain_ms(pipeline: Pipeline, host_ms: float) -> float:
    """Return the gain per step of stages with equal work, ms.

    Layers that leave a stage take their launches with them.
    """
    now_ms = max(shortest_ms(pipeline.stage_ms, pipeline.turns), host_ms)
    launched_ms = host_ms * sum(pipeline.stage_ms) / len(pipeline.stage_ms) / max(pipeline.stage_ms)
    return max(min(pipeline.imbalance_ms, now_ms - launched_ms), 0.0)


def host_time(context: RuleContext) -> HostTime:
    """Return the host's time to launch a step; 0 if not known."""
    if context.whatif is None:
        return HostTime(0.0, 0.0)
    edits: list[Edit] = [ScaledOps(tuple(context.whatif.problem.ops.op.tolist()), 0.0), WithoutWaits()]
    each = context.work.loc[~_after_backward(context), "gpu_op_id"].tolist()
    calls = context.recording.rows(
        "SELECT DISTINCT call_id FROM gpu_ops WHERE call_id IS NOT NULL AND gpu_op_id IN (SELECT unnest(?::BIGINT[])) ORDER BY 1",
        [each],
    )
    once_ms = context.predict_ms([*edits, WithoutCalls(tuple(call for (call,) in calls))])
    return HostTime(context.predict_ms(edits) or 0.0, once_ms or 0.0)
