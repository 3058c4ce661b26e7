"""Kernel time of ranks without the slowdown by communication that waits for other ranks.

A kernel that runs only during communication is called loud. Its time is replaced by the time that another rank needs for the
same kernel without communication. If the rank has another batch size, no other rank runs the same shape. Then the ratio of
the ranks' work comes from the kernels that both ranks run without communication.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from sawtooth.analysis.ranks.contention import MAX_SLOWDOWN, Shape
from sawtooth.analysis.ranks.stragglers.gpu_work import F64
from sawtooth.analysis.ranks.stragglers.own_time import DEVICE_ERROR, WORK, OwnTime

MIN_LOUD_SHARE = 0.1  # Share of a rank's work. Less loud work does not change the comparison of ranks.
# Share of a peer's kernel time. If equally frequent kernels cover less of it, their ratio does not represent the whole work.
MIN_COMPARED_SHARE = 0.1


def without_communication_slowdown(ranks: Sequence[OwnTime]) -> list[OwnTime]:
    """Return the ranks with the kernel work that they would have without communication."""
    quiet: dict[Shape, float] = {}
    for rank in ranks:
        for shape, (median, _) in rank.quiet.items():
            quiet[shape] = min(median, quiet.get(shape, median))
    reduced = [_with_work(rank, _work(rank) - _slowed_ns(rank, quiet)) for rank in ranks]
    unknown = [_unknown_ns(rank, quiet) for rank in ranks]
    corrected = []
    for rank, loud_ns in zip(reduced, unknown, strict=True):
        peers = [peer for peer, other_ns in zip(reduced, unknown, strict=True) if not other_ns.any() and peer is not rank]
        expected = [ns for peer in peers if (ns := _expected_ns(rank, peer)) is not None]
        work = _work(rank)
        if expected and loud_ns.sum() > MIN_LOUD_SHARE * work.sum():
            expected_ns = np.minimum(work, float(np.median(expected)))
            rank = _with_work(rank, np.maximum(expected_ns, work - (1 - 1 / MAX_SLOWDOWN) * loud_ns))
        corrected.append(rank)
    return corrected


def _work(rank: OwnTime) -> F64:
    return next((part.ns for part in rank.parts if part.cause == WORK), np.zeros(len(rank.steps)))


def _with_work(rank: OwnTime, ns: F64) -> OwnTime:
    parts = (replace(part, ns=ns, error_ns=DEVICE_ERROR * ns) if part.cause == WORK else part for part in rank.parts)
    return replace(rank, parts=tuple(parts))


def _slowed_ns(rank: OwnTime, quiet: Mapping[Shape, float]) -> F64:
    """Return how much longer a rank's loud kernels take than those of other ranks, in ns by step."""
    slowed = np.zeros(len(rank.steps))
    for shape, (ns, count) in rank.loud.items():
        if shape in quiet:
            slowed += np.maximum(ns - count * quiet[shape], 0.0)
    return slowed


def _unknown_ns(rank: OwnTime, quiet: Mapping[Shape, float]) -> F64:
    """Return the time of loud kernels that no rank runs without communication, in ns by step."""
    return np.array(sum((ns for shape, (ns, _) in rank.loud.items() if shape not in quiet), np.zeros(len(rank.steps))))


def _expected_ns(rank: OwnTime, peer: OwnTime) -> float | None:
    """Return a rank's expected work per step in ns, from the work of a peer.

    The ratio of the two ranks' work is assumed to be that of the kernels that both run equally often. None if such kernels take
    too little time.
    """
    own_kernels, peer_kernels = _by_name(rank), _by_name(peer)
    common = [name for name in own_kernels.keys() & peer_kernels.keys() if own_kernels[name][1] == peer_kernels[name][1]]
    own_ns, peer_ns = (sum(kernels[name][0] for name in common) for kernels in (own_kernels, peer_kernels))
    if peer_ns < MIN_COMPARED_SHARE * sum(ns for ns, _ in peer_kernels.values()) or not peer_ns:
        return None
    return float(_work(peer).mean()) * own_ns / peer_ns


def _by_name(rank: OwnTime) -> dict[str, tuple[float, int]]:
    """Return the time in ns and the number of a rank's kernels without communication, by name."""
    totals: defaultdict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    for (name, _), (median, count) in rank.quiet.items():
        totals[name] = (totals[name][0] + median * count, totals[name][1] + count)
    return dict(totals)
