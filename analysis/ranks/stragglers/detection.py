"""Find stragglers by their own time, and the job's gain by a replay without their excess.

The own time of a straggler exceeds that of its peers, either in most counted steps or by a lot in a few. The excess is larger than
the errors of the estimates and than the usual differences between peers. Peers have the same work by design: they sum gradients
together in one pipeline stage. Hosts that are replayed too slowly can hide a rank's excess kernel time. Then the job is replayed
with faster hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.ranks.joint_replay import JointReplay
from sawtooth.analysis.ranks.recorded_collectives import RecordedJob
from sawtooth.analysis.ranks.stragglers.excess import (
    MIN_HIDDEN_SHARE,
    excess_of,
    longer_by_gap_ns,
    longer_ns,
    unrecorded_pauses,
    wait_unrecorded,
)
from sawtooth.analysis.ranks.stragglers.excess_time import ExcessTime
from sawtooth.analysis.ranks.stragglers.gain_interval import step_interval
from sawtooth.analysis.ranks.stragglers.own_time import HOST_ERROR, OF_GPU, UNRECORDED, WORK, OwnTime, OwnTimePart
from sawtooth.analysis.ranks.stragglers.reasons import (
    needed_for_gain,
    shared_work_ms,
    straggler,
    stragglers_of,
)
from sawtooth.analysis.ranks.stragglers.run_speed import RunSpeedReplay
from sawtooth.analysis.replay.edits import Edit, FasterHost
from sawtooth.analysis.run.job import Straggler
from sawtooth.analysis.run.model import may_gain_nothing

MIN_GAIN_SHARE = 0.03  # Share of a step. A smaller gain is within the noise.
PAUSE_CAUSES = (UNRECORDED, "data_wait")  # The schedule of a pipeline has no pauses with these causes.


def find_stragglers(
    run_speed: RunSpeedReplay, recorded: RecordedJob, ranks: Sequence[int | None], hosts: Sequence[str | None]
) -> tuple[Straggler, ...]:
    """Return the stragglers, most gain first; empty if there are none.

    ``ranks`` and ``hosts`` are by position.
    """
    job, own, peers = run_speed.replay, run_speed.own, run_speed.peers
    step_ms = job.step_ms()
    if not step_ms:
        return ()
    least_ms = MIN_GAIN_SHARE * step_ms
    late = [rank for i in range(len(own)) if (rank := _excess_time(i, own, peers[i], least_ms * 1e6)).own_ms >= least_ms]
    late = [replace(rank, shared_work_ms=ms) for rank, ms in zip(late, shared_work_ms(late, peers), strict=True)]
    if not late:
        return ()

    # A stall costs the job nothing while its GPUs have work.
    works_ms = [sum(float(part.ns.mean()) for part in rank.parts if part.cause == WORK) / 1e6 for rank in own]
    idle_ms = max(run_speed.step_ms - max(works_ms), 0.0)

    def marked_gain_ms(subset: Sequence[ExcessTime]) -> float:
        return min(max((rank.marked_ms for rank in subset), default=0.0), idle_ms)

    def gain_ms(subset: Sequence[ExcessTime]) -> float:
        return max(
            _job_gain_ms(job, recorded, subset, step_ms),
            _equal_hosts_gain_ms(run_speed.equal_hosts, subset, step_ms),
            marked_gain_ms(subset),
        )

    if gain_ms(late) < least_ms:
        return _hidden_by_slow_hosts(job, late, ranks, hosts)
    late = needed_for_gain(late, gain_ms, least_ms)
    late = [
        rank
        for rank in late
        if not rank.within_host_error
        or not may_gain_nothing(step_interval(step_ms, max(step_ms - gain_ms([rank]), least_ms), works_ms)[1], step_ms)
    ]
    if not late:
        return ()
    replayed_ms = max(
        _replayed_gain_ms(job, late, step_ms), _equal_hosts_gain_ms(run_speed.equal_hosts, late, step_ms), marked_gain_ms(late)
    )
    recorded_gain_larger = gain_ms(late) > replayed_ms
    stragglers = stragglers_of(late, ranks, hosts, gain_ms)
    late_at = {rank.position: rank for rank in late}
    late_in_most_steps = {rank.position for rank in late if rank.in_most_steps}
    return tuple(
        replace(
            rank,
            own_ms=rank.own_ms * times,
            gain_ms=rank.gain_ms * times,
            stall_share=share,
            as_recorded=recorded_gain_larger,
            in_most_steps=late_in_most_steps.issuperset(rank.positions),
        )
        for rank in stragglers
        for single in (late_at[rank.positions[0]] if len(rank.positions) == 1 else None,)
        for times, share in ((single.times, single.stall_share) if single is not None else (1.0, None),)
    )


def recorded_stragglers(
    recorded: RecordedJob,
    own: Sequence[OwnTime],
    peers: Sequence[Sequence[int]],
    ranks: Sequence[int | None],
    hosts: Sequence[str | None],
    step_ms: float,
) -> tuple[Straggler, ...]:
    """Return the stragglers of a job in which not all ranks can be replayed, most gain first.

    Stragglers are the ranks that lose time for which the others wait. In contrast to ``find_stragglers``, ``step_ms`` is the
    recorded step, and gains come from the recorded collectives. Short gaps that the profiler makes longer are ignored, because
    no replay shows their length without the profiler.
    """
    least_ms = MIN_GAIN_SHARE * step_ms
    late = [_excess_time(i, own, peers[i], least_ms * 1e6) for i in range(len(own))]
    late = [
        replace(
            rank,
            excess={p: ns for p, ns in rank.excess.items() if p.long or p.cause in OF_GPU or not CAUSE_OF[p.cause].slowed},
        )
        for rank in late
    ]
    delay = recorded.delay_ms()
    arrives_late = delay.sum(axis=1) >= least_ms * delay.shape[1]  # A rank that never arrives late only waits for others.
    late = [rank for rank in late if rank.own_ms >= least_ms > 0 and arrives_late[rank.position]]
    late = [replace(rank, shared_work_ms=ms) for rank, ms in zip(late, shared_work_ms(late, peers), strict=True)]

    def gain_ms(subset: Sequence[ExcessTime]) -> float:
        lost_ms = {rank.position: rank.own_ms - rank.shared_work_ms for rank in subset}
        return min(recorded.gain_ms({p: ms * 1e6 for p, ms in lost_ms.items()}), max(lost_ms.values()))

    if not late or gain_ms(late) < least_ms:
        return ()
    late = needed_for_gain(late, gain_ms, least_ms)
    return tuple(replace(rank, as_recorded=True) for rank in stragglers_of(late, ranks, hosts, gain_ms))


def _hidden_by_slow_hosts(
    job: JointReplay, late: Sequence[ExcessTime], ranks: Sequence[int | None], hosts: Sequence[str | None]
) -> tuple[Straggler, ...]:
    """Return the rank with the largest excess GPU time, if it delays a job with faster hosts.

    The hosts are replayed as fast as the error of their times (HOST_ERROR) allows. The result is empty if the job gains too
    little without the excess.
    """
    works = [(ns, rank, part) for rank in late for part, ns in rank.excess.items() if part.cause in OF_GPU]
    if not works:
        return ()
    ns, worst, part = max(works, key=lambda work: work[0])
    single = replace(worst, excess={part: ns})
    fast: dict[int, list[Edit]] = {position: [FasterHost(1 - HOST_ERROR)] for position in range(len(job.members))}
    all_ms = job.step_ms(fast)
    replayed_ms = job.step_ms({**fast, worst.position: [*fast[worst.position], *single.edits()]})
    if all_ms is None or replayed_ms is None or all_ms - replayed_ms < MIN_GAIN_SHARE * all_ms:
        return ()
    return (replace(straggler("rank", [single], hosts[worst.position], ranks, all_ms - replayed_ms), at_most=True),)


def _excess_time(position: int, own: Sequence[OwnTime], peers: Sequence[int], least_ns: float) -> ExcessTime:
    """Return the excess of a rank over its peers.

    The stages of a pipeline have different work and different launches by design. But a long pause of only one stage is not part
    of the design. So a rank that is alone in its stage is compared with all other ranks, and only its long pauses count.
    """
    has_no_peer = len(peers) == 1 and len(own) > 1
    own_time_of_rank, peer_times = (
        own[position],
        tuple(own[p] for p in (range(len(own)) if has_no_peer else peers) if p != position),
    )
    excess: dict[OwnTimePart, float] = {}
    stalls: dict[OwnTimePart, int] = {}
    for part in own_time_of_rank.parts:
        if has_no_peer and not (part.long and part.cause in PAUSE_CAUSES):
            continue
        excess_ns, stalls[part] = excess_of(part, own_time_of_rank, peer_times, least_ns) if peer_times else (None, 0)
        if excess_ns is not None:
            excess[part] = excess_ns
        if (
            excess_ns is not None
            and part.long
            and not (part.cause == UNRECORDED and wait_unrecorded(own_time_of_rank, peer_times, excess_ns))
        ):
            excess[part] = min(excess_ns, longer_ns(part.cause, own_time_of_rank, peer_times))
        if part.long and part.cause != UNRECORDED and peer_times and CAUSE_OF[part.cause].slowed:
            by_gap_ns, marked = longer_by_gap_ns(part.cause, own_time_of_rank, peer_times, least_ns)
            stalls[part] = max(stalls[part], marked)
            excess[part] = max(excess.get(part, 0.0), min(by_gap_ns, float(part.ns.mean())))
    if peer_times:  # Recording does not lengthen a stretch without calls, so it counts even if the GPU has work in the profile.
        by_gap_ns, marked = longer_by_gap_ns(
            UNRECORDED, own_time_of_rank, peer_times, least_ns, least_ns if has_no_peer else 0.0
        )
        known = next((part for part in excess if part.long and part.cause == UNRECORDED), None)
        if by_gap_ns > (excess[known] if known is not None else 0.0):
            excess = {part: ns for part, ns in excess.items() if part is not known}
            excess[(pauses := unrecorded_pauses(own_time_of_rank))] = by_gap_ns
            stalls[pauses] = marked
    excess = {part: ns for part, ns in excess.items() if ns > 0}
    return ExcessTime(
        position, excess, own_time_of_rank, peer_times, stalls={part: n for part, n in stalls.items() if n and part in excess}
    )


def _peers_wait_unrecorded(late: ExcessTime) -> bool:
    """Return whether the peers' hosts have about as much more unrecorded time as the late rank loses.

    Losses that the profiler can cause do not count. Losses of the loader, for example, count. A host that runs ahead of its GPU
    waits for the late rank one step later, while its GPU works again. Such a wait may have no recorded call.
    """
    part = max(late.excess, key=lambda p: late.excess[p])
    if part.cause in OF_GPU or CAUSE_OF[part.cause].slowed:
        return False
    theirs = float(np.median([peer.long_gaps_ns.get(UNRECORDED, 0.0) for peer in late.peers]))
    return theirs - late.own.long_gaps_ns.get(UNRECORDED, 0.0) >= MIN_HIDDEN_SHARE * late.excess[part]


def _peers_wait_before_steps(late: ExcessTime) -> bool:
    """Return whether the peers' hosts pause before their steps for about as long as the late rank loses.

    The peers then wait for the late rank, which pauses after the start of its own step.
    """
    part = max(late.excess, key=lambda p: late.excess[p])
    if part.cause != UNRECORDED or not part.long:
        return False
    theirs = float(np.median([peer.unrecorded_pauses_ns() for peer in late.peers]))
    return theirs - late.own.unrecorded_pauses_ns() >= MIN_HIDDEN_SHARE * late.excess[part]


def _job_gain_ms(job: JointReplay, recorded: RecordedJob, late: Sequence[ExcessTime], step_ms: float) -> float:
    """Return the gain of the job's step, in ms, if the ranks in ``late`` take no longer than their peers.

    Excess kernel work is shared with the peers where possible. Hosts may wait for a late rank without a recorded call, for
    example at a barrier on the CPU. A replay keeps this wait, so it shows no gain. If the peers are idle for about as long as
    the late rank's loss, the gain comes from the recorded collectives.
    """
    gain_ms = _replayed_gain_ms(job, late, step_ms)
    worst = max(late, key=lambda rank: rank.own_ms)
    peers_wait = _peers_wait_before_steps(worst)
    if gain_ms >= MIN_GAIN_SHARE * step_ms and not peers_wait:
        return gain_ms
    if not (peers_wait or wait_unrecorded(worst.own, worst.peers, worst.own_ms * 1e6) or _peers_wait_unrecorded(worst)):
        return gain_ms
    recorded_gain_ms = min(recorded.gain_ms({rank.position: rank.own_ms * 1e6 for rank in late}), worst.own_ms)
    return max(gain_ms, recorded_gain_ms) if peers_wait else recorded_gain_ms


def _equal_hosts_gain_ms(equal_hosts: JointReplay, late: Sequence[ExcessTime], step_ms: float) -> float:
    """Return the gain in ms with hosts of equal speed, scaled to a step of ``step_ms``."""
    equal_ms = equal_hosts.step_ms()
    gain_ms = _replayed_gain_ms(equal_hosts, late, equal_ms) * step_ms / equal_ms if equal_ms else 0.0
    return min(gain_ms, sum(rank.own_ms for rank in late))


def _replayed_gain_ms(job: JointReplay, late: Sequence[ExcessTime], step_ms: float) -> float:
    replayed_ms = job.step_ms({rank.position: rank.edits() for rank in late})
    return max(step_ms - replayed_ms, 0.0) if replayed_ms is not None else 0.0
