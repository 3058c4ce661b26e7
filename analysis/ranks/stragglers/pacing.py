"""The joint replay at the speed of the run: hosts and loaders as fast as the measured step shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from sawtooth.analysis.knowledge.causes import HOST_CAUSES
from sawtooth.analysis.metrics.step_time import AGREES_WITHIN
from sawtooth.analysis.ranks.joint_replay import JointReplay
from sawtooth.analysis.ranks.stragglers.own_time import LONG_GAP_NS, UNRECORDED, OwnTime
from sawtooth.analysis.replay.bisection import turning_point
from sawtooth.analysis.replay.edits import Edit, FasterHost, WithoutHostCause, apply
from sawtooth.analysis.replay.simulation import ReplayProblem

MIN_HOST = 0.4  # least factor on the replayed hosts' time: the hosts are never assumed to be faster than this
MAX_SLOWER = 4.0  # Largest factor on the replayed hosts' time or on the waits for the loader's workers.
HALVINGS = 5  # steps of the bisection for the hosts' speed, which is then exact to 2 %
LOADER = "data_wait"

EditsAt = Callable[[float], Mapping[int, Sequence[Edit]]]


def paced(job: JointReplay, measured_ms: float | None, workers_wait: Sequence[bool]) -> JointReplay:
    """Return ``job`` with hosts or loaders as fast as its measured step shows.

    If the measured step is shorter than the replayed one, the replayed hosts are too slow: in their launches, and if that does not
    suffice, everywhere. If it is longer, and a rank waits for its loader's workers in the profile (``workers_wait``, by
    position), the workers determine the step: they do not work faster without the profiler, so the wait becomes longer.
    Otherwise ``job`` is returned unchanged.
    """
    step_ms = job.step_ms()
    if measured_ms is None or step_ms is None or abs(measured_ms / step_ms - 1) <= AGREES_WITHIN:
        return job
    if measured_ms < step_ms:
        everyone = dict.fromkeys(range(len(job.members)), 1.0)
        faster = _at_step(job, _hosts(job, everyone), measured_ms, MIN_HOST, 1.0)
        if (faster.step_ms() or 0.0) <= (1 + AGREES_WITHIN) * measured_ms:
            return faster
        return _at_step(job, lambda factor: {p: [FasterHost(factor)] for p in everyone}, measured_ms, MIN_HOST, 1.0)
    waiting = [position for position, waits in enumerate(workers_wait) if waits]
    if not waiting:
        return job
    return _at_step(job, lambda factor: {p: [WithoutHostCause(LOADER, factor)] for p in waiting}, measured_ms, 1.0, MAX_SLOWER)


def with_even_hosts(job: JointReplay, own: Sequence[OwnTime], peers: Sequence[Sequence[int]], step_ms: float) -> JointReplay:
    """Return ``job`` with hosts of equal speed, and a step of ``step_ms`` if hosts of some speed have it.

    Recording slows one host more than another. In the replay, such a host hides what another rank loses. The speed is that of
    launches among peers, or of all ranks for a rank without peers.
    """
    per_launch = np.array([rank.short_ns / max(len(rank.short_calls), 1) for rank in own])
    fastest = [per_launch[mine if len(mine) > 1 else slice(None)].min() for mine in peers]
    factors = {
        i: max(fast / mine, MIN_HOST) if mine else 1.0 for i, (fast, mine) in enumerate(zip(fastest, per_launch, strict=True))
    }
    return _at_step(job, _hosts(job, factors), step_ms, MIN_HOST, MAX_SLOWER)


def _hosts(job: JointReplay, factors: Mapping[int, float]) -> EditsAt:
    """Return the edits of all hosts at ``factor`` times their own factor.

    Long Python pauses and waits for the loader stay: recording makes calls longer, but not a stretch without calls.
    """
    calls = {position: _launching(job.members[position].problem) for position in factors}
    return lambda factor: {p: [FasterHost(own * factor, calls[p])] for p, own in factors.items()}


def _launching(problem: ReplayProblem) -> tuple[int, ...]:
    """Return the calls before which the host does not pause for long."""
    host = problem.host
    pauses = host.gap_parts[:, [HOST_CAUSES.index(UNRECORDED), HOST_CAUSES.index(LOADER)]].sum(axis=1)
    calls: list[int] = host.call[(pauses < LONG_GAP_NS) | (2 * pauses < host.gap)].tolist()
    return tuple(calls)


def _at_step(job: JointReplay, edits: EditsAt, step_ms: float, low: float, high: float) -> JointReplay:
    """Return ``job`` with the edits of the factor between ``low`` and ``high`` whose step is ``step_ms``.

    Larger factors make the step longer.
    """

    def at(factor: float) -> JointReplay:
        changed = edits(factor)
        members = [replace(m, problem=apply(m.problem, changed.get(i, ()))) for i, m in enumerate(job.members)]
        return replace(job, members=members, unchanged=(), _cache={})

    def short_enough(factor: float) -> bool:
        now_ms = at(factor).step_ms()
        return now_ms is None or now_ms <= step_ms

    return at(turning_point(short_enough, low, high, halvings=HALVINGS, geometric=high > 1)[1])
