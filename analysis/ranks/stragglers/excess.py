"""The excess of a rank's own time over that of its peers, and whether it is more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.quantiles import MAD_TO_SIGMA
from sawtooth.analysis.ranks.stragglers.gpu_work import F64
from sawtooth.analysis.ranks.stragglers.own_time import HOST_ERROR, LONG_GAP_NS, OF_GPU, UNRECORDED, OwnTime, OwnTimePart

OUTLIER_MADS = 6.0  # Median absolute deviations (as sigma) above the median. Of 1,000 equal ranks, none exceeds this limit.
MIN_PEERS_FOR_SPREAD = 4  # With fewer peers, their spread cannot be measured.
PERSISTENT_SHARE = 0.5  # Share of steps. An excess persists if it occurs in a larger share.
MIN_STALLS = 2  # Number of steps with a stall. A loader that stalls every fourth step does so twice in a short profile.
MIN_STALL_SHARE = 0.5  # Share of least_ns × steps. A stall is at least this long, so two stalls raise the mean by least_ns.
# If peers wait for a rank, they idle longer than the rank by at least this share of the rank's loss …
MIN_HIDDEN_SHARE = 0.7
# … and at least this many times as long as the rank.
MIN_HIDDEN_RATIO = 3.0


def longer_ns(cause: str, rank: OwnTime, peers: Sequence[OwnTime]) -> float:
    """Return by how much the long gaps of ``cause`` exceed those of the peers, in mean ns per step.

    Gaps count even while the GPU has work, because the profiler changes the times at which the GPU runs out of work. The result
    is 0 if the excess is within the error.
    """
    own_gaps_ns = rank.long_gaps_ns.get(cause, 0.0)
    excess = own_gaps_ns - float(np.median([peer.long_gaps_ns.get(cause, 0.0) for peer in peers]))
    return excess if excess > (HOST_ERROR * own_gaps_ns if CAUSE_OF[cause].slowed else 0.0) else 0.0


def longer_by_gap_ns(
    cause: str, rank: OwnTime, peers: Sequence[OwnTime], least_ns: float, least_gap_ns: float = 0.0
) -> tuple[float, int]:
    """Return by how much single long gaps exceed those of the peers, and the number of marked stalls.

    The excess is the mean in ns per step. Gaps are compared one by one, longest first. Gaps below ``least_gap_ns`` do not count.
    A host that is slower everywhere also has longer gaps, so the peers' gaps are first scaled to this host's speed. The excess
    is 0 if it is below ``least_ns`` in most counted steps and no stall recurs. The profiler's cost is not subtracted, because it
    is known per step and not per gap.
    """
    common = [step for step in rank.steps if all(step in peer.steps for peer in peers)]
    pauses = [pause for pause in rank.longest_ns if pause[0] == cause]
    slowdown = max(rank.short_ns / max(float(np.median([peer.short_ns for peer in peers])), 1.0), 1.0)
    excess = np.zeros(len(common))
    for (i, step), pause in product(enumerate(common), pauses):
        gaps = rank.longest_ns[pause][rank.steps.index(step)]
        peer_gaps = np.zeros((len(peers), len(gaps)))
        for row, peer in zip(peer_gaps, peers, strict=True):
            other_gaps = peer.longest_ns[pause][peer.steps.index(step)][: len(gaps)] if pause in peer.longest_ns else ()
            row[: len(other_gaps)] = other_gaps
        usual_ns = slowdown * np.maximum(np.median(peer_gaps, axis=0), LONG_GAP_NS)
        excess[i] += np.where(gaps > np.maximum((1 + HOST_ERROR) * usual_ns, least_gap_ns), gaps - usual_ns, 0.0).sum()
    long = excess >= MIN_STALL_SHARE * len(excess) * least_ns
    recurs, stalls = _stalls_recur(long, rank, excess)
    persists = len(excess) > 0 and (excess >= least_ns).mean() > PERSISTENT_SHARE
    if long.sum() == 1 and not recurs:  # A single stall may be chance, so it does not count in the mean.
        excess = np.where(long, np.median(excess), excess)
    return (float(excess.mean()) if recurs or persists else 0.0), stalls


def excess_of(part: OwnTimePart, rank: OwnTime, peers: Sequence[OwnTime], least_ns: float) -> tuple[float | None, int]:
    """Return by how much ``part`` exceeds that of the peers, and the number of marked stalls.

    The excess is the mean in ns per step. It is None unless most counted steps have an excess. For time that the profiler does
    not affect, several steps are enough if the mean over all steps is at least ``least_ns``.
    """
    peer_parts = [_same_part(part, peer) for peer in peers]
    short = _short_gaps_ns(part, rank)
    common = [step for step in rank.steps if all(step in peer.steps for peer in peers)]
    if not common:
        return None, 0
    at = [rank.steps.index(step) for step in common]
    table = np.array([[t.ns[o.steps.index(s)] if t else 0.0 for s in common] for t, o in zip(peer_parts, peers, strict=True)])
    if part.long and not CAUSE_OF[part.cause].slowed:
        # The same work may be in short gaps on the peers. Their short gaps count as far as they exceed those of this rank.
        own_short = np.array([short[rank.steps.index(s)] for s in common])
        for row, peer in zip(table, peers, strict=True):
            peer_short = _short_gaps_ns(part, peer)
            row += np.maximum([peer_short[peer.steps.index(s)] for s in common] - own_short, 0.0)
    errors = np.array(
        [[t.error_ns[o.steps.index(s)] if t else 0.0 for s in common] for t, o in zip(peer_parts, peers, strict=True)]
    )
    median_ns = np.median(table, axis=0)
    excess: F64 = part.ns[at] - median_ns
    limit = np.median(errors, axis=0) if part.cause in OF_GPU else part.error_ns[at] + np.median(errors, axis=0)
    if len(peers) >= MIN_PEERS_FOR_SPREAD:
        limit = np.maximum(limit, OUTLIER_MADS * MAD_TO_SIGMA * np.median(np.abs(table - median_ns), axis=0))
    if part.cause not in OF_GPU and not CAUSE_OF[part.cause].slowed:
        long = excess > np.maximum(limit, least_ns)
        recurs, stalls = _stalls_recur(long, rank, excess)
        return (
            float(excess.mean()) if (recurs or (len(common) == 1 and long.all())) and excess.mean() >= least_ns else None
        ), stalls
    exceeds = excess > limit
    return (float(np.maximum(excess, 0.0).mean()) if exceeds.any() and exceeds.mean() > PERSISTENT_SHARE else None), 0


def _stalls_recur(long: NDArray[np.bool_], rank: OwnTime, excess: F64) -> tuple[bool, int]:
    """Return whether the ``long`` steps are more than chance, and their number if marks show them.

    The rank's step marks show them if some steps outside the profile are longer by about as much, else the number is 0. A single long step
    without marked stalls is chance.
    """
    stalls = int(long.sum())
    is_marked = 0 < stalls < len(long) and rank.recurs(float(excess[long].mean()))
    return is_marked or stalls >= MIN_STALLS, stalls if is_marked else 0


def _same_part(part: OwnTimePart, other: OwnTime) -> OwnTimePart | None:
    return next((p for p in other.parts if (p.cause, p.long) == (part.cause, part.long)), None)


def _short_gaps_ns(part: OwnTimePart, other: OwnTime) -> F64:
    """Return the time of ``other`` in short gaps of the part's cause, by step."""
    return next((p.ns for p in other.parts if p.cause == part.cause and not p.long), np.zeros(len(other.steps)))


def wait_unrecorded(rank: OwnTime, peers: Sequence[OwnTime], lost_ns: float) -> bool:
    """Return whether the hosts of ``peers`` wait for ``rank`` although no recorded call shows this wait.

    ``lost_ns`` is the time that ``rank`` loses per step.
    """
    hidden = float(np.median([peer.hidden_ns for peer in peers]))
    return hidden >= MIN_HIDDEN_RATIO * rank.hidden_ns and hidden - rank.hidden_ns >= MIN_HIDDEN_SHARE * lost_ns


def unrecorded_pauses(rank: OwnTime) -> OwnTimePart:
    """Return all long gaps without a recorded cause, including those in which the GPU has work."""
    gaps = [rank.longest_ns[pause] for pause in rank.longest_ns if pause[0] == UNRECORDED]
    ns = np.array([sum(float(of_step[i].sum()) for of_step in gaps) for i in range(len(rank.steps))])
    return OwnTimePart(UNRECORDED, ns, np.zeros(len(rank.steps)), long=True)
