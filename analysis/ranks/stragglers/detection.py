"""Stragglers found by their own time, with the job's gain from a replay without their excess.

A straggler's own time exceeds that of its peers, in most counted steps or by much in a few. The excess is larger than the errors
of the estimates and the usual differences. Peers have the same work by design: they sum gradients together in one pipeline stage.
Hosts that are replayed too slowly can hide a rank's excess kernel time. Then the job is replayed with faster hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.ranks.joint_replay import JointReplay
from sawtooth.analysis.ranks.recorded_collectives import RecordedJob
from sawtooth.analysis.ranks.stragglers.excess import (
    HIDES,
    excess_of,
    hide_waiting,
    longer_by_gap_ns,
    longer_ns,
    pauses_of,
)
from sawtooth.analysis.ranks.stragglers.excess_time import ExcessTime
from sawtooth.analysis.ranks.stragglers.own_time import HOST_ERROR, UNRECORDED, WORK, OwnTime, OwnTimePart
from sawtooth.analysis.ranks.stragglers.pacing import with_even_hosts
from sawtooth.analysis.ranks.stragglers.reasons import (
    needed,
    shared_work_ms,
    straggler,
    stragglers_of,
)
from sawtooth.analysis.replay.edits import Edit, FasterHost
from sawtooth.analysis.run.job import Straggler

LEAST_SHARE = 0.03  # share of a step: a smaller gain is within the noise
PAUSES = (UNRECORDED, "data_wait")  # Causes of pauses that are no part of a pipeline's design.


def find_stragglers(
    *,
    job: JointReplay,
    recorded: RecordedJob,
    own: Sequence[OwnTime],
    peers: Sequence[Sequence[int]],
    ranks: Sequence[int | None],
    hosts: Sequence[str | None],
    measured_ms: float | None = None,
) -> tuple[Straggler, ...]:
    """Return the stragglers, most gain first; empty if there are none.

    All sequences are by position. ``measured_ms`` is the job's step from marks or telemetry.
    """
    step_ms = job.step_ms()
    if not step_ms:
        return ()
    least_ms = LEAST_SHARE * step_ms
    late = [x for i in range(len(own)) if (x := _late(i, own, peers[i], least_ms * 1e6)).own_ms >= least_ms]
    late = [replace(rank, shared_work_ms=ms) for rank, ms in zip(late, shared_work_ms(late, peers), strict=True)]
    if not late:
        return ()
    even = with_even_hosts(job, own, peers, max(step_ms, measured_ms or 0.0))

    def gain_of(subset: Sequence[ExcessTime]) -> float:
        return max(_gain(job, recorded, subset, step_ms), _even_gain(even, subset, step_ms), _marked_gain(subset))

    if gain_of(late) < least_ms:
        return _hidden_by_slow_hosts(job, late, ranks, hosts)
    late = needed(late, gain_of, least_ms)
    replayed_ms = max(_replayed_gain(job, late, step_ms), _even_gain(even, late, step_ms), _marked_gain(late))
    recorded_gain_larger = gain_of(late) > replayed_ms
    stragglers = stragglers_of(late, ranks, hosts, gain_of)
    times = {rank.position: rank.times for rank in late}
    steady = {rank.position for rank in late if rank.in_most_steps}
    return tuple(
        replace(
            rank,
            own_ms=rank.own_ms * often,
            gain_ms=rank.gain_ms * often,
            as_recorded=recorded_gain_larger,
            in_most_steps=steady.issuperset(rank.positions),
        )
        for rank in stragglers
        for often in (times[rank.positions[0]] if len(rank.positions) == 1 else 1.0,)
    )


def recorded_stragglers(
    recorded: RecordedJob,
    own: Sequence[OwnTime],
    peers: Sequence[Sequence[int]],
    ranks: Sequence[int | None],
    hosts: Sequence[str | None],
    step_ms: float,
) -> tuple[Straggler, ...]:
    """Return the stragglers if not all ranks can be replayed.

    These are the ranks that lose time for which the others wait, apart from the profiler's cost. This works like ``find_stragglers``, but
    ``step_ms`` is as recorded, and gains come from the recorded collectives. Short gaps that the profiler slows are ignored,
    because no replay shows how much of them remains without it.
    """
    least_ms = LEAST_SHARE * step_ms
    late = [_late(i, own, peers[i], least_ms * 1e6) for i in range(len(own))]
    late = [
        replace(
            rank,
            excess={p: ns for p, ns in rank.excess.items() if p.long or p.cause == WORK or not CAUSE_OF[p.cause].slowed},
        )
        for rank in late
    ]
    delay = recorded.delay_ms()
    comes_late = delay.sum(axis=1) >= least_ms * delay.shape[1]  # a rank that never arrives late only waits for others
    late = [rank for rank in late if rank.own_ms >= least_ms > 0 and comes_late[rank.position]]
    late = [replace(rank, shared_work_ms=ms) for rank, ms in zip(late, shared_work_ms(late, peers), strict=True)]

    def gain_ms(subset: Sequence[ExcessTime]) -> float:
        lost_ms = {rank.position: rank.own_ms - rank.shared_work_ms for rank in subset}
        return min(recorded.gain_ms({p: ms * 1e6 for p, ms in lost_ms.items()}), max(lost_ms.values()))

    if not late or gain_ms(late) < least_ms:
        return ()
    late = needed(late, gain_ms, least_ms)
    return tuple(replace(rank, as_recorded=True) for rank in stragglers_of(late, ranks, hosts, gain_ms))


def _hidden_by_slow_hosts(
    job: JointReplay, late: Sequence[ExcessTime], ranks: Sequence[int | None], hosts: Sequence[str | None]
) -> tuple[Straggler, ...]:
    """Return the rank with the largest excess kernel time, if faster hosts show a gain without it.

    The hosts are replayed as fast as their error (HOST_ERROR) allows.
    """
    works = [(ns, rank, part) for rank in late for part, ns in rank.excess.items() if part.cause == WORK]
    if not works:
        return ()
    ns, worst, part = max(works, key=lambda work: work[0])
    single = replace(worst, excess={part: ns})
    fast: dict[int, list[Edit]] = {position: [FasterHost(1 - HOST_ERROR)] for position in range(len(job.members))}
    all_ms = job.step_ms(fast)
    replayed_ms = job.step_ms({**fast, worst.position: [*fast[worst.position], *single.edits()]})
    if all_ms is None or replayed_ms is None or all_ms - replayed_ms < LEAST_SHARE * all_ms:
        return ()
    return (replace(straggler("rank", [single], hosts[worst.position], ranks, all_ms - replayed_ms), at_most=True),)


def _late(position: int, own: Sequence[OwnTime], peers: Sequence[int], least_ns: float) -> ExcessTime:
    """Return the excess of a rank over its peers.

    The stages of a pipeline have different work and different launches. But only one of them pausing for long is no part of that
    design. So a rank that is alone in its stage is compared with all others, and only its long pauses count.
    """
    alone = len(peers) == 1 and len(own) > 1
    mine, others = own[position], tuple(own[p] for p in (range(len(own)) if alone else peers) if p != position)
    excess: dict[OwnTimePart, float] = {}
    one_stall = []
    for part in mine.parts:
        if alone and not (part.long and part.cause in PAUSES):
            continue
        excess_ns, once = excess_of(part, mine, others, least_ns) if others else (None, False)
        if excess_ns is not None:
            excess[part] = excess_ns
        if excess_ns is not None and part.long and not (part.cause == UNRECORDED and hide_waiting(mine, others, excess_ns)):
            excess[part] = min(excess_ns, longer_ns(part.cause, mine, others))
        if part.long and part.cause != UNRECORDED and others and CAUSE_OF[part.cause].slowed:
            single, once = longer_by_gap_ns(part.cause, mine, others, least_ns)
            excess[part] = max(excess.get(part, 0.0), min(single, float(part.ns.mean())))
        one_stall += [part] if once else []
    if others:  # Recording does not lengthen a stretch without calls, so it counts even if the GPU has work in the profile.
        single, once = longer_by_gap_ns(UNRECORDED, mine, others, least_ns, least_ns if alone else 0.0)
        known = next((part for part in excess if part.long and part.cause == UNRECORDED), None)
        if single > (excess[known] if known is not None else 0.0):
            excess = {part: ns for part, ns in excess.items() if part is not known}
            excess[(pauses := pauses_of(mine))] = single
            one_stall += [pauses] if once else []
    excess = {part: ns for part, ns in excess.items() if ns > 0}
    once = bool(excess) and all(part in one_stall for part in excess)
    times = max(mine.expected_stalls, 1.0) if once else 1.0
    return ExcessTime(position, excess, mine, others, times=times, stalls_once=once)


def _wait_instead(late: ExcessTime) -> bool:
    """Return whether the peers' hosts have about as much unrecorded time as the late rank loses.

    Losses that the profiler can cause do not count; losses of the loader, for example, count. A host that runs ahead of its GPU
    waits one step later, while its GPU works again. It is possible that no recorded call shows this wait.
    """
    part = max(late.excess, key=lambda p: late.excess[p])
    if part.cause == WORK or CAUSE_OF[part.cause].slowed:
        return False
    theirs = float(np.median([peer.long_gaps_ns.get(UNRECORDED, 0.0) for peer in late.peers]))
    return theirs - late.own.long_gaps_ns.get(UNRECORDED, 0.0) >= HIDES * late.excess[part]


def _wait_before(late: ExcessTime) -> bool:
    """Return whether the peers' hosts pause before their steps for about as long as the late rank loses.

    The late rank's pause is after the start of its step.
    """
    part = max(late.excess, key=lambda p: late.excess[p])
    if part.cause != UNRECORDED or not part.long:
        return False
    theirs = float(np.median([peer.pauses_ns(UNRECORDED, started=False) for peer in late.peers]))
    return theirs - late.own.pauses_ns(UNRECORDED, started=False) >= HIDES * late.excess[part]


def _gain(job: JointReplay, recorded: RecordedJob, late: Sequence[ExcessTime], step_ms: float) -> float:
    """Return the gain of the job's step if ``late`` take no longer than their peers.

    Excess kernel work is shared with the peers where possible. Hosts may wait for a late rank without a recorded call, for
    example at a host barrier. A replay keeps this wait, so it shows no gain. If the peers idle for about as long as the late
    rank loses, the gain comes from the recorded collectives.
    """
    gain_ms = _replayed_gain(job, late, step_ms)
    worst = max(late, key=lambda rank: rank.own_ms)
    wait = _wait_before(worst)
    if gain_ms >= LEAST_SHARE * step_ms and not wait:
        return gain_ms
    if not (wait or hide_waiting(worst.own, worst.peers, worst.own_ms * 1e6) or _wait_instead(worst)):
        return gain_ms
    seen_ms = min(recorded.gain_ms({rank.position: rank.own_ms * 1e6 for rank in late}), worst.own_ms)
    return max(gain_ms, seen_ms) if wait else seen_ms


def _even_gain(even: JointReplay, late: Sequence[ExcessTime], step_ms: float) -> float:
    """Return the gain with hosts of equal speed, for a step of ``step_ms``.

    The replay of ``even`` may have another step.
    """
    even_ms = even.step_ms()
    gain_ms = _replayed_gain(even, late, even_ms) * step_ms / even_ms if even_ms else 0.0
    return min(gain_ms, sum(rank.own_ms for rank in late))


def _marked_gain(late: Sequence[ExcessTime]) -> float:
    """Return the loss by the marks of a rank whose stall in the profile is one of their slow steps."""
    return max((rank.marked_ms for rank in late), default=0.0)


def _replayed_gain(job: JointReplay, late: Sequence[ExcessTime], step_ms: float) -> float:
    replayed_ms = job.step_ms({rank.position: rank.edits() for rank in late})
    return max(step_ms - replayed_ms, 0.0) if replayed_ms is not None else 0.0
