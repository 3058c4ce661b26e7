"""Whether the profiled steps speak for the run: what a witness beside the trace says of them."""

from __future__ import annotations

from sawtooth.analysis.metrics.feeding import Feeding
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.step_sources import STEP_SOURCES, StepSource
from sawtooth.analysis.metrics.witness import ESTIMATE_FACTOR, Witness

NOT_REPRESENTATIVE = 1.25  # of 54 runs with telemetry both unrepresentative ones lie above (1.7, 4.9), 51 below, one at 1.254
HOST_PACE = 1.25  # one loop on one idle host took 12.9 to 19.8 ms a step in runs minutes apart, the next 23.5 to 30.0


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


def of_slower_host(marks: Witness | None, source: StepSource, est: Reading, mean_ms: float | None) -> bool:
    """Tell whether the run's steps are longer one and all, and by no more than a host's pace changes: they are the profiled ones on a slower host.

    What the profile does not hold is rare, or comes from loader workers that it never waited for (then the estimate has no high end).
    """
    if marks is None or source != "marks" or est.high is None or not marks.alike:
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
