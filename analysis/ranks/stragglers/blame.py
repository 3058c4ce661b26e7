"""Which ranks hold a job up, and what the job would gain without what they lose: found by own time, proved by replaying the job without it.

A rank is late by its own doing where its own time in most counted steps exceeds that of its peers by more than the estimates' error and by
more than ranks differ anyway; where the profiler does not touch what it loses (its loader), in several steps that cost the mean step something.
Kernel time is known far better than the hosts' pace: where the replayed hosts hide a rank's excess of it, hosts as fast as their error
allows decide whether the job may gain. Peers have the same work by design: ranks that sum gradients together, not another pipeline stage. What
the profiler slows more on one host than on another stays within the error, and names nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.quantiles import MAD_TO_SIGMA
from sawtooth.analysis.ranks.as_recorded import RecordedJob
from sawtooth.analysis.ranks.coupled import Job
from sawtooth.analysis.ranks.stragglers.own_time import HOLE, HOST_ERROR, LONG_GAP_NS, WORK, OwnTime, Part
from sawtooth.analysis.ranks.stragglers.reasons import Reason, kept_ms, reason_of_work, shares_work, straggler, stragglers_of
from sawtooth.analysis.replay.edits import Edit, FasterHost
from sawtooth.analysis.run.job import Straggler

LEAST_SHARE = 0.03  # of a step: a fix below 3 % is lost in the noise
OUTLIER_MADS = 6.0  # beyond the median: of 1,000 alike ranks none lies there
FEWEST_TO_SCATTER = 4  # peers whose scatter says anything
PERSISTENT = 0.5  # of the counted steps
RECURS = 2  # steps: a loader that stalls every fourth step is late in no more of a short profile, and once is chance
HIDES = 0.7  # of what the late rank loses: holes of the others that are as long are their waiting for it
HIDDEN_TIMES = 3.0  # its own holes: the same

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class _Late:
    """One rank's excess over its peers: by part, mean ns per step."""

    position: int
    excess: Mapping[Part, float]
    own: OwnTime
    peers: tuple[OwnTime, ...]
    kept_ms: float = 0.0  # of the excess of kernel work: its part where all share it

    @property
    def own_ms(self) -> float:
        return sum(self.excess.values()) / 1e6

    @property
    def shared_ms(self) -> float:
        work_ns = sum(ns for part, ns in self.excess.items() if part.cause == WORK)
        return work_ns / 1e6 if work_ns and self.reason == WORK and shares_work(self.own, self.peers) else 0.0

    def edits(self) -> list[Edit]:
        kept_ns = {WORK: self.kept_ms * 1e6}
        return [
            self.own.edit_of(part, 1 - (ns - kept_ns.get(part.cause, 0.0)) / float(part.ns.mean()))
            for part, ns in self.excess.items()
        ]

    @cached_property
    def _reason(self) -> Reason:
        part = max(self.excess, key=lambda p: self.excess[p])
        if part.cause != WORK:
            return part.cause, None
        return reason_of_work(self.own, self.peers, float(part.ns.mean()) / 1e6, self.excess[part] / 1e6)

    @property
    def reason(self) -> str | None:
        return self._reason[0]

    @property
    def kernel_ratio(self) -> float | None:
        return self._reason[1]


def blame(
    job: Job,
    recorded: RecordedJob,
    own: Sequence[OwnTime],
    peers: Sequence[Sequence[int]],
    ranks: Sequence[int | None],
    hosts: Sequence[str | None],
) -> tuple[Straggler, ...]:
    """Return who holds the job up, most gain first; nothing where no rank does. All sequences are by position."""
    step_ms = job.step_ms()
    if not step_ms:
        return ()
    late = [_late(i, own, peers[i], LEAST_SHARE * step_ms * 1e6) for i in range(len(own))]
    late = [each for each in late if each.own_ms >= LEAST_SHARE * step_ms]
    if not late:
        return ()
    late = [replace(each, kept_ms=ms) for each, ms in zip(late, kept_ms(late, peers), strict=True)]
    if _gain(job, recorded, late, step_ms) < LEAST_SHARE * step_ms:
        return _perhaps(job, late, ranks, hosts)
    seen = _gain(job, recorded, late, step_ms) > _replayed_gain(job, late, step_ms)
    stragglers = stragglers_of(late, ranks, hosts, lambda some: _gain(job, recorded, some, step_ms))
    return tuple(replace(each, as_recorded=seen) for each in stragglers)


def blame_recorded(
    recorded: RecordedJob,
    own: Sequence[OwnTime],
    peers: Sequence[Sequence[int]],
    ranks: Sequence[int | None],
    hosts: Sequence[str | None],
    step_ms: float,
) -> tuple[Straggler, ...]:
    """Return who holds the job up where not all ranks can be replayed: who loses, beyond what recording makes, what the others are seen to wait for.

    As ``blame``, with ``step_ms`` as recorded and gains by the recorded collectives. Short gaps of what recording slows tell nothing here: no replay
    says how much of them is left without it.
    """
    least_ms = LEAST_SHARE * step_ms
    late = [_late(i, own, peers[i], least_ms * 1e6) for i in range(len(own))]
    late = [
        replace(
            each,
            excess={p: ns for p, ns in each.excess.items() if p.long or p.cause == WORK or not CAUSE_OF[p.cause].slowed},
        )
        for each in late
    ]
    lateness = recorded.lateness_ms()
    comes_late = lateness.sum(axis=1) >= least_ms * lateness.shape[1]  # who never does waits where its host does nothing
    late = [each for each in late if each.own_ms >= least_ms > 0 and comes_late[each.position]]
    kept = kept_ms(late, peers)

    def gain_ms(some: Sequence[_Late]) -> float:
        lost_ms = {each.position: each.own_ms - ms for each, ms in zip(late, kept, strict=True) if each in some}
        return min(recorded.gain_ms({p: ms * 1e6 for p, ms in lost_ms.items()}), max(lost_ms.values()))

    if not late or gain_ms(late) < least_ms:
        return ()
    return tuple(replace(each, as_recorded=True) for each in stragglers_of(late, ranks, hosts, gain_ms))


def _perhaps(
    job: Job, late: Sequence[_Late], ranks: Sequence[int | None], hosts: Sequence[str | None]
) -> tuple[Straggler, ...]:
    """Return the rank whose kernels take most beyond its peers', where the job gains without that once hosts are as fast as they may be."""
    works = [(ns, each, part) for each in late for part, ns in each.excess.items() if part.cause == WORK]
    if not works:
        return ()
    ns, worst, part = max(works, key=lambda work: work[0])
    alone = replace(worst, excess={part: ns})
    quick: dict[int, list[Edit]] = {position: [FasterHost(1 - HOST_ERROR)] for position in range(len(job.members))}
    whole = job.step_ms(quick)
    without = job.step_ms({**quick, worst.position: [*quick[worst.position], *alone.edits()]})
    if whole is None or without is None or whole - without < LEAST_SHARE * whole:
        return ()
    return (replace(straggler("rank", [alone], hosts[worst.position], ranks, whole - without), at_most=True),)


def _late(position: int, own: Sequence[OwnTime], peers: Sequence[int], least_ns: float) -> _Late:
    mine, others = own[position], tuple(own[p] for p in peers if p != position)
    excess = {}
    for part in mine.parts:
        over = _excess(part, mine, others, least_ns) if others else None
        if over is not None:
            excess[part] = over
        if over is not None and part.long and not (part.cause == HOLE and _hide_waiting(mine, others, over)):
            excess[part] = min(over, _longer_ns(part.cause, mine, others))
        if part.long and others and CAUSE_OF[part.cause].slowed:
            single = _longer_by_gap_ns(part.cause, mine, others, least_ns)
            excess[part] = max(excess.get(part, 0.0), min(single, float(part.ns.mean())))
    return _Late(position, {part: ns for part, ns in excess.items() if ns > 0}, mine, others)


def _longer_ns(cause: str, mine: OwnTime, others: Sequence[OwnTime]) -> float:
    """Return by how much the long gaps of ``cause`` are longer than the peers', mean ns per step; 0 within the estimates' error.

    Whose GPU runs dry in a gap that every host has is the profiler's choice.
    """
    own = mine.long_gaps_ns.get(cause, 0.0)
    over = own - float(np.median([other.long_gaps_ns.get(cause, 0.0) for other in others]))
    return over if over > (HOST_ERROR * own if CAUSE_OF[cause].slowed else 0.0) else 0.0


def _longer_by_gap_ns(cause: str, mine: OwnTime, others: Sequence[OwnTime], least_ns: float) -> float:
    """Return by how much the long gaps of ``cause`` exceed the peers' one by one, longest first, mean ns per step; 0 where not by ``least_ns`` in most
    counted steps.

    All that the profiler costs a step is no error of one gap that nothing was recorded in: a pause that every step of one rank has is its own. But a
    host that is slower everywhere makes its pauses longer, too: they are held against the peers' at its own pace.
    """
    common = [step for step in mine.steps if all(step in other.steps for other in others)]
    pauses = [pause for pause in mine.longest_ns if pause[0] == cause]
    pace = max(mine.short_ns / max(float(np.median([other.short_ns for other in others])), 1.0), 1.0)
    over = np.zeros(len(common))
    for (i, step), pause in product(enumerate(common), pauses):
        gaps = mine.longest_ns[pause][mine.steps.index(step)]
        theirs = np.zeros((len(others), len(gaps)))
        for row, other in zip(theirs, others, strict=True):
            each = other.longest_ns[pause][other.steps.index(step)][: len(gaps)] if pause in other.longest_ns else ()
            row[: len(each)] = each
        usual = pace * np.maximum(np.median(theirs, axis=0), LONG_GAP_NS)
        over[i] += np.where(gaps > (1 + HOST_ERROR) * usual, gaps - usual, 0.0).sum()
    return float(over.mean()) if len(over) and (over >= least_ns).mean() > PERSISTENT else 0.0


def _excess(part: Part, mine: OwnTime, others: Sequence[OwnTime], least_ns: float) -> float | None:
    """Return by how much ``part`` exceeds the peers', mean ns per step; None where it does so too rarely.

    That is in most counted steps; of what the profiler does not touch, by ``least_ns`` in several steps and in the mean over all of them.
    """
    theirs = [_like(part, other) for other in others]
    common = [step for step in mine.steps if all(step in other.steps for other in others)]
    if not common:
        return None
    at = [mine.steps.index(step) for step in common]
    table = np.array([[t.ns[o.steps.index(s)] if t else 0.0 for s in common] for t, o in zip(theirs, others, strict=True)])
    errors = np.array(
        [[t.error_ns[o.steps.index(s)] if t else 0.0 for s in common] for t, o in zip(theirs, others, strict=True)]
    )
    usual = np.median(table, axis=0)
    over: F64 = part.ns[at] - usual
    limit = np.median(errors, axis=0) if part.cause == WORK else part.error_ns[at] + np.median(errors, axis=0)
    if len(others) >= FEWEST_TO_SCATTER:
        limit = np.maximum(limit, OUTLIER_MADS * MAD_TO_SIGMA * np.median(np.abs(table - usual), axis=0))
    if part.cause != WORK and not CAUSE_OF[part.cause].slowed:
        recurs = int((over > np.maximum(limit, least_ns)).sum()) >= min(RECURS, len(common))
        return float(over.mean()) if recurs and over.mean() >= least_ns else None
    exceeds = over > limit
    return float(np.maximum(over, 0.0).mean()) if exceeds.any() and exceeds.mean() > PERSISTENT else None


def _like(part: Part, other: OwnTime) -> Part | None:
    return next((p for p in other.parts if (p.cause, p.long) == (part.cause, part.long)), None)


def _hide_waiting(mine: OwnTime, others: Sequence[OwnTime], lost_ns: float) -> bool:
    """Tell whether the others' hosts wait for ``mine``, which loses ``lost_ns`` a step, where no call shows it."""
    hidden = float(np.median([other.hidden_ns for other in others]))
    return hidden >= HIDDEN_TIMES * mine.hidden_ns and hidden - mine.hidden_ns >= HIDES * lost_ns


def _wait_instead(late: _Late) -> bool:
    """Tell whether the peers' hosts do nothing for as long as the late one's loses to something that recording does not make, its loader for one.

    A host that runs ahead of its GPU comes to wait a step later, when its GPU has work again, and no call need show that it waits.
    """
    part = max(late.excess, key=lambda p: late.excess[p])
    if part.cause == WORK or CAUSE_OF[part.cause].slowed:
        return False
    theirs = float(np.median([peer.long_gaps_ns.get(HOLE, 0.0) for peer in late.peers]))
    return theirs - late.own.long_gaps_ns.get(HOLE, 0.0) >= HIDES * late.excess[part]


def _wait_before(late: _Late) -> bool:
    """Tell whether the peers' hosts do nothing, before their steps begin, for as long as the late one pauses behind its begin."""
    part = max(late.excess, key=lambda p: late.excess[p])
    if part.cause != HOLE or not part.long:
        return False
    theirs = float(np.median([peer.pauses_ns(HOLE, begun=False) for peer in late.peers]))
    return theirs - late.own.pauses_ns(HOLE, begun=False) >= HIDES * late.excess[part]


def _gain(job: Job, recorded: RecordedJob, late: Sequence[_Late], step_ms: float) -> float:
    """Return what the job's step gains where ``late`` take no longer than their peers, or share with them what work they have more of.

    Hosts may wait for a late rank outside any recorded call, at a barrier on the host for one; their replays then take as long without it.
    Where the others have as much more of such holes as the late rank loses, the recorded collectives tell the gain.
    """
    gain_ms = _replayed_gain(job, late, step_ms)
    worst = max(late, key=lambda each: each.own_ms)
    before = _wait_before(worst)
    if gain_ms >= LEAST_SHARE * step_ms and not before:
        return gain_ms
    if not (before or _hide_waiting(worst.own, worst.peers, worst.own_ms * 1e6) or _wait_instead(worst)):
        return gain_ms
    seen_ms = min(recorded.gain_ms({each.position: each.own_ms * 1e6 for each in late}), worst.own_ms)
    return max(gain_ms, seen_ms) if before else seen_ms


def _replayed_gain(job: Job, late: Sequence[_Late], step_ms: float) -> float:
    without = job.step_ms({each.position: each.edits() for each in late})
    return max(step_ms - without, 0.0) if without is not None else 0.0
