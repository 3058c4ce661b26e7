"""Step time of a job from the utilization of all its GPUs, using the least waiting GPU at each time.

A GPU that waits inside a collective counts as busy, so each GPU's utilization ÷ its own work is at least 1 ÷ step. The minimum
over the job's GPUs, at each sample, is close to 1 ÷ step, because at each time the GPU for which the others wait does not wait
itself. In a pipeline every stage waits at times, so the result is only a lower bound.
If ranks delay each other in turn, many times in a step, all of them wait inside one sample. Then the waiting time of even the
least waiting rank, from the joint replay, is also subtracted. But a rank only waits while another rank's host is late, and that
rank's GPU is idle meanwhile. If the other GPUs are always busy, no rank waits in turn, even if the profile shows it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence, StepWork
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry.clock import AS_RECORDED, SampleClock
from sawtooth.analysis.telemetry.dispatch_law import (
    COUNTS_KERNELS,
    MIN_SAMPLES,
    NAMES,
    POWER_CAP_FACTOR,
    WITHOUT_COPIES,
    far_steadier,
    interval,
)
from sawtooth.analysis.telemetry.run_telemetry import RunTelemetry
from sawtooth.analysis.telemetry.signal.means import Mean, mean_over, weighted_mean
from sawtooth.analysis.telemetry.signal.steady import SteadyPart, find_steady, profile_shadow
from sawtooth.analysis.telemetry.summary import DeviceTelemetry, load_series
from sawtooth.analysis.units import in_words

MAX_UNKNOWN = 4  # GPUs without a known device. Their 24 possible orders are tried.
# Upper bound of the waiting time, as a multiple of the replayed value. Replays without the profiler use it too.
MAX_IN_TURN = 1.6
STEP_TIME_ERROR = 0.08  # Relative error of the step time: the replay does not contain all waits of the rank with the most work.
MAX_ITERATIONS = 20  # Most iterations until step time and waiting time agree. Each one changes them less.
MAX_SAMPLE_DISTANCE = 1.5  # Sampling periods. Samples of two GPUs with a larger distance do not count as one moment.

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


class TracedDevice(NamedTuple):
    """A traced device and its own work per step, without waiting in collectives."""

    recording_id: str
    device: int
    work: StepWork


class _Moments(NamedTuple):
    """The GPUs of a job at each sample time.

    ``mean`` is that of the minimum, over the GPUs, of utilization ÷ work, scaled to the worker with the most work. It covers the
    steady training ``part``. ``spare`` is the idle time of the other GPUs in percent.
    """

    times: I64
    spare: F64
    part: SteadyPart
    mean: Mean

    def waited_ns(self, own_ns: float, in_turn_ns: float) -> float:
        """Return the part of ``in_turn_ns`` that even the least waiting rank can have waited per step.

        It is at most the time that the other GPUs were idle.
        """
        waited_ns = 0.0
        for _ in range(MAX_ITERATIONS if in_turn_ns > 0 else 0):
            step_ns = (own_ns + waited_ns) / self.mean.value * 100
            share = weighted_mean(self.times, np.minimum(in_turn_ns / step_ns * 100, self.spare), self.part)
            waited_ns = min((share or 0.0) * step_ns / 100, in_turn_ns)
        return waited_ns


def by_utilization(
    library: Library,
    telemetry: RunTelemetry,
    workers: Sequence[TracedDevice],
    profiles: Sequence[tuple[int, int]],
    in_turn_ns: float = 0.0,
    only_bounds: str | None = None,
) -> StepTimeEvidence | None:
    """Return the step time evidence from the utilization of all GPUs; None if not all were sampled.

    ``profiles`` are (first, last) times of the traces on the telemetry's clock; samples that they affect are left out.
    ``in_turn_ns`` is the time per step that even the least waiting rank waits. It is only replayed, so the interval also contains
    the step without it, and it counts at most for the time in which the other GPUs were idle. ``only_bounds`` is the reason why
    the result is only a lower bound, else None.
    """
    orders = _orders(telemetry, workers)
    works = [worker.work for worker in workers]
    if not orders or min(work.occupied_ns for work in works) <= 0:
        return None
    by_column = {column: _from_series(library, telemetry.clocks, orders, works, profiles, column) for column in NAMES}
    util, activity = by_column[COUNTS_KERNELS], by_column[WITHOUT_COPIES]
    column = WITHOUT_COPIES if activity and (not util or far_steadier(activity[0].mean, util[0].mean)) else COUNTS_KERNELS
    measured = by_column[column]
    if not measured:
        return None
    largest = max(works, key=lambda work: work.occupied_ns)
    period_s = max(t.period_s[column] for t in orders[0])
    ends = [
        (measurement.mean.value, *interval(largest, measurement.mean, period_s, 0.0, kernels=STEP_TIME_ERROR))
        for measurement in measured
    ]
    median_measurement = sorted(measured, key=lambda measurement: measurement.mean.value)[(len(measured) - 1) // 2]
    waited_ns = median_measurement.waited_ns(largest.occupied_ns, in_turn_ns)
    middle = (largest.occupied_ns + waited_ns) / median_measurement.mean.value / 1e4
    low = min(largest.occupied_ns / value / 1e4 * low_factor for value, low_factor, _ in ends)
    most_waited_ns = max(MAX_IN_TURN * waited_ns, in_turn_ns)
    high = max((largest.occupied_ns + most_waited_ns) / value / 1e4 * high_factor for value, _, high_factor in ends)
    if any(t.capped for t in orders[0]):
        high *= POWER_CAP_FACTOR
    mean = measured[0].mean
    by_turns = (
        f" Of each step, {in_words(waited_ns / 1e6)} is waiting, because the ranks delay each other in turn."
        if waited_ns >= 0.5e6
        else ""
    )
    note = (
        f"Computed from telemetry: on the rank with the most work, kernels and their dispatch take {in_words(largest.occupied_ns / 1e6, 4)} per step. On the GPU that waits least, "
        f"{NAMES[column]} is {mean.value:.3g} % over {mean.seconds:.1f} s of training outside the profile.{by_turns} So a step takes "
    )
    if only_bounds:
        return StepTimeEvidence("telemetry", None, low, None, (f"{note}at least {in_words(low, 4)}, since {only_bounds}.",))
    return StepTimeEvidence("telemetry", middle, low, high, (f"{note}{in_words(middle, 4)}.",))


def _orders(telemetry: RunTelemetry, workers: Sequence[TracedDevice]) -> list[tuple[DeviceTelemetry, ...]]:
    """Return the possible assignments of sampled GPUs to the workers.

    One if the assignment is known; none if some GPUs were not sampled.
    """
    worker_devices = [telemetry.of(worker.recording_id, worker.device) for worker in workers]
    measured = tuple(t for t in worker_devices if t is not None and not t.profiled)
    if len(measured) == len(workers):
        return [measured] if len({(t.recording_id, t.device) for t in measured}) == len(measured) else []
    possible = [telemetry.devices[i] for i in telemetry.possible]
    return list(itertools.permutations(possible)) if len(possible) == len(workers) <= MAX_UNKNOWN else []


def _from_series(
    library: Library,
    clocks: Mapping[str, SampleClock],
    orders: Sequence[tuple[DeviceTelemetry, ...]],
    works: Sequence[StepWork],
    profiles: Sequence[tuple[int, int]],
    column: str,
) -> list[_Moments]:
    """Return the moments of ``column`` for each of ``orders``; empty if one has too few samples."""
    sampled = orders[0]
    if not all(column in t.period_s for t in sampled):
        return []
    series = {(t.recording_id, t.device): _series(library, t, column, clocks.get(t.recording_id, AS_RECORDED)) for t in sampled}
    largest = max(works, key=lambda work: work.occupied_ns)
    candidates = [_lowest_mean([series[t.recording_id, t.device] for t in order], works, largest, profiles) for order in orders]
    measured = [
        measurement
        for measurement in candidates
        if measurement is not None and measurement.mean.samples >= MIN_SAMPLES and measurement.mean.value > 0
    ]
    return measured if len(measured) == len(candidates) else []


def _series(library: Library, sampled: DeviceTelemetry, column: str, clock: SampleClock) -> tuple[I64, F64]:
    with library.open(sampled.recording_id, derived=False) as recording:
        return load_series(recording, sampled.device, column, clock)


def _lowest_mean(
    series: Sequence[tuple[I64, F64]], works: Sequence[StepWork], largest: StepWork, profiles: Sequence[tuple[int, int]]
) -> _Moments | None:
    """Return the moments of the steady training, in percent of the worker with the ``largest`` work."""
    times, _ = series[0]
    if len(times) < 2:
        return None
    period = float(np.median(np.diff(times)))
    nearest, lowest = np.ones(len(times), bool), np.full(len(times), np.inf)
    idle, lowest_idle = np.zeros(len(times)), np.zeros(len(times))  # Idle time of all GPUs, and of the GPU that waits least.
    for (sample_times, values), work in zip(series, works, strict=True):
        if not len(sample_times):
            return None
        at = np.clip(np.searchsorted(sample_times, times), 1, max(len(sample_times) - 1, 1))
        at = np.where(
            np.abs(sample_times[at - 1] - times) <= np.abs(sample_times[np.minimum(at, len(sample_times) - 1)] - times),
            at - 1,
            at,
        )
        nearest &= np.abs(sample_times[at] - times) <= MAX_SAMPLE_DISTANCE * period
        level, own_idle = values[at] * largest.occupied_ns / work.occupied_ns, 100 - values[at]
        idle, lowest_idle, lowest = idle + own_idle, np.where(level < lowest, own_idle, lowest_idle), np.minimum(lowest, level)
    times, lowest, spare = times[nearest], lowest[nearest], (idle - lowest_idle)[nearest]
    part = find_steady(times, lowest, [profile_shadow(times, lowest, profile) for profile in profiles])
    mean = mean_over(times, lowest, part)
    return _Moments(times, spare, part, mean) if mean is not None else None
