"""Reasons and grouping of stragglers, for all methods that find them."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np

from sawtooth.analysis.ranks.contention import Quiet, Shape
from sawtooth.analysis.ranks.stragglers.gpu_work import same_kernels_ratio, same_launches_share
from sawtooth.analysis.ranks.stragglers.own_time import WORK
from sawtooth.analysis.run.job import Straggler, StragglerKind
from sawtooth.analysis.telemetry.summary import DeviceTelemetry

MIN_LATE_SHARE_OF_HOST = 0.75  # Share of a host's ranks. If at least this share is late, the host is the straggler.
MAX_SINGLE_REPLAYS = 8  # Number of late ranks. With more, the replay shows only the gain of all together, to save time.
# Share of the excess. If equal kernels that take longer explain at least this share, the GPU is slow.
MIN_SLOW_KERNEL_SHARE = 0.5
# Share of a rank's kernels that have a shape which its peers also run. With a smaller share, the batch size differs.
MIN_SAME_SHAPE_SHARE = 0.9
MIN_INTERRUPTED_SHARE = 0.5  # Share of the excess in interrupted kernels. With more, another process takes turns on the GPU.
INTERRUPTED = "turns"
CLOCK = "clock_sm_mhz"
# Share of the kernels' extra time that a lower SM clock must explain. It is below 1 because kernels limited by memory depend on the
# SM clock only in part.
MIN_CLOCK_SHARE = 0.5

Sampled = Sequence[DeviceTelemetry | None]
Reason = tuple[str | None, float | None]  # The key of the reason, and the time ratio of equal kernels if the GPU is slow.


class RunsKernels(Protocol):
    """A rank of which the kernels are known."""

    @property
    def quiet(self) -> Quiet:
        """As described in ``contention.Kernels``."""
        ...

    @property
    def shapes(self) -> Set[Shape]:
        """The shapes of all its kernels."""
        ...

    @property
    def interrupted_ms(self) -> float:
        """Time per step for which single kernels are interrupted (of ``contention.interrupted_ms``)."""
        ...


class LateRank(Protocol):
    """A rank that takes longer than its peers because of its own work."""

    @property
    def position(self) -> int:
        """Its position among the job's ranks."""
        ...

    @property
    def own_ms(self) -> float:
        """The time per step that the rank takes longer than its peers."""
        ...

    @property
    def reason(self) -> str | None:
        """As described in ``Straggler``."""
        ...

    @property
    def kernel_ratio(self) -> float | None:
        """As described in ``Straggler``."""
        ...


class LateWork(Protocol):
    """A late rank, described by the kernel work that it has in addition to its peers."""

    @property
    def position(self) -> int:
        """Its position among the job's ranks."""
        ...

    @property
    def shared_ms(self) -> float:
        """Additional time per step that its peers can share (see ``shares_work``)."""
        ...


Late = TypeVar("Late", bound=LateRank)


def reason_of_work(rank: RunsKernels, peers: Sequence[RunsKernels], work_ms: float, excess_ms: float) -> Reason:
    """Return why a rank's kernels take longer than those of ``peers``.

    They take ``work_ms`` per step, which is ``excess_ms`` longer. The reason is turns of another process, more work, or a slow GPU.
    """
    if rank.interrupted_ms - float(np.median([peer.interrupted_ms for peer in peers])) >= MIN_INTERRUPTED_SHARE * excess_ms:
        return INTERRUPTED, None
    if min(same_launches_share(rank.quiet, peer.shapes) for peer in peers) < MIN_SAME_SHAPE_SHARE:
        return (
            WORK,
            None,
        )  # Other shapes mean another batch size. Kernels of equal shape may then have more work too.
    ratio, share = np.median([same_kernels_ratio(rank.quiet, peer.quiet) for peer in peers], axis=0).tolist()
    slower_ms = (1 - 1 / ratio) * share * work_ms
    return (None, ratio) if slower_ms >= MIN_SLOW_KERNEL_SHARE * excess_ms else (WORK, None)


def shared_work_ms(late: Sequence[LateWork], peers: Sequence[Sequence[int]]) -> list[float]:
    """Return the additional kernel work that each of ``late`` keeps if all peers share it, in ms per step.

    The work of a larger batch does not disappear when it is balanced over the peers. Kernels that the peers do not run at all are
    assumed to disappear. ``peers`` is by position; each rank is among its own peers.
    """
    shares = []
    for rank in late:
        own_peers = peers[rank.position]
        shared_ms = sum(other.shared_ms for other in late if other.position in own_peers)
        shares.append(min(shared_ms / max(len(own_peers), 1), rank.shared_ms))
    return shares


def shares_work(rank: RunsKernels, peers: Sequence[RunsKernels]) -> bool:
    """Return whether a rank with more kernel work runs its peers' kernels in other shapes.

    This is the case with another batch size, but not if it runs the same kernels and additional ones.
    """
    return min(same_launches_share(peer.quiet, rank.shapes) for peer in peers) < MIN_SAME_SHAPE_SHARE


def needed_for_gain(late: Sequence[Late], gain_ms: Callable[[Sequence[Late]], float], least_ms: float) -> list[Late]:
    """Return ``late`` without the ranks that do not add at least ``least_ms`` to the gain.

    A rank that waits may look late if no recorded call shows its host's wait. The job gains nothing from such a rank.
    """
    if len(late) > MAX_SINGLE_REPLAYS:
        return list(late)
    chosen, gain_of_all_ms = list(late), gain_ms(late)
    for rank in sorted(late, key=lambda rank: rank.own_ms):
        remaining = [other for other in chosen if other is not rank]
        if remaining and gain_ms(remaining) > gain_of_all_ms - least_ms:
            chosen = remaining
    return chosen


def stragglers_of(
    late: Sequence[Late], ranks: Sequence[int | None], hosts: Sequence[str | None], gain_ms: Callable[[Sequence[Late]], float]
) -> tuple[Straggler, ...]:
    """Return slow hosts, the other late ranks one by one, and all of them together, most gain first.

    A host is slow if nearly all of its ranks are late. All ranks of a job together are no straggler, because no other rank waits
    for them. ``ranks`` and ``hosts`` are by position. ``gain_ms`` returns by how much the job's step is shorter if the given
    late ranks lose no time.
    """
    stragglers, single = [], list(late)
    for host in _slow_hosts([rank.position for rank in late], hosts):
        of_host = [rank for rank in late if hosts[rank.position] == host]
        single = [rank for rank in single if rank not in of_host]
        stragglers.append(straggler("host", of_host, host, ranks, gain_ms(of_host)))
    if len(single) <= MAX_SINGLE_REPLAYS:
        stragglers += [straggler("rank", [rank], hosts[rank.position], ranks, gain_ms([rank])) for rank in single]
    if not stragglers or (len(stragglers) > 1 and len(late) < len(ranks)):
        stragglers.append(straggler("set", late, None, ranks, gain_ms(late)))
    return tuple(sorted(stragglers, key=lambda rank: (-rank.gain_ms, -rank.own_ms)))


def straggler(
    kind: StragglerKind, late: Sequence[LateRank], host: str | None, ranks: Sequence[int | None], gain_ms: float
) -> Straggler:
    """Return ``late`` as one straggler, with a reason if all of them have the same one."""
    positions = tuple(rank.position for rank in late)
    worst = max(late, key=lambda rank: rank.own_ms)
    same_reason = len({(rank.reason, rank.kernel_ratio is None) for rank in late}) == 1
    return Straggler(
        kind=kind,
        positions=positions,
        ranks=tuple(ranks[p] for p in positions),
        host=host,
        reason=worst.reason if same_reason else None,
        kernel_ratio=worst.kernel_ratio if same_reason else None,
        own_ms=float(np.median([rank.own_ms for rank in late])),
        gain_ms=gain_ms,
    )


def _slow_hosts(late: Sequence[int], hosts: Sequence[str | None]) -> list[str]:
    """Return the hosts on which nearly all ranks are late; ``late`` has the positions of all late ranks.

    Such a host has several ranks, and the job has several hosts.
    """
    late_hosts = [hosts[position] for position in late]
    names = sorted({host for host in late_hosts if host is not None})
    several = len({host for host in hosts if host is not None}) > 1
    return [
        h for h in names if several and hosts.count(h) > 1 and late_hosts.count(h) >= MIN_LATE_SHARE_OF_HOST * hosts.count(h)
    ]


def with_reason(late: Straggler, sampled: Sampled, peers: Sequence[Sequence[int]]) -> Straggler:
    """Return ``late`` with the reason "clock" or "power" if telemetry shows it for all of its ranks.

    ``sampled`` and ``peers`` are by position.
    """
    if late.kernel_ratio is None or late.reason is not None:
        return late
    reasons = {
        _slowed_by(late.kernel_ratio, p, sampled, [q for q in peers[p] if q not in late.positions]) for p in late.positions
    }
    return replace(late, reason=reasons.pop()) if len(reasons) == 1 else late


def _slowed_by(ratio: float, position: int, sampled: Sampled, peers: Sequence[int]) -> str | None:
    """Return why a GPU takes ``ratio`` times as long for equal kernels, from its telemetry and its peers'."""
    telemetry = sampled[position]
    peer_telemetry = [t for peer in peers if (t := sampled[peer]) is not None and CLOCK in t.means]
    if telemetry is None or CLOCK not in telemetry.means or not telemetry.means[CLOCK] or not peer_telemetry:
        return None
    median_clock = float(np.median([other.means[CLOCK] for other in peer_telemetry]))
    if median_clock / telemetry.means[CLOCK] - 1 < MIN_CLOCK_SHARE * (ratio - 1):
        return None
    return "power" if telemetry.capped and not _mostly_capped(peer_telemetry) else "clock"


def _mostly_capped(gpus: Sequence[DeviceTelemetry]) -> bool:
    return 2 * sum(other.capped for other in gpus) > len(gpus)
