"""Step time evidence with intervals, and whether it shows that the profile is not representative.

The evidence is the user's stopwatch, the run's own marks, telemetry and the trace alone.
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

FLOOR_MARGIN = 0.96  # the same kernels were up to 4 % faster outside the profile, and hardly ever more
SUSTAINED = 1.08  # clocks of a long run are up to 8 % below those of a profile's few steps
GPU_BOUND = 1.12  # no profiled step exceeds the GPU's own work by more, so the host had no influence
# For 147 host-limited runs, the replay without the profiler was too long by more than the first factor on two. It was too short
# by more than the second on four (1.67 to 4.3 times): three with loaders and one with a slower host. The next value was 1.39.
ESTIMATE_FACTOR, ESTIMATE_SHORT = 1.6, 1.42
PROFILED_MARGIN = 1.05  # the profiler slows a step and never speeds it up; clocks may be lower in the run
OWN_OVERLAP = 0.02  # of a step's kernels
# Share of the time in which kernels overlap. Which kernels overlap depends on their launches, which recording delays.
MORE_OVERLAP = 0.5
SAMPLE_IT = "Ten seconds of `sawtooth sample` during the run would show it."
LIKE_MEAN = 0.9  # ratio of median to mean of steps: below, a few long steps determine the mean
NOT_REPRESENTATIVE = 1.25  # of 54 runs with telemetry, both unrepresentative ones are above (1.7, 4.9), 51 below, one at 1.254
HOST_SPEED_FACTOR = 1.25  # one loop on one idle host took 12.9 to 19.8 ms per step in runs minutes apart, the next 23.5 to 30.0
# A host's speed changes within seconds. The first value is the least with which the marks of 17 of 19 host-limited runs on one host
# include stopwatches of other seconds (docs/evidence/comparisons.md). Parts of 0.5 to 4 s differ alike, so their length does not matter.
# No such run is longer than a minute. Beyond that, minutes are assumed to be independent.
HOST_DRIFT, HOST_DRIFT_S = 0.14, 60.0
STOPWATCH = 0.01  # a stopwatch over many steps, started and stopped by hand or by a loop without synchronisation


@dataclass(frozen=True)
class StepTimeEvidence:
    """One piece of step time evidence in ms, with its 90 % interval.

    ``source`` is user, marks, telemetry or estimate. ``ms`` is None if it is only a lower bound; ``high_ms`` is None without an
    upper limit. ``notes`` explain its basis and what widens it. ``pauses`` are those of the loop's marks, by reason.
    ``typical_ms`` is the median of single steps, None if they were not timed one by one; ``round`` are their rounds.
    ``before_high_ms`` is the upper end of the interval if slower steps after the profile do not count. It is None without enough
    steps before the profile. ``timed_s`` is the length of the marked steps that count. ``marked_ms`` is the interval of these
    steps alone, if ``low_ms`` and ``high_ms`` also include the drift of the host. ``parts`` are those of the marked steps.
    ``slow`` is the share of slow steps, and how many ms longer than the median they take (see ``pauses.slow_steps``).
    """

    source: StepSource
    ms: float | None
    low_ms: float
    high_ms: float | None
    notes: tuple[str, ...] = ()
    pauses: tuple[Pauses, ...] = ()
    typical_ms: float | None = None
    round: Round | None = None
    before_high_ms: float | None = None
    timed_s: float = 0.0
    marked_ms: tuple[float, float] | None = None
    parts: StepParts | None = None
    slow: tuple[float, float] = (0.0, 0.0)

    @property
    def alike(self) -> bool:
        """Whether single steps were timed and their median is close to the mean, without rare long steps."""
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
        """The ratio of the high to the low end; None without a high end."""
        return self.high_ms / self.low_ms if self.high_ms is not None and self.low_ms > 0 else None


@dataclass(frozen=True)
class StepWork:
    """The GPU's work in one step, as recorded.

    ``kernel_ns`` is the union of kernels without copies. ``dispatched`` is the number of kernels that wait for their dispatch;
    those that start next to a running kernel do not. ``in_graphs`` is the number that CUDA graphs launch. ``beside_ns`` is the
    kernels' sum minus their union. ``moves_ns`` are fills and copies within the GPU without a kernel at the same time;
    utilization counts them like kernels, with their dispatch.
    ``communication_ns`` is the part of the kernels' union in collectives. ``copies_ns`` and ``pageable_ns`` are sums of copies
    to and from the GPU, ``allocating_ns`` of the driver's calls for new memory. ``hidden_loader`` means that batches come from
    worker processes for which the profiled steps never waited, so the trace cannot show whether the run does.
    ``waits_ns`` is the wait for batches from any loader. ``loading_ns`` is the part that the training process loads itself,
    which every step of the run needs; it is at least ``loading_least_ns``, because recording the operators inside may have
    slowed it.
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
        """The GPU's time for a step's kernels with dispatch (for graphs the least); no run is much faster."""
        return self.kernel_ns + self.moves_ns + self.dispatch.ns * self.dispatched

    @property
    def overlap_ns(self) -> float:
        """The time in which kernels of several streams overlap.

        It is 0 if it is no more than consecutive kernels of one stream overlap.
        """
        return self.beside_ns if self.beside_ns > OWN_OVERLAP * self.kernel_ns else 0.0

    @property
    def least_ns(self) -> float:
        """The least GPU time of a step's kernels: with several streams, more may overlap and hide dispatch."""
        if not self.overlap_ns:
            return self.occupied_ns
        return self.kernel_ns + self.moves_ns - MORE_OVERLAP * self.overlap_ns

    @property
    def resident_ns(self) -> float:
        """The time for which utilization counts a kernel as resident, with the dispatch of graphs' kernels."""
        return self.occupied_ns + GRAPH_DISPATCH.ns * self.in_graphs


def by_user(ms: float) -> StepTimeEvidence:
    """Return the user's own measurement."""
    return StepTimeEvidence(
        "user", ms, ms * (1 - STOPWATCH), ms * (1 + STOPWATCH), ("Measured without the profiler, as given by the user.",)
    )


def by_trace(work: StepWork, profiled_ms: Sequence[float], estimate_ms: float | None) -> StepTimeEvidence | None:
    """Return the trace's evidence: the replay between the GPU's own work and the profiled steps.

    None without counted steps.
    """
    if not len(profiled_ms):
        return None
    floor, longest, middle = work.occupied_ns / 1e6, max(profiled_ms), float(np.median(profiled_ms))
    estimate, least_ms = middle if estimate_ms is None else estimate_ms, work.least_ns / 1e6
    if longest <= GPU_BOUND * floor:
        low, high = FLOOR_MARGIN * least_ms, SUSTAINED * middle
    else:
        low, high = (
            max(FLOOR_MARGIN * least_ms, estimate / ESTIMATE_FACTOR),
            min(PROFILED_MARGIN * longest, ESTIMATE_SHORT * estimate),
        )
    low = min(low, max(low - (work.loading_ns - work.loading_least_ns) / 1e6, FLOOR_MARGIN * least_ms))
    low, high = min(low, estimate), max(high, estimate)
    if work.hidden_loader:
        note = (
            f"At least {in_words(low)}; no upper bound from this trace: batches come from worker processes, and the few profiled steps found their queue "
            f"full. {SAMPLE_IT}"
        )
        return StepTimeEvidence("estimate", estimate, low, None, (note,))
    return StepTimeEvidence("estimate", estimate, low, high)


def limited_by_host(marks: StepTimeEvidence, work: StepWork) -> bool:
    """Return whether the marked step is longer than the GPU's kernels and copies in it.

    The host fills the buffer from which the GPU copies pageable memory, so its speed sets theirs.
    """
    of_gpu_ns = work.occupied_ns + work.copies_ns - work.pageable_ns
    return marks.ms is not None and marks.ms * 1e6 > GPU_BOUND * of_gpu_ns


def with_host_drift(marks: StepTimeEvidence) -> StepTimeEvidence:
    """Return the evidence of marks with an interval that includes how much a host's speed changes.

    This applies if the host limits the step. Evidence that includes it already stays the same.
    """
    if marks.ms is None or marks.high_ms is None or marks.marked_ms is not None:
        return marks
    drift = HOST_DRIFT / max(marks.timed_s / HOST_DRIFT_S, 1.0) ** 0.5
    share = float(np.hypot(marks.ms / marks.low_ms - 1, drift))
    return replace(
        marks,
        low_ms=marks.ms / (1 + share),
        high_ms=max(marks.ms * (1 + share), marks.high_ms),
        marked_ms=(marks.low_ms, marks.high_ms),
    )


def much_longer(source: StepSource, reading: Reading, est: Reading, mean_ms: float | None, fed: Feeding | None) -> bool:
    """Return whether evidence outside the trace shows a run with longer steps than the profiled ones.

    Loader workers may need as long as the run's step, although they never waited in the profile. Then the rest of the step is
    theirs, even if the profiler made its steps long.
    """
    if STEP_SOURCES[source].of_trace or reading.value is None or not est.value:
        return False
    if fed is not None and est.high is None and fed.limits(reading.value):
        mean_ms = None
    return longer_than_profile(reading.value, reading.low or reading.value, est.value, mean_ms, bounded=est.high is not None)


def of_slower_host(
    marks: StepTimeEvidence | None, source: StepSource, est: Reading, mean_ms: float | None, rounds: Round | None
) -> bool:
    """Return whether all of the run's steps are longer, by no more than the speed of a host varies.

    Then they are the profiled steps on a slower host. Full rounds in the profile include the waits of their first steps. Work
    outside the profile is rare, or comes from loader workers for which it never waited (then the estimate has no high end).
    """
    if marks is None or source != "marks" or est.high is None:
        return False
    if not (marks.alike or (rounds is not None and rounds.profiled)):
        return False
    return marks.ms is not None and mean_ms is not None and marks.ms <= HOST_SPEED_FACTOR * mean_ms


def longer_than_profile(
    ms: float, low_ms: float, estimate_ms: float, profiled_ms: float | None, *, bounded: bool = True
) -> bool:
    """Return whether a step of ``ms``, at least ``low_ms``, contains more than the profiled steps show.

    A longer profiled step (``profiled_ms``, with the profiler's cost) may contain all of it; then the replay removed too much.
    This does not apply if loader workers never waited in the profile (the estimate is not ``bounded``) and the error would
    exceed ESTIMATE_FACTOR.
    """
    if not bounded and low_ms > ESTIMATE_FACTOR * estimate_ms:
        return True
    return ms > NOT_REPRESENTATIVE * estimate_ms and low_ms > max(estimate_ms, profiled_ms or 0.0)
