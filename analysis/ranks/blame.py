"""Which ranks hold a job up, and what the job would gain without what they lose: found by own time, proved by replaying the job without it.

A rank is late by its own doing where its own time in most counted steps exceeds that of its peers by more than the estimates' error and by
more than ranks differ anyway. Peers have the same work by design: ranks that sum gradients together, not another pipeline stage. What
the profiler slows more on one host than on another stays within the error, and names nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.ranks.as_recorded import RecordedJob
from sawtooth.analysis.ranks.coupled import Job
from sawtooth.analysis.ranks.own_time import HOLE, HOST_ERROR, WORK, OwnTime, Part, same_kernels_ratio
from sawtooth.analysis.replay.edits import Edit
from sawtooth.analysis.run.model import Straggler, StragglerKind

LEAST_SHARE = 0.03  # of a step: a fix below 3 % is lost in the noise
OUTLIER_MADS = 6.0  # beyond the median: of 1,000 alike ranks none lies there
FEWEST_TO_SCATTER = 4  # peers whose scatter says anything
SCATTER = 1.4826  # the standard deviation of a normal distribution, from its median absolute deviation
PERSISTENT = 0.5  # of the counted steps
MOST_OF_HOST = 0.75  # of a host's ranks: then it is the host
SAME_KERNELS = 0.5  # of the excess: explained by equal kernels that take longer, it is a slow GPU and no more work
HIDES, HIDDEN_TIMES = (
    0.7,
    3.0,
)  # of what the late rank loses, and times its own: holes of the others that are as long are their waiting for it
MOST_REPLAYED = 8  # ranks whose gain is replayed one by one; of more, the set's

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class _Late:
    """One rank's excess over its peers: by part, mean ns per step."""

    position: int
    excess: Mapping[Part, float]
    own: OwnTime
    peers: tuple[OwnTime, ...]

    @property
    def own_ms(self) -> float:
        return sum(self.excess.values()) / 1e6

    def edits(self) -> list[Edit]:
        return [self.own.edit_of(part, 1 - ns / float(part.ns.mean())) for part, ns in self.excess.items()]

    def reason(self) -> tuple[str | None, float | None]:
        """Return the reason's key, and how many times as long equal kernels take where that is it."""
        part = max(self.excess, key=lambda p: self.excess[p])
        if part.cause != WORK:
            return part.cause, None
        ratio, share = self._ratio()
        slower_ns = (1 - 1 / ratio) * share * float(part.ns.mean())
        return (None, ratio) if slower_ns >= SAME_KERNELS * self.excess[part] else (WORK, None)

    def _ratio(self) -> tuple[float, float]:
        each = [same_kernels_ratio(self.own, peer) for peer in self.peers]
        return float(np.median([r for r, _ in each])), float(np.median([s for _, s in each]))


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
    late = [each for each in (_late(i, own, peers[i]) for i in range(len(own))) if each.own_ms >= LEAST_SHARE * step_ms]
    if not late:
        return ()
    together = _gain(job, recorded, own, late, step_ms)
    if together < LEAST_SHARE * step_ms:
        return ()
    stragglers, single = [], list(late)
    for host in _slow_hosts(late, hosts):
        of_host = [each for each in late if hosts[each.position] == host]
        single = [each for each in single if each not in of_host]
        stragglers.append(_straggler("host", of_host, host, ranks, _gain(job, recorded, own, of_host, step_ms)))
    if len(single) <= MOST_REPLAYED:
        stragglers += [
            _straggler("rank", [each], hosts[each.position], ranks, _gain(job, recorded, own, [each], step_ms))
            for each in single
        ]
    if len(stragglers) != 1:
        stragglers.append(_straggler("set", late, None, ranks, together))
    return tuple(sorted(stragglers, key=lambda each: (-each.gain_ms, -each.own_ms)))


def _late(position: int, own: Sequence[OwnTime], peers: Sequence[int]) -> _Late:
    mine, others = own[position], tuple(own[p] for p in peers if p != position)
    excess = {}
    for part in mine.parts:
        over = _excess(part, mine, others) if others else None
        if over is not None:
            excess[part] = over
        if over is not None and part.long and not (part.cause == HOLE and _hide_waiting(mine, others, over)):
            excess[part] = min(over, _longer_ns(part.cause, mine, others))
    return _Late(position, {part: ns for part, ns in excess.items() if ns > 0}, mine, others)


def _longer_ns(cause: str, mine: OwnTime, others: Sequence[OwnTime]) -> float:
    """Return by how much the long gaps of ``cause`` are longer than the peers', mean ns per step; 0 within the estimates' error.

    Whose GPU runs dry in a gap that every host has is the profiler's choice.
    """
    own = mine.long_gaps_ns.get(cause, 0.0)
    over = own - float(np.median([other.long_gaps_ns.get(cause, 0.0) for other in others]))
    return over if over > (HOST_ERROR * own if CAUSE_OF[cause].slowed else 0.0) else 0.0


def _excess(part: Part, mine: OwnTime, others: Sequence[OwnTime]) -> float | None:
    """Return by how much ``part`` exceeds the peers', mean ns per step; None where it does not in most counted steps."""
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
        limit = np.maximum(limit, OUTLIER_MADS * SCATTER * np.median(np.abs(table - usual), axis=0))
    exceeds = over > limit
    if not exceeds.any() or exceeds.mean() <= PERSISTENT:
        return None
    return float(np.maximum(over, 0.0).mean())


def _like(part: Part, other: OwnTime) -> Part | None:
    return next((p for p in other.parts if (p.cause, p.long) == (part.cause, part.long)), None)


def _hide_waiting(mine: OwnTime, others: Sequence[OwnTime], lost_ns: float) -> bool:
    """Tell whether the others' hosts wait for ``mine``, which loses ``lost_ns`` a step, where no call shows it."""
    hidden = float(np.median([other.hidden_ns for other in others]))
    return hidden >= HIDDEN_TIMES * mine.hidden_ns and hidden - mine.hidden_ns >= HIDES * lost_ns


def _gain(job: Job, recorded: RecordedJob, own: Sequence[OwnTime], late: Sequence[_Late], step_ms: float) -> float:
    """Return what the job's step gains where ``late`` take no longer than their peers.

    Hosts may wait for a late rank outside any recorded call, at a barrier on the host for one; their replays then take as long without it.
    Where the others have as much more of such holes as the late rank loses, the recorded collectives tell the gain.
    """
    without = job.step_ms({each.position: each.edits() for each in late})
    gain_ms = max(step_ms - without, 0.0) if without is not None else 0.0
    if gain_ms >= LEAST_SHARE * step_ms:
        return gain_ms
    worst = max(late, key=lambda each: each.own_ms)
    if not _hide_waiting(worst.own, worst.peers, worst.own_ms * 1e6):
        return gain_ms
    return min(recorded.gain_ms({each.position: each.own_ms * 1e6 for each in late}), worst.own_ms)


def _slow_hosts(late: Sequence[_Late], hosts: Sequence[str | None]) -> list[str]:
    """Return hosts nearly all of whose ranks are late, where the job has other hosts and the host has several ranks."""
    late_hosts = [hosts[each.position] for each in late]
    names = sorted({host for host in late_hosts if host is not None})
    several = len({host for host in hosts if host is not None}) > 1
    return [h for h in names if several and hosts.count(h) > 1 and late_hosts.count(h) >= MOST_OF_HOST * hosts.count(h)]


def _straggler(
    kind: StragglerKind, late: Sequence[_Late], host: str | None, ranks: Sequence[int | None], gain_ms: float
) -> Straggler:
    worst = max(late, key=lambda each: each.own_ms)
    reasons = {each.reason()[0] for each in late}
    reason, ratio = worst.reason()
    positions = tuple(each.position for each in late)
    return Straggler(
        kind=kind,
        positions=positions,
        ranks=tuple(ranks[p] for p in positions),
        host=host,
        reason=reason if len(reasons) == 1 else None,
        kernel_ratio=ratio if len(reasons) == 1 else None,
        own_ms=float(np.median([each.own_ms for each in late])),
        gain_ms=gain_ms,
    )
