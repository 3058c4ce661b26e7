"""Step time and memory of another batch size, predicted from one trace.

Each kernel's time is scaled if it grows with the batch. Products, convolutions and attention use the kernel-time model at the
new and the old shape. Kernels that move tensors grow with their bytes, once these fill the GPU. The optimizer's launches,
kernels that only touch parameters, and the host keep their times. The step time comes from a replay with the new times.
Parameters are separated from activations by the gradients that autograd accumulates. With a smaller batch the host may limit
the step, but a trace does not show the host's speed well while the GPU is the limit. So the interval reaches from the fastest
likely host to the slowest host that would not lengthen today's step.
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
from sawtooth.analysis.findings.batch.overlap import FILLS, Overlap
from sawtooth.analysis.findings.batch.sample_loop import sample_loop
from sawtooth.analysis.findings.recorded.counted_operations import SAME_LAUNCH, launched_by_optimizer, launched_inside
from sawtooth.analysis.findings.recorded.parameters import Shape, parameters_of
from sawtooth.analysis.replay.edits import FasterHost, ScaledOps, TimedOps
from sawtooth.analysis.replay.whatif import RUNS_DIFFER, STEP_OFF, WhatIf
from sawtooth.analysis.units import in_words

if TYPE_CHECKING:
    from sawtooth.analysis.findings.context import RuleContext

SHORTEST_NS = 2_000  # Duration of a kernel without work.
LOADER_SHARE = 0.05  # Share of the step. A run that waits more than this for its loader gains nothing from a larger batch.
# Host time relative to the replay while the GPU hides the host. Six loops with timed smaller batches took 0.77 to 1.36 times
# the replay's host time, 1.1 times on average.
LIKELY_HOST = 1.1
# Factor by which a limiting host's speed varies over time. 11 sizes of three models were timed twice within a minute on an
# H200's host: the longer time was 1.03 to 1.37 times the shorter. Three others took 1.4 to 1.5 times what the profiled size
# predicted.
HOST_VARIES = 1.5
NEGLIGIBLE = 0.01  # Operations shortened to this share of their duration delay nothing.
# Share of the step. If a faster host (HOST_VARIES or QUICKEST_HOST) saves at least this share, the host limits the step.
HOST_LIMITS = 0.1
QUICKEST_HOST = 0.75  # Smallest likely host time, relative to the replay, which already excludes the profiler's cost.
# Multiple of the time for the bytes at the memory's full rate. Kernels that fill the GPU are hardly slower
# (kernel_time.toml); the rest of the time is latency.
SLOWEST = 8.0
# Largest latency of a kernel. Longer kernels have work, however slow, such as a batch norm over channel planes.
MAX_LATENCY_NS = 50_000
NOT_PREDICTED = "Not predicted: a prediction needs shapes, a replay, a loader that keeps up, and samples that go through the model together."
NEXT = (2.0, 4.0)  # Batch factors that a user would try next.
ZERO_GRAD = r"^Optimizer\.zero_grad#"


@dataclass(frozen=True)
class AtBatch:
    """Prediction for a batch ``times`` as large.

    ``step_ms`` is the step time, with the interval ``low_ms`` to ``high_ms``. ``rate`` is the sample rate relative to now.
    ``memory_bytes`` is the peak memory in use (None if the trace has no allocations). With ``host_limits``, the host
    determines the step; its speed varies, so the interval is more useful than the number.
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


def at_batches(context: RuleContext, factors: Sequence[float]) -> list[AtBatch]:
    """Return the prediction for each batch factor.

    Empty without shapes or a replay, or if a larger batch takes the host longer.
    """
    if context.whatif is None or not context.step_ms or context.work.empty or host_grows_with_batch(context):
        return []
    parameters = parameters_of(context.recording, context.rank.device)
    if not parameters:
        return []
    best = context.rank.best
    limited = best.feeding is not None and best.feeding.limits(context.step_ms)
    filled = _filling_overlap(context)
    # If the loader or the GPU limits the run, this explains why the step is longer than the replay, and not the host's speed.
    host = () if limited or filled else host_of_run(context.whatif, best)
    slow_host = hidden_host(context.whatif, best) if not host and min(factors, default=1.0) < 1 else 1.0
    kernels = _kernels_of(context, context.work, parameters)
    memory: Sequence[float | None] = memory_at(context.recording, context.rank.device, factors) or [None] * len(factors)
    predictions = []
    for times, memory_bytes in zip(factors, memory, strict=True):
        edit = _edit(context, context.work, kernels, times)
        at_new_batch = _step(context, host, edit, slow_host if times < 1 else 1.0, filled)
        if at_new_batch is None:
            return []
        fed = best.feeding.floors_ms(context.step_ms, times) if best.feeding is not None else (0.0,) * 3
        ms, low, high = (max(edge, floor) for edge, floor in zip(at_new_batch[:3], fed, strict=True))
        predictions.append(AtBatch(times, ms, low, high, times * context.step_ms / ms, memory_bytes, at_new_batch.host_limits))
    return predictions


def host_grows_with_batch(context: RuleContext) -> bool:
    """Return whether the host takes longer for a larger batch.

    It does if it waits for the loader or for something that the profile does not show, or if it calls the model once per
    sample.
    """
    waits = context.share(context.lost_ms("data_wait")) > LOADER_SHARE or not context.rank.best.represented
    return waits or context.once(sample_loop) is not None


def kernels_at(context: RuleContext, rows: pd.DataFrame, times: float) -> TimedOps:
    """Return the edit that sets the time of each kernel of ``rows`` for ``times`` the batch.

    ``rows`` are rows of ``RuleContext.work``.
    """
    return _edit(context, rows, _kernels_of(context, rows, parameters_of(context.recording, context.rank.device)), times)


def larger_batches(context: RuleContext) -> list[AtBatch]:
    """Return the predictions for the batch sizes to try next.

    Call this through ``RuleContext.once``, because several rules use it.
    """
    return at_batches(context, NEXT)


def _filling_overlap(context: RuleContext) -> Overlap | None:
    """Return the overlap of the operations if they fill the run's step although the replay is shorter.

    None if they do not fill it, or if the replay takes as long.
    """
    now, best_ms, overlap = context.whatif.step_ms() if context.whatif else None, context.rank.best.ms, Overlap.of(context.work)
    filled_ms = overlap.part_ns.sum() / 1e6 / max(context.work["step"].nunique(), 1)
    return overlap if now and best_ms and filled_ms >= FILLS * best_ms and now < (1 - RUNS_DIFFER) * filled_ms else None


class _StepRange(NamedTuple):
    ms: float
    low_ms: float
    high_ms: float
    host_limits: bool


def _step(
    context: RuleContext, host: tuple[FasterHost, ...], edit: TimedOps, slow_host: float, filled: Overlap | None
) -> _StepRange | None:
    """Return the run's step with ``edit`` applied, ms, and its interval.

    The interval includes the uncertainty of the kernels, of the replay and of today's step. ``slow_host`` is the largest
    factor for the replay's host time, 1 if it does not matter. If ``filled`` is given, the step is at least the time that its
    overlapping operations fill.
    """
    # Leave out the loader's timing, which belongs to today's batch.
    best, whatif = replace(context.rank.best, feeding=None), context.whatif
    assert whatif is not None and best.ms is not None
    edges = [TimedOps(edit.ops, edge) for edge in (edit.dur_ns, edit.low_ns, edit.high_ns)]
    run_factor = host[0].factor if host else 1.0
    if slow_host > 1:
        host_factors = (min(LIKELY_HOST, slow_host), QUICKEST_HOST, slow_host)
    else:
        host_factors = (run_factor, run_factor / HOST_VARIES, run_factor * HOST_VARIES)
    now = _at_host_speed_ms(whatif, run_factor)
    steps = [
        _at_host_speed_ms(whatif, host_factor, edge_edits) for host_factor, edge_edits in zip(host_factors, edges, strict=True)
    ]
    fast = _at_host_speed_ms(whatif, host_factors[1], edges[0])
    if filled is not None:
        dur_ns, count = context.work["dur_ns"].to_numpy(float), 1e6 * max(context.work["step"].nunique(), 1)
        now, *floors = (
            filled.filled_ns(dur_ns, np.array(edge_edits, float)) / count for edge_edits in (dur_ns, *(e.dur_ns for e in edges))
        )
        *steps, fast = (
            max(step, floor) if step else None for step, floor in zip((*steps, fast), (*floors, floors[0]), strict=True)
        )
    scaled_ms = [best.ms * step / now for step in steps if step is not None and now]
    if len(scaled_ms) < len(edges) or not now:
        return None
    ms, low, high = scaled_ms
    error_ms = STEP_OFF * ms
    low_ratio, high_ratio = ((edge or best.ms) / best.ms for edge in (best.reading.low, best.reading.high))
    longest = (max(high, ms) + error_ms) * max(high_ratio, 1 + RUNS_DIFFER)
    if slow_host > 1:  # Less work does not take longer.
        longest = min(longest, best.ms * max(high_ratio, 1 + RUNS_DIFFER))
    limits = fast is not None and best.ms * fast / now < (1 - HOST_LIMITS) * ms
    return _StepRange(ms, (min(low, ms) - error_ms) * min(low_ratio, 1 - RUNS_DIFFER), longest, limits)


def _at_host_speed_ms(whatif: WhatIf, host_factor: float, edit: TimedOps | None = None) -> float | None:
    """Return the step with ``edit`` applied and the host's time multiplied by ``host_factor``, ms.

    It is not shorter than the time that the host alone takes. In a profile of few steps, launches from before the first step can hide a
    host that is too slow for a smaller batch.
    """
    host = (FasterHost(host_factor),)
    step = whatif.step_ms((*host, edit) if edit else host)
    host_only_ms = whatif.step_ms((*host, ScaledOps(tuple(whatif.problem.ops.op.tolist()), NEGLIGIBLE)))
    return max(step, host_only_ms) if step and host_only_ms else step


def on_this_host(times: float, rate: float, step_ms: float, low_ms: float) -> tuple[float, float]:
    """Return the shortest step for ``times`` the batch on a limiting host, ms, and its sample rate factor.

    The step is not shorter than today's step on the same host. ``low_ms`` is the lower bound for any host.
    """
    least_ms = max(low_ms, rate * step_ms / max(times, 1.0))
    return least_ms, rate * step_ms / max(least_ms, 1e-6)


def sentence(larger: Sequence[AtBatch]) -> str:
    """Return the predictions for larger batches in words."""
    bounds = {at.times: on_this_host(at.times, at.rate, at.step_ms, at.low_ms) for at in larger}
    clauses = [
        (
            f"{at.times:g} times the batch: the host determines the step, {in_words(bounds[at.times][0])} to {in_words(at.high_ms)}, "
            f"so up to {bounds[at.times][1]:.2g} times today's samples per second"
            if at.host_limits
            else f"{at.times:g} times the batch: about {in_words(at.step_ms)} per step ({in_words(at.low_ms)} to {in_words(at.high_ms)}), "
            f"{at.rate:.2g} times today's samples per second"
        )
        + (f", {at.memory_bytes / 1e9:.3g} GB in use" if at.memory_bytes is not None else "")
        for at in larger
    ]
    return "; ".join(clauses) + "." if clauses else ""


@dataclass(frozen=True, eq=False)
class _Kernels:
    """Kernels of ``RuleContext.work``, grouped by kind for the prediction.

    ``stay`` marks the rows that do not grow. ``kind`` is the kind of each row, ``first`` the first row of each kind.
    ``concurrency`` is how many kernels run on average during a kernel of each kind, including this kernel. ``launches`` is the
    number of kernels per call of their operator. ``parameter_shapes`` has the shapes of parameters, also transposed.
    """

    stay: np.ndarray
    kind: np.ndarray
    first: np.ndarray
    concurrency: np.ndarray
    launches: np.ndarray
    parameter_shapes: frozenset[Shape]


def _kernels_of(context: RuleContext, rows: pd.DataFrame, parameters: Counter[Shape]) -> _Kernels:
    device = context.rank.device
    fixed = np.concatenate(
        [launched_by_optimizer(context.recording, device), launched_inside(context.recording, device, ZERO_GRAD)]
    )
    kind = rows.groupby([*SAME_LAUNCH, "blocks"], dropna=False, sort=False).ngroup().to_numpy()
    # Overlap with all operations, not only with ``rows``.
    overlap = pd.Series(Overlap.of(context.work).concurrency, context.work["gpu_op_id"])
    concurrency = overlap.reindex(rows["gpu_op_id"]).groupby(kind).mean().to_numpy()
    calls = rows.groupby(kind)["cpu_op_id"]
    launches = (calls.size() / calls.nunique()).to_numpy()
    parameter_shapes = frozenset({*parameters, *(tuple(reversed(shape)) for shape in parameters)})
    return _Kernels(
        rows["gpu_op_id"].isin(fixed).to_numpy(),
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
    now = rows["dur_ns"].to_numpy(float)
    # Limits for the streaming part of the time. It is at most the whole time, because an operator need not read all of its
    # inputs. It is not much less than an eighth.
    stream = np.minimum(stream_ns, now)
    latency = np.minimum(MAX_LATENCY_NS, now / rounds)
    work = np.where(np.isnan(stream), now, np.maximum(SLOWEST * stream, now - latency))
    grows = np.minimum(now - np.minimum(now, SHORTEST_NS), work)

    def timed(by: Any) -> tuple[int, ...]:
        new = np.fmax(now + grows * (by - 1), by * stream)
        return tuple(np.rint(np.where(kernels.stay, now, new)).astype(np.int64).tolist())

    return TimedOps(tuple(rows["gpu_op_id"].tolist()), timed(factor), timed(low), timed(high))
