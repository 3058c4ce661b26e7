"""What tells a run's step time, each with its interval, and whether it shows a run that its profiled steps do not speak for.

The witnesses are the user's stopwatch, the run's own marks, telemetry and the trace alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sawtooth.analysis.knowledge.hardware import GRAPH_DISPATCH, UNMEASURED_DISPATCH, Dispatch
from sawtooth.analysis.metrics.feeding import Feeding
from sawtooth.analysis.metrics.pauses import Pauses, Round
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.step_sources import STEP_SOURCES, StepSource
from sawtooth.analysis.units import in_words

FLOOR_MARGIN = 0.96  # the same kernels were up to 4 % quicker outside the profile, and hardly ever more
SUSTAINED = 1.08  # clocks of a long run lie up to 8 % below those of a profile's few steps
GPU_BOUND = 1.12  # no profiled step is longer than the GPU's own work by more: the host had no say
# Of 147 runs that their hosts limit, the replay without the profiler was too long by more on two, and too short by more on four: three with loaders, and one
# whose host was slower (1.67 to 4.3 times); the next had 1.39.
ESTIMATE_FACTOR, ESTIMATE_SHORT = 1.6, 1.42
PROFILED_MARGIN = 1.05  # the profiler slows a step and never speeds it up; clocks may be lower in the run
OWN_OVERLAP = 0.02  # of a step's kernels
# Of the time that kernels run side by side: which of them meet hangs on their launches, which recording delays.
MORE_OVERLAP = 0.5
SAMPLE_IT = "Ten seconds of `sawtooth sample` beside the run would tell."
LIKE_MEAN = 0.9  # the median of steps: less, and a few long ones make their mean
NOT_REPRESENTATIVE = 1.25  # of 54 runs with telemetry both unrepresentative ones lie above (1.7, 4.9), 51 below, one at 1.254
HOST_PACE = 1.25  # one loop on one idle host took 12.9 to 19.8 ms a step in runs minutes apart, the next 23.5 to 30.0
STOPWATCH = 0.01  # a stopwatch over many steps, started and stopped by hand or by a loop that is not synchronised


@dataclass(frozen=True)
class Witness:
    """One statement on the step time, ms, with its 90 % interval.

    ``source`` is user, marks, telemetry or estimate. ``ms`` is None where it only bounds the step from below; ``high_ms`` is None where
    nothing bounds it from above. ``notes`` say what it rests on and what widens it. ``pauses`` are those that the loop's marks show, by reason.
    ``typical_ms`` is the median of single steps, None where they were not timed one by one; ``round`` the rounds that they come in.
    """

    source: StepSource
    ms: float | None
    low_ms: float
    high_ms: float | None
    notes: tuple[str, ...] = ()
    pauses: tuple[Pauses, ...] = ()
    typical_ms: float | None = None
    round: Round | None = None

    @property
    def alike(self) -> bool:
        """Tell whether single steps were timed, and the typical one takes what they take on average: nothing rare makes their mean."""
        return self.typical_ms is not None and self.ms is not None and self.typical_ms >= LIKE_MEAN * self.ms

    def holds(self, ms: float) -> bool:
        """Tell whether ``ms`` lies in the interval."""
        return self.low_ms <= ms and (self.high_ms is None or ms <= self.high_ms)

    def agrees(self, other: Witness) -> bool:
        """Tell whether the two intervals meet."""
        return (self.high_ms is None or other.low_ms <= self.high_ms) and (
            other.high_ms is None or self.low_ms <= other.high_ms
        )

    @property
    def width(self) -> float | None:
        """How many times its low end the high end is, None without a high end."""
        return self.high_ms / self.low_ms if self.high_ms is not None and self.low_ms > 0 else None


@dataclass(frozen=True)
class StepWork:
    """What the GPU does in one step, as recorded: the union of kernels (ns, without copies), how many of them wait for their dispatch, which those
    that start beside another one do not, and how many CUDA graphs launch. ``beside_ns`` is what the kernels' sum has beyond their union, ``moves_ns`` are
    fills and copies within the GPU with no kernel beside them: utilization counts them as it does kernels, with their dispatch.

    ``communication_ns`` of the kernels' union is collectives, ``copies_ns`` and ``pageable_ns`` are sums of copies to and from the GPU, ``allocating_ns`` of the driver's calls for new memory. ``hidden_loader``: batches
    come from worker processes that the profiled steps never waited for, so that the trace cannot tell whether the run does.
    ``waits_ns`` is waited for batches, whoever loads them;
    ``loading_ns`` for those that the training process loads itself: no step of the run goes without. It is at least ``loading_least_ns``, as
    recording the operators inside may have slowed it.
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
        """How long a step's kernels keep the GPU, dispatch included (of graphs' kernels at its least): no run is faster by much."""
        return self.kernel_ns + self.moves_ns + self.dispatch.ns * self.dispatched

    @property
    def overlap_ns(self) -> float:
        """How long kernels of several streams run side by side; none where it is what a stream's own overlap by when one ends and the next begins."""
        return self.beside_ns if self.beside_ns > OWN_OVERLAP * self.kernel_ns else 0.0

    @property
    def least_ns(self) -> float:
        """The least that a step's kernels keep the GPU for: where several streams run, more of them may meet, and dispatch hides behind the others."""
        if not self.overlap_ns:
            return self.occupied_ns
        return self.kernel_ns + self.moves_ns - MORE_OVERLAP * self.overlap_ns

    @property
    def resident_ns(self) -> float:
        """How long utilization counts some kernel as resident: graphs' kernels with their dispatch too."""
        return self.occupied_ns + GRAPH_DISPATCH.ns * self.in_graphs


def by_user(ms: float) -> Witness:
    """Return the user's own measurement."""
    return Witness(
        "user", ms, ms * (1 - STOPWATCH), ms * (1 + STOPWATCH), ("Measured without the profiler, as given by the user.",)
    )


def by_trace(work: StepWork, profiled_ms: Sequence[float], estimate_ms: float | None) -> Witness | None:
    """Return what the trace alone tells: the replay without the profiler, between the GPU's own work and the profiled steps.

    None without counted steps.
    """
    if not len(profiled_ms):
        return None
    floor, longest, middle = work.occupied_ns / 1e6, max(profiled_ms), float(np.median(profiled_ms))
    estimate, least = middle if estimate_ms is None else estimate_ms, work.least_ns / 1e6
    if longest <= GPU_BOUND * floor:
        low, high = FLOOR_MARGIN * least, SUSTAINED * middle
    else:
        low, high = (
            max(FLOOR_MARGIN * least, estimate / ESTIMATE_FACTOR),
            min(PROFILED_MARGIN * longest, ESTIMATE_SHORT * estimate),
        )
    low = min(low, max(low - (work.loading_ns - work.loading_least_ns) / 1e6, FLOOR_MARGIN * least))
    low, high = min(low, estimate), max(high, estimate)
    if work.hidden_loader:
        note = (
            f"At least {in_words(low)}; no upper bound from this trace: batches come from worker processes, and the few profiled steps found their queue "
            f"full. {SAMPLE_IT}"
        )
        return Witness("estimate", estimate, low, None, (note,))
    return Witness("estimate", estimate, low, high)


def much_longer(source: StepSource, reading: Reading, est: Reading, mean_ms: float | None, fed: Feeding | None) -> bool:
    """Tell whether a witness beside the trace shows a run that takes longer than its profiled steps do.

    Where loader workers never waited in the profile and were timed to take as long as the run's step, the rest of it is theirs, however long the
    profiler made its steps.
    """
    if STEP_SOURCES[source].of_trace or reading.value is None or not est.value:
        return False
    if fed is not None and est.high is None and fed.limits(reading.value):
        mean_ms = None
    return longer_than_profile(reading.value, reading.low or reading.value, est.value, mean_ms, bounded=est.high is not None)


def of_slower_host(
    marks: Witness | None, source: StepSource, est: Reading, mean_ms: float | None, rounds: Round | None
) -> bool:
    """Tell whether the run's steps are longer one and all, and by no more than a host's pace changes: they are the profiled ones on a slower host.

    Whole rounds in the profile hold what their first steps wait for. What the profile does not hold is rare, or comes from loader workers that it never waited for (then the estimate has no high end).
    """
    if marks is None or source != "marks" or est.high is None:
        return False
    if not (marks.alike or (rounds is not None and rounds.profiled)):
        return False
    return marks.ms is not None and mean_ms is not None and marks.ms <= HOST_PACE * mean_ms


def longer_than_profile(
    ms: float, low_ms: float, estimate_ms: float, profiled_ms: float | None, *, bounded: bool = True
) -> bool:
    """Tell whether a step of ``ms``, at least ``low_ms``, holds more than the profiled steps show.

    A profiled step that is longer still (``profiled_ms``, with the profiler's cost) may hold all of it: then the replay took off too much. Not so where
    loader workers never waited in the profile (the estimate is not ``bounded``) and it would be off by more than ESTIMATE_FACTOR.
    """
    if not bounded and low_ms > ESTIMATE_FACTOR * estimate_ms:
        return True
    return ms > NOT_REPRESENTATIVE * estimate_ms and low_ms > max(estimate_ms, profiled_ms or 0.0)
