"""Another batch size, from one trace: the step that a batch so many times as large takes, and the memory it needs.

Each kernel's work is scaled where it grows with the batch: products, convolutions and attention by the kernel-time model at the new shape over
the old, what moves tensors by its bytes, above what fills the GPU. What the optimizer launches and what touches parameters alone stays, and so
does the host: the step comes from replaying the kernels' new times. Parameters are told from activations by the gradients that autograd
accumulates. Of a smaller batch the host soon is the limit, and how long it takes a trace does not tell well where the GPU is the limit now:
its interval reaches from the quickest host that is likely to the slowest with which the step would not be longer than it is.
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
from sawtooth.analysis.findings.batch.memory import Shape, memory_at, parameters_of
from sawtooth.analysis.findings.batch.overlap import FILLS, Overlap
from sawtooth.analysis.findings.batch.sample_loop import sample_loop
from sawtooth.analysis.findings.recorded.work import ALIKE, launched_by_optimizer, launched_inside
from sawtooth.analysis.replay.edits import FasterHost, ScaledOps, TimedOps
from sawtooth.analysis.replay.whatif import RUNS_DIFFER, STEP_OFF, WhatIf
from sawtooth.analysis.units import in_words

if TYPE_CHECKING:
    from sawtooth.analysis.findings.context import RuleContext

SHORTEST_NS = 2_000  # what a kernel takes that has nothing to do
LOADER_SHARE = 0.05  # of the step: a run that waits more for its loader gains nothing by a larger batch
# Where the GPU hides the host, six loops whose smaller batches were timed took 0.77 to 1.36 times as long as the replay has it, 1.1 times on the mean.
LIKELY_HOST = 1.1
# A host that is the limit is so much quicker or slower at another time: 11 sizes of three models, timed twice within a minute on an H200's host, took 1.03 to 1.37
# times as long at one time as at the other, and three others as the profiled size had it 1.4 to 1.5 times.
HOST_VARIES = 1.5
HARDLY = 0.01  # of their time: operations that keep nobody waiting
# Of the step that a quicker host, by HOST_VARIES or QUICKEST_HOST, would save: from there on its pace is the step's.
HOST_LIMITS = 0.1
QUICKEST_HOST = 0.75  # of the host's time by the replay, which takes the profiler's cost off: the least that is likely
SLOWEST = 8.0  # times the bytes at the memory's rate: what fills the GPU is hardly slower (kernel_time.toml); the rest of its time is latency
MOST_LATENCY_NS = 50_000  # of a kernel: what takes longer has work, however slow (a batch norm over planes of channels)
NOT_PREDICTED = (
    "Not predicted: that takes shapes, a replay, a loader that keeps up, and samples that go through the model together."
)
NEXT = (2.0, 4.0)  # times the batch
ZERO_GRAD = r"^Optimizer\.zero_grad#"


@dataclass(frozen=True)
class AtBatch:
    """A batch ``times`` as large: ms of its step between ``low_ms`` and ``high_ms``, how many samples a second against now, and bytes in use
    at the peak (None where the trace has no allocations). ``host_limits``: the step is as long as the host takes, whose pace changes, so that the
    interval says more than the number."""

    times: float
    step_ms: float
    low_ms: float
    high_ms: float
    rate: float
    memory_bytes: float | None
    host_limits: bool = False

    def row(self) -> dict[str, float | None]:
        """Return it as a row of evidence."""
        return {
            "batch_times": self.times,
            "step_ms": self.step_ms,
            "low_ms": self.low_ms,
            "high_ms": self.high_ms,
            "samples_per_second_times": self.rate,
            "memory_bytes": self.memory_bytes,
        }


def at_batches(context: RuleContext, factors: Sequence[float]) -> list[AtBatch]:
    """Return the run at each batch; nothing where shapes or a replay are missing, or where a larger batch keeps the host longer."""
    if context.whatif is None or not context.step_ms or context.work.empty or host_grows_with_batch(context):
        return []
    parameters = parameters_of(context.recording, context.rank.device)
    if not parameters:
        return []
    best = context.rank.best
    limited = best.feeding is not None and best.feeding.limits(context.step_ms)
    filled = _filled(context)
    host = (
        () if limited or filled else host_of_run(context.whatif, best)
    )  # what the run takes longer is the loader's or the GPU's then
    slow_host = hidden_host(context.whatif, best) if not host and min(factors, default=1.0) < 1 else 1.0
    kernels = _kernels_of(context, context.work, parameters)
    memory: Sequence[float | None] = memory_at(context.recording, context.rank.device, factors) or [None] * len(factors)
    larger = []
    for times, held in zip(factors, memory, strict=True):
        edit = _edit(context, context.work, kernels, times)
        between = _step(context, host, edit, slow_host if times < 1 else 1.0, filled)
        if between is None:
            return []
        fed = best.feeding.floors_ms(context.step_ms, times) if best.feeding is not None else (0.0,) * 3
        ms, low, high = (max(edge, floor) for edge, floor in zip(between[:3], fed, strict=True))
        larger.append(AtBatch(times, ms, low, high, times * context.step_ms / ms, held, between.host_limits))
    return larger


def host_grows_with_batch(context: RuleContext) -> bool:
    """Tell whether the host takes longer for a larger batch: it waits for the loader, or for what the profile does not show, or calls the model sample
    by sample."""
    waits = context.share(context.lost_ms("data_wait")) > LOADER_SHARE or not context.rank.best.represented
    return waits or context.once(sample_loop) is not None


def kernels_at(context: RuleContext, rows: pd.DataFrame, times: float) -> TimedOps:
    """Return the edit that gives each kernel of ``rows``, some of ``RuleContext.work``, its time with ``times`` the batch."""
    return _edit(context, rows, _kernels_of(context, rows, parameters_of(context.recording, context.rank.device)), times)


def larger_batches(context: RuleContext) -> list[AtBatch]:
    """Return the run at what somebody would try next; ask by ``RuleContext.once``, since several rules do."""
    return at_batches(context, NEXT)


def _filled(context: RuleContext) -> Overlap | None:
    """Return how the operations overlap that fill the run's step although its replay is shorter; None where they do not fill it, or make the replay's step."""
    now, best_ms, overlap = context.whatif.step_ms() if context.whatif else None, context.rank.best.ms, Overlap.of(context.work)
    filled_ms = overlap.part_ns.sum() / 1e6 / max(context.work["step"].nunique(), 1)
    return overlap if now and best_ms and filled_ms >= FILLS * best_ms and now < (1 - RUNS_DIFFER) * filled_ms else None


class _Between(NamedTuple):
    ms: float
    low_ms: float
    high_ms: float
    host_limits: bool


def _step(
    context: RuleContext, host: tuple[FasterHost, ...], edit: TimedOps, slow_host: float, filled: Overlap | None
) -> _Between | None:
    """Return the run's step with ``edit`` made, ms, its interval: as wide as kernels, the replay and the step as it is are uncertain.

    ``slow_host`` is how many times as long the host may take as the replay has it, 1 where that does not matter. The step is no shorter than what
    its operations have ``filled``.
    """
    best, whatif = replace(context.rank.best, feeding=None), context.whatif  # it is that of the batch as it is
    assert whatif is not None and best.ms is not None
    edges = [TimedOps(edit.ops, edge) for edge in (edit.dur_ns, edit.low_ns, edit.high_ns)]
    own = host[0].factor if host else 1.0
    if slow_host > 1:
        paces = (min(LIKELY_HOST, slow_host), QUICKEST_HOST, slow_host)
    else:
        paces = (own, own / HOST_VARIES, own * HOST_VARIES)
    now = _paced_ms(whatif, own)
    steps = [_paced_ms(whatif, pace, each) for pace, each in zip(paces, edges, strict=True)]
    quick = _paced_ms(whatif, paces[1], edges[0])
    if filled is not None:
        dur_ns, count = context.work["dur_ns"].to_numpy(float), 1e6 * max(context.work["step"].nunique(), 1)
        now, *floors = (
            filled.filled_ns(dur_ns, np.array(each, float)) / count for each in (dur_ns, *(e.dur_ns for e in edges))
        )
        *steps, quick = (
            max(step, floor) if step else None for step, floor in zip((*steps, quick), (*floors, floors[0]), strict=True)
        )
    known = [best.ms * step / now for step in steps if step is not None and now]
    if len(known) < len(edges) or not now:
        return None
    ms, low, high = known
    off = STEP_OFF * ms
    least, most = ((edge or best.ms) / best.ms for edge in (best.reading.low, best.reading.high))
    longest = (max(high, ms) + off) * max(most, 1 + RUNS_DIFFER)
    if slow_host > 1:  # less work takes no longer
        longest = min(longest, best.ms * max(most, 1 + RUNS_DIFFER))
    limits = quick is not None and best.ms * quick / now < (1 - HOST_LIMITS) * ms
    return _Between(ms, (min(low, ms) - off) * min(least, 1 - RUNS_DIFFER), longest, limits)


def _paced_ms(whatif: WhatIf, pace: float, edit: TimedOps | None = None) -> float | None:
    """Return the step with ``edit`` made and a host that takes ``pace`` of its time: no shorter than that host takes alone.

    The few steps of a profile may live on what was launched before them, and then a host that is too slow for a smaller batch does not show.
    """
    host = (FasterHost(pace),)
    step = whatif.step_ms((*host, edit) if edit else host)
    alone = whatif.step_ms((*host, ScaledOps(tuple(whatif.problem.ops.op.tolist()), HARDLY)))
    return max(step, alone) if step and alone else step


def on_this_host(times: float, rate: float, step_ms: float, low_ms: float) -> tuple[float, float]:
    """Return the least that a step of ``times`` the batch takes, ms, where the host limits, and how many times the samples a second that is: no less than
    today's step, on the same host; ``low_ms`` is any host's."""
    least = max(low_ms, rate * step_ms / max(times, 1.0))
    return least, rate * step_ms / max(least, 1e-6)


def sentence(larger: Sequence[AtBatch]) -> str:
    """Say what larger batches give."""
    bounds = {at.times: on_this_host(at.times, at.rate, at.step_ms, at.low_ms) for at in larger}
    clauses = [
        (
            f"{at.times:g} times the batch: as long a step as the host takes at that time, {in_words(bounds[at.times][0])} to {in_words(at.high_ms)}, "
            f"so up to {bounds[at.times][1]:.2g} times the samples a second"
            if at.host_limits
            else f"{at.times:g} times the batch: about {in_words(at.step_ms)} a step ({in_words(at.low_ms)} to {in_words(at.high_ms)}), "
            f"{at.rate:.2g} times the samples a second"
        )
        + (f", {at.memory_bytes / 1e9:.3g} GB in use" if at.memory_bytes is not None else "")
        for at in larger
    ]
    return "; ".join(clauses) + "." if clauses else ""


@dataclass(frozen=True, eq=False)
class _Kernels:
    """Rows of ``RuleContext.work``: which ``stay`` as they are, the ``kind`` of each, the ``first`` row of each kind, and how many kernels run on
    average ``beside`` those of a kind, themselves counted, and how many of it a call of their operator ``launches``; ``own``: shapes of parameters,
    also transposed."""

    stay: np.ndarray
    kind: np.ndarray
    first: np.ndarray
    beside: np.ndarray
    launches: np.ndarray
    own: frozenset[Shape]


def _kernels_of(context: RuleContext, rows: pd.DataFrame, parameters: Counter[Shape]) -> _Kernels:
    device = context.rank.device
    fixed = np.concatenate(
        [launched_by_optimizer(context.recording, device), launched_inside(context.recording, device, ZERO_GRAD)]
    )
    kind = rows.groupby([*ALIKE, "blocks"], dropna=False, sort=False).ngroup().to_numpy()
    overlap = pd.Series(Overlap.of(context.work).beside, context.work["gpu_op_id"])  # with all, whichever of them ``rows`` are
    beside = overlap.reindex(rows["gpu_op_id"]).groupby(kind).mean().to_numpy()
    calls = rows.groupby(kind)["cpu_op_id"]
    launches = (calls.size() / calls.nunique()).to_numpy()
    own = frozenset({*parameters, *(tuple(reversed(shape)) for shape in parameters)})
    return _Kernels(
        rows["gpu_op_id"].isin(fixed).to_numpy(), kind, np.unique(kind, return_index=True)[1], beside, launches, own
    )


def _edit(context: RuleContext, rows: pd.DataFrame, kernels: _Kernels, times: float) -> TimedOps:
    """Return the edit that gives every kernel of ``rows`` its time with ``times`` the batch."""
    scale = Scale(context.rank.gpu, kernels.own, times)
    kinds = rows.iloc[kernels.first].assign(beside=kernels.beside, launches=kernels.launches)
    laws = [scale.law(row) for row in kinds.itertuples()]
    factor, low, high, stream_ns, rounds = (np.array(column, float)[kernels.kind] for column in zip(*laws, strict=True))
    now = rows["dur_ns"].to_numpy(float)
    # what streaming its bytes can be of the time: all of it at most (an operator need not touch all of its inputs), and not much less than an eighth
    stream = np.minimum(stream_ns, now)
    latency = np.minimum(MOST_LATENCY_NS, now / rounds)
    work = np.where(np.isnan(stream), now, np.maximum(SLOWEST * stream, now - latency))
    grows = np.minimum(now - np.minimum(now, SHORTEST_NS), work)

    def timed(by: Any) -> tuple[int, ...]:
        new = np.fmax(now + grows * (by - 1), by * stream)
        return tuple(np.rint(np.where(kernels.stay, now, new)).astype(np.int64).tolist())

    return TimedOps(tuple(rows["gpu_op_id"].tolist()), timed(factor), timed(low), timed(high))
