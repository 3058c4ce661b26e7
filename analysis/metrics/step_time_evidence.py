"""Step time evidence with intervals, and checks of whether the profiled steps represent the run.

The evidence is the user's stopwatch, the run's own marks, telemetry, and the trace alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sawtooth.analysis.knowledge.hardware import GRAPH_DISPATCH, UNMEASURED_DISPATCH, Dispatch
from sawtooth.analysis.metrics.loader_rate import Feeding
from sawtooth.analysis.metrics.pauses import Pauses, Round
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.step_sources import STEP_SOURCES, StepSource
from sawtooth.analysis.units import in_words
from sawtooth.ingest.loop.step_parts import StepParts

FLOOR_MARGIN = 0.96  # The same kernels were up to 4 % faster outside the profile, rarely more.
SUSTAINED_CLOCK_FACTOR = 1.08  # Clocks in a long run are up to 8 % below the clocks in a profile of few steps.
GPU_BOUND = 1.12  # If every profiled step takes at most this multiple of the GPU's own work, the host has no influence.
# Factors from 147 host-limited runs. The replay without the profiler was too long by more than the first factor for two of them. It
# was too short by more than the second for four (1.67 to 4.3 times): three with loaders, one on a slower host. The next value was 1.39.
ESTIMATE_FACTOR, ESTIMATE_SHORT = 1.6, 1.42
PROFILED_MARGIN = 1.05  # The profiler only slows a step, but clocks may be lower in the run.
OWN_OVERLAP = 0.02  # Consecutive kernels of one stream overlap by up to this share of a step's kernels.
# In the run, kernels of several streams may overlap longer than in the profile, by this share of the recorded overlap. Their overlap
# depends on their launches, which recording delays.
MORE_OVERLAP = 0.5
SAMPLE_IT = "Record the run with `sawtooth sample` for ten seconds to find out."
LIKE_MEAN = 0.9  # If the median of steps is below this share of their mean, a few long steps determine the mean.
NOT_REPRESENTATIVE = 1.25  # Of 54 runs with telemetry, both unrepresentative ones are above (1.7, 4.9), 51 below, one at 1.254.
# On one idle host, runs of a loop minutes apart took 12.9 to 19.8 ms per step; of another loop, 23.5 to 30.0 ms.
HOST_SPEED_FACTOR = 1.25
# A host's speed changes within seconds. 0.14 is the smallest drift with which the marks' intervals of 17 of 19 host-limited
# runs on one host include stopwatch times of other seconds (docs/evidence/comparisons.md). Parts of 0.5 to 4 s differ by the
# same amount, so their length does not matter. All these runs are shorter than a minute. In longer runs, the host's speed in
# different minutes is assumed to be independent.
HOST_DRIFT, HOST_DRIFT_S = 0.14, 60.0
BY_UTILIZATION, BY_PERIOD = "kernel time ÷ mean utilization", "the period of GPU activity"
STOPWATCH_ERROR = 0.01  # Relative error of a stopwatch over many steps, stopped by hand or by a loop without synchronisation.


@dataclass(frozen=True)
class LongSteps:
    """Rare long steps of a loop.

    ``steps`` are their numbers, ``ms`` their times beyond a usual step, and ``spans_ns`` their starts and ends in Unix ns.
    ``step_count`` is the number of all steps.
    """

    steps: tuple[int, ...]
    ms: tuple[float, ...]
    spans_ns: tuple[tuple[int, int], ...]
    step_count: int


@dataclass(frozen=True)
class StepTimeEvidence:
    """One piece of step time evidence in ms, with its 90 % interval ``low_ms`` to ``high_ms``.

    * ``source``: user, marks, telemetry or estimate. ``notes``: what the evidence is based on and why it is uncertain.
    * ``ms``: None if only a lower bound is known. ``high_ms``: None without an upper limit.

    * ``steps_per_period``: the number of steps in one period of GPU activity, if that period gives ``ms``; else 0.

    The other fields are from the loop's marks:

    * ``pauses``: pauses between steps, by reason. ``round``: the loop's rounds. ``parts``: the parts of the marked steps.
    * ``typical_ms``: the median of single steps, None if steps were not timed one by one.
    * ``before_high_ms``: the upper end of the interval without slower steps after the profile; None if too few steps precede
      the profile.
    * ``timed_s``: the length of the marked steps that count.
    * ``marked_ms``: the interval of these steps alone, if ``low_ms`` and ``high_ms`` also include the host's drift.
    * ``trainer``: the library whose loop makes the steps (Transformers or Lightning); "" if the loop is the user's, or unknown.
    * ``quantiles_ms``: evenly spaced quantiles of the times of the marked steps without evaluations and checkpoints.
    * ``long_steps``: rare long steps, None without them.
    """

    source: StepSource
    ms: float | None
    low_ms: float
    high_ms: float | None
    notes: tuple[str, ...] = ()
    steps_per_period: int = 0
    pauses: tuple[Pauses, ...] = ()
    typical_ms: float | None = None
    round: Round | None = None
    before_high_ms: float | None = None
    timed_s: float = 0.0
    marked_ms: tuple[float, float] | None = None
    parts: StepParts | None = None
    trainer: str = ""
    quantiles_ms: tuple[float, ...] = ()
    long_steps: LongSteps | None = None

    @property
    def even_steps(self) -> bool:
        """Whether the median of single steps is close to their mean; False if they were not timed one by one."""
        return self.typical_ms is not None and self.ms is not None and self.typical_ms >= LIKE_MEAN * self.ms

    def contains(self, ms: float) -> bool:
        """Return whether ``ms`` is in the interval."""
        return self.low_ms <= ms and (self.high_ms is None or ms <= self.high_ms)

    def agrees(self, other: StepTimeEvidence) -> bool:
        """Return whether the two intervals overlap."""
        return (self.high_ms is None or other.low_ms <= self.high_ms) and (
            other.high_ms is None or self.low_ms <= other.high_ms
        )

    @property
    def width(self) -> float | None:
        """The interval's high end ÷ its low end; None without a high end."""
        return self.high_ms / self.low_ms if self.high_ms is not None and self.low_ms > 0 else None


@dataclass(frozen=True)
class StepWork:
    """The GPU's work in one step, as recorded.

    * ``kernel_ns``: the union of kernels, without copies. ``beside_ns``: the kernels' sum minus their union.
    * ``dispatched``: the number of kernels that wait for their dispatch. A kernel that starts during another one does not wait.
    * ``in_graphs``: the number of kernels that CUDA graphs launch. ``dispatch``: the time of one dispatch.
    * ``moves_ns``: fills and copies within the GPU while no kernel runs, with their dispatch. Utilization counts them like
      kernels.
    * ``communication_ns``: the part of the kernels' union in collectives.
    * ``copies_ns``: the sum of copies to and from the GPU. ``pageable_ns``: its part from or to pageable memory.
    * ``allocating_ns``: the sum of the driver's calls for new memory.
    * ``hidden_loader``: batches come from worker processes and the profiled steps never waited for them. The trace then cannot
      show whether the run waits.
    * ``waits_ns``: the wait for batches of any loader. ``loading_ns``: the part in which the training process itself loads
      batches, which every step needs. ``loading_least_ns``: its lower bound, because recording of the loader's operators may
      slow the loading.
    """

    kernel_ns: float
    dispatched: float
    moves_ns: float = 0.0
    in_graphs: float = 0.0
    beside_ns: float = 0.0
    communication_ns: float = 0.0
    copies_ns: float = 0.0
    pageable_ns: float = 0.0
    allocating_ns: float = 0.0
    hidden_loader: bool = False
    waits_ns: float = 0.0
    loading_ns: float = 0.0
    loading_least_ns: float = 0.0
    dispatch: Dispatch = UNMEASURED_DISPATCH

    @property
    def occupied_ns(self) -> float:
        """The GPU's time for a step's kernels, with the dispatch of kernels outside graphs.

        No run is much faster than this.
        """
        return self.kernel_ns + self.moves_ns + self.dispatch.ns * self.dispatched

    @property
    def overlap_ns(self) -> float:
        """The time in which kernels of several streams overlap; 0 if one stream explains it."""
        return self.beside_ns if self.beside_ns > OWN_OVERLAP * self.kernel_ns else 0.0

    @property
    def least_ns(self) -> float:
        """A lower bound of the GPU's time for a step's kernels, which may overlap more in the run."""
        if not self.overlap_ns:
            return self.occupied_ns
        return self.kernel_ns + self.moves_ns - MORE_OVERLAP * self.overlap_ns

    @property
    def resident_ns(self) -> float:
        """The time in which utilization counts a kernel as resident, with dispatch in graphs."""
        return self.occupied_ns + GRAPH_DISPATCH.ns * self.in_graphs


def source_in_words(source: StepSource, evidence: Sequence[StepTimeEvidence]) -> str:
    """Return the name of a step time's ``source``; for telemetry, how it gives the time in ``evidence``."""
    if source != "telemetry":
        return STEP_SOURCES[source].name
    return BY_PERIOD if any(item.steps_per_period for item in evidence if item.source == source) else BY_UTILIZATION


def by_user(ms: float) -> StepTimeEvidence:
    """Return the user's own measurement as evidence."""
    return StepTimeEvidence(
        "user", ms, ms * (1 - STOPWATCH_ERROR), ms * (1 + STOPWATCH_ERROR), ("The user measured it without the profiler.",)
    )


def by_trace(work: StepWork, profiled_ms: Sequence[float], estimate_ms: float | None) -> StepTimeEvidence | None:
    """Return the trace's evidence: the replay's estimate, else the median; None without steps.

    The low end of the interval follows from the GPU's own work and the estimate, the high end from the profiled steps and the
    estimate.
    """
    if not len(profiled_ms):
        return None
    floor, longest, middle = work.occupied_ns / 1e6, max(profiled_ms), float(np.median(profiled_ms))
    estimate, least_ms = middle if estimate_ms is None else estimate_ms, work.least_ns / 1e6
    if longest <= GPU_BOUND * floor:
        low, high = FLOOR_MARGIN * least_ms, SUSTAINED_CLOCK_FACTOR * middle
    else:
        low, high = (
            max(FLOOR_MARGIN * least_ms, estimate / ESTIMATE_FACTOR),
            min(PROFILED_MARGIN * longest, ESTIMATE_SHORT * estimate),
        )
    low = min(low, max(low - (work.loading_ns - work.loading_least_ns) / 1e6, FLOOR_MARGIN * least_ms))
    low, high = min(low, estimate), max(high, estimate)
    if work.hidden_loader:
        note = (
            f"At least {in_words(low)}. This trace gives no upper bound: batches come from worker processes, and the few profiled steps never waited for "
            f"them. {SAMPLE_IT}"
        )
        return StepTimeEvidence("estimate", estimate, low, None, (note,))
    return StepTimeEvidence("estimate", estimate, low, high)


def limited_by_host(marks: StepTimeEvidence, work: StepWork) -> bool:
    """Return whether the marked step is longer than the GPU's own work: kernels and copies.

    Copies of pageable memory are not the GPU's own work, because the host copies such memory into a buffer first.
    """
    gpu_ns = work.occupied_ns + work.copies_ns - work.pageable_ns
    return marks.ms is not None and marks.ms * 1e6 > GPU_BOUND * gpu_ns


def host_drift(timed_s: float) -> float:
    """Return by which share a host-limited step of other seconds may differ from the mean of ``timed_s``."""
    return HOST_DRIFT / max(timed_s / HOST_DRIFT_S, 1.0) ** 0.5


def with_host_drift(marks: StepTimeEvidence) -> StepTimeEvidence:
    """Return the marks' evidence with an interval that includes changes of the host's speed.

    This applies to steps that the host limits. Evidence whose interval already includes these changes is returned as it is.
    """
    if marks.ms is None or marks.high_ms is None or marks.marked_ms is not None:
        return marks
    share = float(np.hypot(marks.ms / marks.low_ms - 1, host_drift(marks.timed_s)))
    return replace(
        marks,
        low_ms=marks.ms / (1 + share),
        high_ms=max(marks.ms * (1 + share), marks.high_ms),
        marked_ms=(marks.low_ms, marks.high_ms),
    )


def much_longer(source: StepSource, reading: Reading, est: Reading, mean_ms: float | None, fed: Feeding | None) -> bool:
    """Return whether evidence outside the trace shows longer steps than the profiled ones.

    Loader workers may need as long as the run's step although the profiled steps never waited for them. The rest of the step is
    then the loader's, even if the profiler made the profiled steps as long as the run's.
    """
    if STEP_SOURCES[source].of_trace or reading.value is None or not est.value:
        return False
    if fed is not None and est.high is None and fed.limits(reading.value):
        mean_ms = None
    return longer_than_profile(reading.value, reading.low or reading.value, est.value, mean_ms, bounded=est.high is not None)


def of_slower_host(
    marks: StepTimeEvidence | None, source: StepSource, est: Reading, mean_ms: float | None, rounds: Round | None
) -> bool:
    """Return whether the run's longer steps are the profiled steps on a slower host.

    This holds if all steps are longer, by at most the variation of a host's speed. Steps of a loop with rounds also count as
    similar if the profile contains a full round. It does not hold if the profile never waited for its loader workers (the
    estimate then has no high end), because their work is not in the profile.
    """
    if marks is None or source != "marks" or est.high is None:
        return False
    if not (marks.even_steps or (rounds is not None and rounds.profiled)):
        return False
    return marks.ms is not None and mean_ms is not None and marks.ms <= HOST_SPEED_FACTOR * mean_ms


def longer_than_profile(
    ms: float, low_ms: float, estimate_ms: float, profiled_ms: float | None, *, bounded: bool = True
) -> bool:
    """Return whether a step of ``ms``, at least ``low_ms``, contains more than the profiled steps show.

    It does not if the profiled step (``profiled_ms``, with the profiler's cost) is longer than ``low_ms``: the replay may
    have removed too much. There is one exception: if the profile never waited for its loader workers (the estimate is not
    ``bounded``), and the replay's error would have to exceed ``ESTIMATE_FACTOR``, the result is true.
    """
    if not bounded and low_ms > ESTIMATE_FACTOR * estimate_ms:
        return True
    return ms > NOT_REPRESENTATIVE * estimate_ms and low_ms > max(estimate_ms, profiled_ms or 0.0)
