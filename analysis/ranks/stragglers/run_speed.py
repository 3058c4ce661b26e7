"""The joint replay at the speed of the run: hosts and loaders as fast as the measured step shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sawtooth.analysis.knowledge.causes import HOST_CAUSES
from sawtooth.analysis.metrics.step_time import MAX_PROFILE_DIFFERENCE
from sawtooth.analysis.ranks.joint_replay import JointReplay
from sawtooth.analysis.ranks.stragglers.own_time import LONG_GAP_NS, UNRECORDED, OwnTime
from sawtooth.analysis.replay.bisection import turning_point
from sawtooth.analysis.replay.edits import Edit, FasterHost, WithoutHostCause, apply
from sawtooth.analysis.replay.simulation import ReplayProblem
from sawtooth.analysis.run.job import EqualHostsStep

MIN_HOST_FACTOR = 0.4  # Smallest factor on the replayed hosts' time. No host is assumed to be faster.
MAX_FACTOR = 4.0  # Largest factor on the replayed hosts' time, and on the waits for the loader's workers.
BISECTION_STEPS = 5  # Steps of the search for the hosts' speed. The speed is then exact to 2 %.
LOADER_CAUSE = "data_wait"

EditsAt = Callable[[float], Mapping[int, Sequence[Edit]]]


def stalls_more_often(job: JointReplay, measured_ms: float | None, usual_ms: float | None) -> bool:
    """Return whether the profiled steps differ from the run's only by more frequent stalls.

    The mean replayed step is then longer than ``measured_ms``, but the median one is about the run's median step, ``usual_ms``.
    The hosts are as fast as in the run.
    """
    steps_ms = job.steps_ms()
    if measured_ms is None or usual_ms is None or steps_ms is None or not len(steps_ms):
        return False
    is_as_fast = abs(usual_ms / float(np.median(steps_ms)) - 1) <= MAX_PROFILE_DIFFERENCE
    return is_as_fast and measured_ms < (1 - MAX_PROFILE_DIFFERENCE) * float(steps_ms.mean())


def replay_at_run_speed(job: JointReplay, measured_ms: float | None, workers_wait: Sequence[bool]) -> JointReplay:
    """Return ``job`` with hosts or loaders as fast as its measured step shows.

    If the measured step is shorter than the replayed one, the replayed hosts are too slow. Then their launches become faster,
    and if that does not suffice, all of their time.

    If the measured step is longer, the loader's workers may determine it: they do not work faster without the profiler. Then the
    waits for workers become longer, on the ranks that have such waits in the profile (``workers_wait``, by position). Otherwise
    ``job`` is returned unchanged.
    """
    step_ms = job.step_ms()
    if measured_ms is None or step_ms is None or abs(measured_ms / step_ms - 1) <= MAX_PROFILE_DIFFERENCE:
        return job
    if measured_ms < step_ms:
        all_hosts = dict.fromkeys(range(len(job.members)), 1.0)
        faster = _with_step_time(job, _host_edits(job, all_hosts), measured_ms, MIN_HOST_FACTOR, 1.0)
        if (faster.step_ms() or 0.0) <= (1 + MAX_PROFILE_DIFFERENCE) * measured_ms:
            return faster
        return _with_step_time(
            job, lambda factor: {p: [FasterHost(factor)] for p in all_hosts}, measured_ms, MIN_HOST_FACTOR, 1.0
        )
    waiting = [position for position, waits in enumerate(workers_wait) if waits]
    if not waiting:
        return job
    return _with_step_time(
        job, lambda factor: {p: [WithoutHostCause(LOADER_CAUSE, factor)] for p in waiting}, measured_ms, 1.0, MAX_FACTOR
    )


@dataclass(frozen=True, eq=False)
class RunSpeedReplay:
    """A job at the speed of the run, and what its ranks do by themselves.

    ``replay`` is the joint replay (of ``replay_at_run_speed``). ``own`` and ``peers`` are by position; a rank's peers have the same
    work, and each rank is among its own peers. ``measured_ms`` is the job's step from marks or telemetry.
    """

    replay: JointReplay
    own: Sequence[OwnTime]
    peers: Sequence[Sequence[int]]
    measured_ms: float | None = None

    @cached_property
    def step_ms(self) -> float:
        """The replayed step, or the measured one if it is longer; 0 if no step can be timed."""
        replayed_ms = self.replay.step_ms()
        return max(replayed_ms, self.measured_ms or 0.0) if replayed_ms else 0.0

    @cached_property
    def equal_hosts(self) -> JointReplay:
        """The joint replay with hosts of equal speed, whose step takes ``step_ms`` if that is possible."""
        return with_equal_hosts(self.replay, self.own, self.peers, self.step_ms)


def with_equal_hosts(job: JointReplay, own: Sequence[OwnTime], peers: Sequence[Sequence[int]], step_ms: float) -> JointReplay:
    """Return ``job`` with hosts of equal speed.

    The speed is chosen so that the step takes ``step_ms``, if that is possible. Recording slows one host more than another. In
    the replay, such a host hides what another rank loses. Each host becomes as fast in its launches as the fastest of its peers,
    or of all ranks if the rank has no peers.

    The hosts become slower than the slowest of ``job`` only if ``step_ms`` is longer than the replayed step. Otherwise the
    search would slow hosts that do not limit the step until they do.
    """
    per_launch = np.array([rank.short_ns / max(len(rank.short_calls), 1) for rank in own])
    fastest = [per_launch[positions if len(positions) > 1 else slice(None)].min() for positions in peers]
    factors = {
        i: max(fast / positions, MIN_HOST_FACTOR) if positions else 1.0
        for i, (fast, positions) in enumerate(zip(fastest, per_launch, strict=True))
    }
    slowest = 1 / min(factors.values(), default=1.0)
    is_longer = step_ms > (1 + MAX_PROFILE_DIFFERENCE) * (job.step_ms() or 0.0)
    return _with_step_time(job, _host_edits(job, factors), step_ms, 1.0, MAX_FACTOR if is_longer else slowest)


def equal_hosts_steps(equal_hosts: JointReplay) -> list[EqualHostsStep | None]:
    """Return each rank's step in a replay with equally fast hosts; None where no step can be timed."""
    step_ms = equal_hosts.step_ms()
    return [
        EqualHostsStep(step_ms, wait_ms, idle_ms) if step_ms and wait_ms is not None and idle_ms is not None else None
        for wait_ms, idle_ms in zip(equal_hosts.waits_ms(), equal_hosts.idle_ms(), strict=True)
    ]


def _host_edits(job: JointReplay, factors: Mapping[int, float]) -> EditsAt:
    """Return a function of a common factor, which returns the edits of all hosts.

    A host's time is scaled by the common factor times its own one in ``factors``. Long Python pauses and waits for the loader
    stay as they are: recording makes calls longer, but not a stretch without calls.
    """
    calls = {position: _launch_calls(job.members[position].problem) for position in factors}
    return lambda factor: {p: [FasterHost(own_factor * factor, calls[p])] for p, own_factor in factors.items()}


def _launch_calls(problem: ReplayProblem) -> tuple[int, ...]:
    """Return the host calls that do not follow a long pause."""
    host = problem.host
    pauses = host.gap_parts[:, [HOST_CAUSES.index(UNRECORDED), HOST_CAUSES.index(LOADER_CAUSE)]].sum(axis=1)
    calls: list[int] = host.call[(pauses < LONG_GAP_NS) | (2 * pauses < host.gap)].tolist()
    return tuple(calls)


def _with_step_time(job: JointReplay, edits: EditsAt, step_ms: float, low: float, high: float) -> JointReplay:
    """Return ``job`` with the edits of the factor for which its step takes ``step_ms``.

    The factor is between ``low`` and ``high``. Larger factors make the step longer.
    """

    def at(factor: float) -> JointReplay:
        changed = edits(factor)
        members = [replace(m, problem=apply(m.problem, changed.get(i, ()))) for i, m in enumerate(job.members)]
        return replace(job, members=members, unchanged=(), _cache={})

    def short_enough(factor: float) -> bool:
        now_ms = at(factor).step_ms()
        return now_ms is None or now_ms <= step_ms

    if low == high:
        return at(low)
    return at(turning_point(short_enough, low, high, halvings=BISECTION_STEPS, geometric=high > 1)[1])
