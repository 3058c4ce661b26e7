"""Step time and memory of another batch size, predicted from one trace.

The step time comes from a replay with new times of the kernels that grow with the batch. Products, convolutions and attention use
the kernel-time model at the new and the old shape. Kernels that move tensors grow with the tensors' bytes, if these fill the GPU.
The optimizer's launches, kernels that only touch parameters, and the host keep their times. With a smaller batch the host may limit
the step, but a trace does not show the host's speed well while the GPU is the limit. So the interval reaches from the fastest likely
host to the slowest host that would not lengthen today's step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.batch.growth import Scale
from sawtooth.analysis.findings.batch.host import hidden_host, host_of_run
from sawtooth.analysis.findings.batch.memory import memory_at
from sawtooth.analysis.findings.batch.overlap import MIN_FILLED_SHARE, Overlap
from sawtooth.analysis.findings.batch.sample_loop import sample_loop
from sawtooth.analysis.findings.recorded.counted_operations import SAME_LAUNCH, launched_by_optimizer, launched_inside
from sawtooth.analysis.findings.recorded.parameters import Shape, parameters_of
from sawtooth.analysis.replay.edits import FasterHost, ScaledOps, TimedOps
from sawtooth.analysis.replay.whatif import GPU_LIMITED_STEP_DIFFERENCE, STEP_ERROR, WhatIf
from sawtooth.analysis.units import in_memory, in_words

if TYPE_CHECKING:
    from sawtooth.analysis.findings.context import RuleContext

EMPTY_KERNEL_NS = 2_000  # Duration of a kernel without work.
MAX_LOADER_SHARE = 0.05  # Share of the step. If the loop waits longer for the loader, a larger batch gains nothing.
# Host time ÷ replayed host time, if the GPU hides the host. Six loops with timed smaller batches had 0.77 to 1.36, 1.1 on average.
LIKELY_HOST = 1.1
# Factor by which a limiting host's speed varies over time. 11 sizes of three models were timed twice within a minute on an H200's
# host: the longer time was 1.03 to 1.37 times the shorter. Three other sizes took 1.4 to 1.5 times the predicted time.
HOST_VARIES = 1.5
SHORTENED_SHARE = 0.01  # Operations shortened to this share of their duration delay nothing.
# Share of the step. If a faster host (HOST_VARIES or QUICKEST_HOST) saves at least this share, the host limits the step.
MIN_HOST_SHARE = 0.1
QUICKEST_HOST = 0.75  # Smallest likely host time ÷ replayed host time, which already excludes the profiler's cost.
# Time of a kernel that fills the GPU ÷ time for its bytes at the memory's full rate. Most such kernels take less
# (kernel_time.toml). The rest of a kernel's time is latency.
MAX_STREAM_FACTOR = 8.0
MAX_LATENCY_NS = 50_000  # The time of longer kernels is not latency, but slow work, such as a batch norm over channel planes.
NOT_PREDICTED = "Not predicted: a prediction needs shapes, a replay, a loader that keeps up, and samples that go through the model together."
NEXT_FACTORS = (2.0, 4.0)  # Batch factors that a user would try next.
ZERO_GRAD = r"^Optimizer\.zero_grad#"


@dataclass(frozen=True)
class PredictedBatch:
    """Prediction for a batch ``times`` as large.

    ``step_ms`` is the step time, with the interval ``low_ms`` to ``high_ms``. ``rate`` is the sample rate ÷ today's. ``memory_bytes``
    is the peak memory in use (None if the trace has no allocations). ``host_limits`` is True if the host determines the step. The
    interval is then more useful than ``step_ms``, because the host's speed varies.
    """

    times: float
    step_ms: float
    low_ms: float
    high_ms: float
    rate: float
    memory_bytes: float | None
    host_limits: bool = False

    def row(self) -> dict[str, float | None]:
        """Return the prediction as a row of evidence."""
        return {
            "batch_times": self.times,
            "step_ms": self.step_ms,
            "low_ms": self.low_ms,
            "high_ms": self.high_ms,
            "samples_per_second_times": self.rate,
            "memory_bytes": self.memory_bytes,
        }


def predict_batches(context: RuleContext, factors: Sequence[float]) -> list[PredictedBatch]:
    """Return the prediction for each batch factor.

    Empty without shapes or a replay, or if the host takes longer for a larger batch.
    """
    if context.whatif is None or not context.step_ms or context.work.empty or host_grows_with_batch(context):
        return []
    parameters = parameters_of(context.recording, context.rank.device)
    if not parameters:
        return []
    best = context.rank.best
    loader_limits = best.feeding is not None and best.feeding.limits(context.step_ms)
    overlap = _filling_overlap(context)
    # A loader or a GPU that limits the run explains why the step is longer than the replay. The host's speed does not.
    host = () if loader_limits or overlap else host_of_run(context.whatif, best)
    slow_host = hidden_host(context.whatif, best) if not host and min(factors, default=1.0) < 1 else 1.0
    kernels = _kernels_of(context, context.work, parameters)
    memory: Sequence[float | None] = memory_at(context.recording, context.rank.device, factors) or [None] * len(factors)
    predictions = []
    for times, memory_bytes in zip(factors, memory, strict=True):
        edit = _edit(context, context.work, kernels, times)
        step = _step(context, host, edit, slow_host if times < 1 else 1.0, overlap)
        if step is None:
            return []
        loading_ms = best.feeding.floors_ms(context.step_ms, times) if best.feeding is not None else (0.0,) * 3
        ms, low, high = (max(edge, floor) for edge, floor in zip(step[:3], loading_ms, strict=True))
        rate = times * context.step_ms / ms
        predictions.append(PredictedBatch(times, ms, low, high, rate, memory_bytes, step.host_limits))
    return predictions


def host_grows_with_batch(context: RuleContext) -> bool:
    """Return whether the host takes longer for a larger batch.

    The host takes longer if it waits for the loader or has waits that the profile does not show, or if it calls the model once
    per sample.
    """
    waits = context.share(context.lost_ms("data_wait")) > MAX_LOADER_SHARE or not context.rank.best.represented
    return waits or context.once(sample_loop) is not None


def kernels_for_batch(context: RuleContext, rows: pd.DataFrame, times: float) -> TimedOps:
    """Return the edit that sets the time of each kernel for ``times`` the batch.

    ``rows`` are the kernels' rows of ``RuleContext.work``.
    """
    return _edit(context, rows, _kernels_of(context, rows, parameters_of(context.recording, context.rank.device)), times)


def larger_batches(context: RuleContext) -> list[PredictedBatch]:
    """Return the predictions for NEXT_FACTORS.

    Call this through ``RuleContext.once``, because several rules use the result.
    """
    return predict_batches(context, NEXT_FACTORS)


def _filling_overlap(context: RuleContext) -> Overlap | None:
    """Return the overlap of the operations if they fill the run's step and the replay is shorter."""
    replayed_ms, best_ms = context.whatif.step_ms() if context.whatif else None, context.rank.best.ms
    overlap = Overlap.of(context.work)
    filled_ms = overlap.filled_ns.sum() / 1e6 / max(context.work["step"].nunique(), 1)
    if not replayed_ms or not best_ms or filled_ms < MIN_FILLED_SHARE * best_ms:
        return None
    return overlap if replayed_ms < (1 - GPU_LIMITED_STEP_DIFFERENCE) * filled_ms else None


class _StepRange(NamedTuple):
    ms: float
    low_ms: float
    high_ms: float
    host_limits: bool


def _step(
    context: RuleContext, host: tuple[FasterHost, ...], edit: TimedOps, slow_host: float, overlap: Overlap | None
) -> _StepRange | None:
    """Return the run's step with ``edit`` applied, and the interval of this step, ms.

    The interval includes the uncertainty of the kernels, of the replay and of today's step. ``slow_host`` is the largest factor
    for the replay's host time, 1 if the host does not matter. With ``overlap``, the step is at least the time that the operations
    fill.
    """
    best, whatif = replace(context.rank.best, feeding=None), context.whatif  # The loader's timing belongs to today's batch.
    assert whatif is not None and best.ms is not None
    edits = [TimedOps(edit.ops, dur_ns) for dur_ns in (edit.dur_ns, edit.low_ns, edit.high_ns)]
    run_factor = host[0].factor if host else 1.0
    if slow_host > 1:
        host_factors = (min(LIKELY_HOST, slow_host), QUICKEST_HOST, slow_host)
    else:
        host_factors = (run_factor, run_factor / HOST_VARIES, run_factor * HOST_VARIES)
    present_ms = _step_at_host_speed_ms(whatif, run_factor)
    new_ms = [_step_at_host_speed_ms(whatif, factor, edge) for factor, edge in zip(host_factors, edits, strict=True)]
    fast_host_ms = _step_at_host_speed_ms(whatif, host_factors[1], edits[0])
    if overlap is not None:
        old_ns, ns_per_ms = context.work["dur_ns"].to_numpy(float), 1e6 * max(context.work["step"].nunique(), 1)
        durations = (old_ns, *(np.array(edge.dur_ns, float) for edge in edits))
        present_ms, *filled_ms = (overlap.all_filled_ns(old_ns, dur_ns) / ns_per_ms for dur_ns in durations)
        *new_ms, fast_host_ms = (
            max(ms, floor) if ms else None
            for ms, floor in zip((*new_ms, fast_host_ms), (*filled_ms, filled_ms[0]), strict=True)
        )
    scaled_ms = [best.ms * ms / present_ms for ms in new_ms if ms is not None and present_ms]
    if len(scaled_ms) < len(edits) or not present_ms:
        return None
    ms, low, high = scaled_ms
    error_ms = STEP_ERROR * ms
    low_ratio, high_ratio = ((edge or best.ms) / best.ms for edge in (best.reading.low, best.reading.high))
    max_ms = (max(high, ms) + error_ms) * max(high_ratio, 1 + GPU_LIMITED_STEP_DIFFERENCE)
    if slow_host > 1:  # Less work does not take longer.
        max_ms = min(max_ms, best.ms * max(high_ratio, 1 + GPU_LIMITED_STEP_DIFFERENCE))
    host_limits = fast_host_ms is not None and best.ms * fast_host_ms / present_ms < (1 - MIN_HOST_SHARE) * ms
    return _StepRange(ms, (min(low, ms) - error_ms) * min(low_ratio, 1 - GPU_LIMITED_STEP_DIFFERENCE), max_ms, host_limits)


def _step_at_host_speed_ms(whatif: WhatIf, host_factor: float, edit: TimedOps | None = None) -> float | None:
    """Return the step with ``edit`` applied and the host's time multiplied by ``host_factor``, ms.

    The step is at least the time that the host alone takes. In a profile of few steps, launches from before the first step can
    hide a host that is too slow for a smaller batch.
    """
    host = (FasterHost(host_factor),)
    step_ms = whatif.step_ms((*host, edit) if edit else host)
    host_only_ms = whatif.step_ms((*host, ScaledOps(tuple(whatif.problem.ops.op.tolist()), SHORTENED_SHARE)))
    return max(step_ms, host_only_ms) if step_ms and host_only_ms else step_ms


def best_on_this_host(times: float, rate: float, step_ms: float, low_ms: float) -> tuple[float, float]:
    """Return the shortest step (ms) for ``times`` the batch on a limiting host, and the rate factor.

    The step is at least today's step. ``low_ms`` is the lower bound for any host.
    """
    min_ms = max(low_ms, rate * step_ms / max(times, 1.0))
    return min_ms, rate * step_ms / max(min_ms, 1e-6)


def batch_sentence(predictions: Sequence[PredictedBatch]) -> str:
    """Return the predictions for larger batches in words."""
    return "; ".join(map(_batch_clause, predictions)) + "." if predictions else ""


def _batch_clause(batch: PredictedBatch) -> str:
    memory = f", {in_memory(batch.memory_bytes)} in use" if batch.memory_bytes is not None else ""
    if not batch.host_limits:
        interval = f"{in_words(batch.low_ms)} to {in_words(batch.high_ms)}"
        return f"{batch.times:g} times the batch: about {in_words(batch.step_ms)} per step ({interval}), {batch.rate:.2g} times today's samples per second{memory}"
    min_ms, max_rate = best_on_this_host(batch.times, batch.rate, batch.step_ms, batch.low_ms)
    return f"{batch.times:g} times the batch: the host determines the step, {in_words(min_ms)} to {in_words(batch.high_ms)}, so up to {max_rate:.2g} times today's samples per second{memory}"


@dataclass(frozen=True, eq=False)
class _Kernels:
    """Kernels of ``RuleContext.work``, grouped by kind for the prediction.

    ``is_constant`` marks the rows that do not grow. ``kind`` is the kind of each row. The other arrays have one value per kind:
    ``first`` is the first row, ``concurrency`` the mean number of kernels that run during a kernel, including this kernel, and
    ``launches`` the number of kernels per call of the operator. ``parameter_shapes`` has the shapes of parameters, also transposed.
    """

    is_constant: np.ndarray
    kind: np.ndarray
    first: np.ndarray
    concurrency: np.ndarray
    launches: np.ndarray
    parameter_shapes: frozenset[Shape]


def _kernels_of(context: RuleContext, rows: pd.DataFrame, parameters: Counter[Shape]) -> _Kernels:
    device = context.rank.device
    updates, clears = launched_by_optimizer(context.recording, device), launched_inside(context.recording, device, ZERO_GRAD)
    kind = rows.groupby([*SAME_LAUNCH, "blocks"], dropna=False, sort=False).ngroup().to_numpy()
    overlap = pd.Series(Overlap.of(context.work).concurrency, context.work["gpu_op_id"])
    concurrency = overlap.reindex(rows["gpu_op_id"]).groupby(kind).mean().to_numpy()
    calls = rows.groupby(kind)["cpu_op_id"]
    launches = (calls.size() / calls.nunique()).to_numpy()
    parameter_shapes = frozenset({*parameters, *(tuple(reversed(shape)) for shape in parameters)})
    return _Kernels(
        rows["gpu_op_id"].isin(np.concatenate([updates, clears])).to_numpy(),
        kind,
        np.unique(kind, return_index=True)[1],
        concurrency,
        launches,
        parameter_shapes,
    )


def _edit(context: RuleContext, rows: pd.DataFrame, kernels: _Kernels, times: float) -> TimedOps:
    """Return the edit that sets the time of every kernel of ``rows`` for ``times`` the batch."""
    scale = Scale(context.rank.gpu, kernels.parameter_shapes, times)
    kinds = rows.iloc[kernels.first].assign(concurrency=kernels.concurrency, launches=kernels.launches)
    laws = [scale.law(row) for row in kinds.itertuples()]
    factor, low, high, stream_ns, rounds = (np.array(column, float)[kernels.kind] for column in zip(*laws, strict=True))
    old_ns = rows["dur_ns"].to_numpy(float)
    stream_ns = np.minimum(stream_ns, old_ns)  # An operator need not read all of its inputs.
    latency_ns = np.minimum(MAX_LATENCY_NS, old_ns / rounds)
    work_ns = np.where(np.isnan(stream_ns), old_ns, np.maximum(MAX_STREAM_FACTOR * stream_ns, old_ns - latency_ns))
    growing_ns = np.minimum(old_ns - np.minimum(old_ns, EMPTY_KERNEL_NS), work_ns)

    def new_times(growth: Any) -> tuple[int, ...]:
        new_ns = np.fmax(old_ns + growing_ns * (growth - 1), growth * stream_ns)
        return tuple(np.rint(np.where(kernels.is_constant, old_ns, new_ns)).astype(np.int64).tolist())

    return TimedOps(tuple(rows["gpu_op_id"].tolist()), new_times(factor), new_times(low), new_times(high))
