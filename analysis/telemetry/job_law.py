"""The step time of a job from the utilization of all its GPUs: at every moment the GPU counts that waits least for the others.

Inside a collective a GPU that waits counts as busy, so that each GPU's utilization ÷ its own work is at least 1 ÷ step. The least of them over
the job's GPUs, sample by sample, comes near it: somebody is always the one the others wait for. On a pipeline every stage waits at times, and
the law bounds the step from below only. Ranks that hold each other up by turns, many times in a step, all wait inside one sample: what even the one
that waits least waits, as the ranks replayed together tell, counts as busy too. But a rank waits only while another's host is late, and that one's GPU
idles meanwhile: where the others' GPUs are busy all the time, nobody waits by turns, whatever the profile shows.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.metrics.witness import StepWork, Witness
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry.clock import AS_RECORDED, SampleClock
from sawtooth.analysis.telemetry.dispatch_law import (
    COUNTS_KERNELS,
    LEAST_SAMPLES,
    NAMES,
    SUSTAINED,
    WITHOUT_COPIES,
    far_steadier,
    interval,
)
from sawtooth.analysis.telemetry.of_run import RunTelemetry
from sawtooth.analysis.telemetry.signal.means import Mean, mean_over, weighted_mean
from sawtooth.analysis.telemetry.signal.steady import Steady, find_steady, profile_shadow
from sawtooth.analysis.telemetry.summary import DeviceTelemetry, load_series
from sawtooth.analysis.units import in_words

MOST_UNKNOWN = 4  # GPUs of which nobody knows whose they are: 24 orders to look at, which mostly say the same
IN_TURN_AT_MOST = 1.6  # times what is replayed, as the interval of a replay without the profiler
RANKS_OFF = 0.08  # of the step time: what even the rank that has most to do waits for is not all replayed
ROUNDS = 20  # until the step and what may be waiting in it agree: each adds less than the one before
APART = 1.5  # periods between the samples of two GPUs that still speak of one moment

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


class Worker(NamedTuple):
    """A traced device and its own work a step, without waiting in collectives."""

    recording_id: str
    device: int
    work: StepWork


class _Moments(NamedTuple):
    """What the GPUs of a job show moment by moment: the least utilization by work, in percent of the worker that has most, its ``mean`` over the steady
    training ``part``, and in percent how long the others' GPUs idle (``spare``)."""

    times: I64
    spare: F64
    part: Steady
    mean: Mean

    def waited_ns(self, own_ns: float, in_turn_ns: float) -> float:
        """Return how much of ``in_turn_ns`` even the rank that waits least can have waited in a step: no longer than the others' GPUs idled."""
        waited_ns = 0.0
        for _ in range(ROUNDS if in_turn_ns > 0 else 0):
            step_ns = (own_ns + waited_ns) / self.mean.value * 100
            share = weighted_mean(self.times, np.minimum(in_turn_ns / step_ns * 100, self.spare), self.part)
            waited_ns = min((share or 0.0) * step_ns / 100, in_turn_ns)
        return waited_ns


def by_utilization(
    library: Library,
    telemetry: RunTelemetry,
    workers: Sequence[Worker],
    profiles: Sequence[tuple[int, int]],
    in_turn_ns: float = 0.0,
    only_bounds: str | None = None,
) -> Witness | None:
    """Return what the utilization of all GPUs of a job says of its step, None where not all of them were sampled.

    ``profiles`` are (first, last) times of the traces on the telemetry's clock: what they spoil is left out. ``in_turn_ns`` is what even the rank
    that waits least waits in a step: it is replayed and no more than that, so that the interval holds the step without it, and no more of it counts than
    the other GPUs idled. ``only_bounds`` says why the law
    bounds this job's step from below only, None where it tells it.
    """
    orders = _orders(telemetry, workers)
    works = [worker.work for worker in workers]
    if not orders or min(work.occupied_ns for work in works) <= 0:
        return None
    by_column = {column: _seen(library, telemetry.clocks, orders, works, profiles, column) for column in NAMES}
    util, activity = by_column[COUNTS_KERNELS], by_column[WITHOUT_COPIES]
    column = WITHOUT_COPIES if activity and (not util or far_steadier(activity[0].mean, util[0].mean)) else COUNTS_KERNELS
    known = by_column[column]
    if not known:
        return None
    most = max(works, key=lambda work: work.occupied_ns)
    period_s = max(t.period_s[column] for t in orders[0])
    ends = [(each.mean.value, *interval(most, each.mean, period_s, 0.0, kernels=RANKS_OFF)) for each in known]
    usual = sorted(known, key=lambda each: each.mean.value)[(len(known) - 1) // 2]
    waited_ns = usual.waited_ns(most.occupied_ns, in_turn_ns)
    middle = (most.occupied_ns + waited_ns) / usual.mean.value / 1e4
    low = min(most.occupied_ns / value / 1e4 * down for value, down, _ in ends)
    most_waited_ns = max(IN_TURN_AT_MOST * waited_ns, in_turn_ns)
    high = max((most.occupied_ns + most_waited_ns) / value / 1e4 * up for value, _, up in ends)
    if any(t.capped for t in orders[0]):
        high *= SUSTAINED
    mean = known[0].mean
    by_turns = (
        f", {in_words(waited_ns / 1e6)} of a step of it waiting, since the ranks hold each other up by turns"
        if waited_ns >= 0.5e6
        else ""
    )
    note = (
        f"Kernels and their dispatch take {in_words(most.occupied_ns / 1e6, 4)} of a step on the rank that has most to do. {NAMES[column]}, of the GPU that waits "
        f"least at each moment, is {mean.value:.3g} % over {mean.seconds:.1f} s of training outside the profile{by_turns}: a step takes "
    )
    if only_bounds:
        return Witness("telemetry", None, low, None, (f"{note}at least {in_words(low, 4)}, since {only_bounds}.",))
    return Witness("telemetry", middle, low, high, (f"{note}{in_words(middle, 4)}.",))


def _orders(telemetry: RunTelemetry, workers: Sequence[Worker]) -> list[tuple[DeviceTelemetry, ...]]:
    """Return the ways in which the sampled GPUs may be the workers': one where that is known, none where some were not sampled."""
    own = [telemetry.of(worker.recording_id, worker.device) for worker in workers]
    known = tuple(t for t in own if t is not None and not t.profiled)
    if len(known) == len(workers):
        return [known] if len({(t.recording_id, t.device) for t in known}) == len(known) else []
    possible = [telemetry.devices[i] for i in telemetry.possible]
    return list(itertools.permutations(possible)) if len(possible) == len(workers) <= MOST_UNKNOWN else []


def _seen(
    library: Library,
    clocks: Mapping[str, SampleClock],
    orders: Sequence[tuple[DeviceTelemetry, ...]],
    works: Sequence[StepWork],
    profiles: Sequence[tuple[int, int]],
    column: str,
) -> list[_Moments]:
    """Return what the GPUs show by ``column`` in each of ``orders``; nothing where one of them does not show enough."""
    sampled = orders[0]
    if not all(column in t.period_s for t in sampled):
        return []
    series = {(t.recording_id, t.device): _series(library, t, column, clocks.get(t.recording_id, AS_RECORDED)) for t in sampled}
    most = max(works, key=lambda work: work.occupied_ns)
    seen = [_least([series[t.recording_id, t.device] for t in order], works, most, profiles) for order in orders]
    known = [each for each in seen if each is not None and each.mean.samples >= LEAST_SAMPLES and each.mean.value > 0]
    return known if len(known) == len(seen) else []


def _series(library: Library, sampled: DeviceTelemetry, column: str, clock: SampleClock) -> tuple[I64, F64]:
    with library.open(sampled.recording_id, derived=False) as recording:
        return load_series(recording, sampled.device, column, clock)


def _least(
    series: Sequence[tuple[I64, F64]], works: Sequence[StepWork], most: StepWork, profiles: Sequence[tuple[int, int]]
) -> _Moments | None:
    """Return what the GPUs show of the steady training, in percent of the worker that has ``most``."""
    times, _ = series[0]
    if len(times) < 2:
        return None
    period = float(np.median(np.diff(times)))
    near, least = np.ones(len(times), bool), np.full(len(times), np.inf)
    idle, its_idle = np.zeros(len(times)), np.zeros(len(times))  # of all GPUs, and of the one that waits least
    for (other, values), work in zip(series, works, strict=True):
        if not len(other):
            return None
        at = np.clip(np.searchsorted(other, times), 1, max(len(other) - 1, 1))
        at = np.where(np.abs(other[at - 1] - times) <= np.abs(other[np.minimum(at, len(other) - 1)] - times), at - 1, at)
        near &= np.abs(other[at] - times) <= APART * period
        level, rest = values[at] * most.occupied_ns / work.occupied_ns, 100 - values[at]
        idle, its_idle, least = idle + rest, np.where(level < least, rest, its_idle), np.minimum(least, level)
    times, least, spare = times[near], least[near], (idle - its_idle)[near]
    part = find_steady(times, least, [profile_shadow(times, least, profile) for profile in profiles])
    mean = mean_over(times, least, part)
    return _Moments(times, spare, part, mean) if mean is not None else None
