"""Find stragglers among many ranks with the same work, from the recorded collectives.

No replay is needed if a job has enough peers for a comparison. The profiler's cost on the hosts varies between all ranks of a
job. A straggler arrives later at its collectives than this variation explains, step after step. The rank itself is the cause if
its trace shows a loss of that size which recording does not cause.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.quantiles import MAD_TO_SIGMA
from sawtooth.analysis.ranks.contention import Kernels, Quiet, Shape, interrupted_ms
from sawtooth.analysis.ranks.recorded_collectives import RecordedJob
from sawtooth.analysis.ranks.stragglers.detection import MIN_GAIN_SHARE
from sawtooth.analysis.ranks.stragglers.excess import MIN_STALLS, OUTLIER_MADS, PERSISTENT_SHARE
from sawtooth.analysis.ranks.stragglers.gpu_work import kernel_work
from sawtooth.analysis.ranks.stragglers.own_time import LONG_GAP_NS, UNRECORDED, WORK
from sawtooth.analysis.ranks.stragglers.reasons import reason_of_work, shared_work_ms, shares_work, stragglers_of
from sawtooth.analysis.run.job import Straggler
from sawtooth.analysis.run.model import RankResult

if TYPE_CHECKING:
    from sawtooth.analysis.store.library import Recording

MIN_EQUAL_RANKS = 6  # Ranks with the same work. With fewer, a late rank itself changes the scatter with which it is compared.
MAX_COMPARED_SINGLY = 64  # Ranks with the same work. Of more ranks, only candidates are compared one by one, to save time.
MAX_COMPARED_PEERS = 64  # Peers that define the usual kernels and waits. More peers give the same result.
MIN_EXPLAINED_SHARE = 0.5  # Share of a rank's delay that its own time must explain, without the profiler's cost.

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class RankLosses:
    """The times that a rank may lose in its counted steps, in ms per step.

    ``lost_ms`` has the kernel time under ``WORK``. Under each cause of the host it has the host time for which the GPU waits and
    which recording does not cause. ``interrupted_ms`` is the result of ``contention.interrupted_ms``. ``quiet`` and ``shapes`` describe the
    rank's kernels (as in ``contention.Kernels``).
    """

    lost_ms: Mapping[str, float]
    interrupted_ms: float
    quiet: Quiet
    shapes: Set[Shape]

    @staticmethod
    def from_recording(recording: Recording, rank: RankResult, kernels: Kernels, shortest: Mapping[Shape, float]) -> RankLosses:
        """Return the times in the trace of ``rank``.

        ``shortest`` is the shortest time of each kernel over the ranks (of ``contention.shortest_quiet_ns``).
        """
        counted = rank.counted["step"].to_numpy(np.int32)
        steps = max(len(counted), 1)
        rows = recording.rows(
            "SELECT cause, sum(end_ns - start_ns) FILTER (end_ns - start_ns >= ?), sum(end_ns - start_ns) FROM gaps "
            "WHERE device = ? AND owner = 'idle' AND list_contains(?, step) GROUP BY cause",
            [LONG_GAP_NS, rank.device, counted.tolist()],
        )
        lost_ms: dict[str, float] = {}
        for cause, long, total in rows:
            # Host time after a wait for the GPU is the host's own time. All ranks have such waits, but only the late rank's GPU
            # runs out of work.
            key = UNRECORDED if cause == "host_sync" else cause
            lost_ms[key] = lost_ms.get(key, 0.0) + float((long if CAUSE_OF[key].slowed else total) or 0) / steps / 1e6
        work, _, loud = kernel_work(kernels, tuple(counted.tolist()))
        lost_ms[WORK] = float(work.sum()) / steps / 1e6
        return RankLosses(
            lost_ms, interrupted_ms(kernels, counted, shortest), kernels.quiet, kernels.quiet.keys() | loud.keys()
        )


@dataclass(frozen=True)
class _ArrivalExcess:
    """The time by which a rank arrives later than its peers, in ms by counted step.

    ``in_most_steps`` is true if the time is outside the peers' scatter in most steps, false if only in several.
    """

    excess_ms: F64
    in_most_steps: bool


@dataclass(frozen=True)
class _LateArrival:
    """One late rank: how much later than its peers it arrives, and why."""

    position: int
    excess_ms: F64  # One value for each counted step.
    reason: str | None
    kernel_ratio: float | None = None
    shared: bool = False  # True if peers can share the excess, such as the work of a larger batch.

    @property
    def own_ms(self) -> float:
        return float(self.excess_ms.mean())

    @property
    def shared_ms(self) -> float:
        return self.own_ms if self.shared else 0.0


def find_outliers(
    recorded: RecordedJob,
    traces: Callable[[Sequence[int]], Mapping[int, RankLosses]],
    peers: Sequence[Sequence[int]],
    ranks: Sequence[int | None],
    hosts: Sequence[str | None],
    step_ms: float,
) -> tuple[Straggler, ...]:
    """Return the ranks that are late because of their own work, most gain first.

    The result is empty if too few ranks have the same work. All sequences are by position. ``traces`` returns the losses of the
    ranks at the given positions; it is called with the late ranks and some of their peers. ``step_ms`` is the job's recorded step.
    """
    late_ms = _late_ms(recorded.delay_ms(), peers, MIN_GAIN_SHARE * step_ms)
    compared = {position: _compared_peers(position, peers[position]) for position in late_ms}
    trace_of = traces(sorted({p for position, subset in compared.items() for p in (position, *subset)})) if late_ms else {}
    explained = (_with_cause(position, arrival, trace_of, compared[position]) for position, arrival in late_ms.items())
    late = [arrival for arrival in explained if arrival is not None]
    late.sort(key=lambda arrival: -1 if (rank := ranks[arrival.position]) is None else rank)
    if not late:
        return ()

    shared_ms = {arrival.position: ms for arrival, ms in zip(late, shared_work_ms(late, peers), strict=True)}

    def gain_ms(subset: Sequence[_LateArrival]) -> float:
        return recorded.gain_ms(
            {arrival.position: np.maximum(arrival.excess_ms - shared_ms[arrival.position], 0.0) * 1e6 for arrival in subset}
        )

    return tuple(replace(straggler, as_recorded=True) for straggler in stragglers_of(late, ranks, hosts, gain_ms))


def _late_ms(delay: F64, peers: Sequence[Sequence[int]], least_ms: float) -> dict[int, _ArrivalExcess]:
    """Return how much later than their peers the late ranks arrive (see ``_arrival_excess``)."""
    late = {}
    for equal_ranks in {id(equal_ranks): equal_ranks for equal_ranks in peers if len(equal_ranks) >= MIN_EQUAL_RANKS}.values():
        group_delay = delay[equal_ranks]
        # First compare all ranks at once, because few of thousands are late, and one median per rank would take much longer.
        excess = group_delay - np.median(group_delay, axis=0)
        candidates = ((excess >= least_ms / 2).mean(axis=1) >= PERSISTENT_SHARE / 2) | (excess.mean(axis=1) >= least_ms / 2)
        for position in np.asarray(equal_ranks)[candidates | (len(equal_ranks) < MAX_COMPARED_SINGLY)].tolist():
            arrival = _arrival_excess(delay, position, equal_ranks, least_ms)
            if arrival is not None:
                late[position] = arrival
    return late


def _arrival_excess(delay: F64, position: int, equal_ranks: Sequence[int], least_ms: float) -> _ArrivalExcess | None:
    """Return how much later than its peers a rank arrives.

    None if the excess is small, occurs only once, or is within the peers' scatter.
    """
    peer_delay = delay[[p for p in equal_ranks if p != position]]
    median_delay = np.median(peer_delay, axis=0)
    excess: F64 = delay[position] - median_delay
    limit = np.maximum(OUTLIER_MADS * MAD_TO_SIGMA * np.median(np.abs(peer_delay - median_delay), axis=0), least_ms)
    beyond = excess > limit
    if not excess.size or beyond.sum() < min(MIN_STALLS, excess.size) or excess.mean() < least_ms:
        return None
    return _ArrivalExcess(excess, bool(beyond.mean() > PERSISTENT_SHARE))


def _compared_peers(position: int, equal_ranks: Sequence[int]) -> list[int]:
    """Return the peers to compare with a late rank: all, or evenly spaced ones if there are many."""
    peers = [p for p in equal_ranks if p != position]
    return peers[:: -(-len(peers) // MAX_COMPARED_PEERS)]


def _with_cause(
    position: int, arrival: _ArrivalExcess, traces: Mapping[int, RankLosses], compared: Sequence[int]
) -> _LateArrival | None:
    """Return the late rank with the cause of its delay.

    None if its trace is missing, or if none of its losses exceeds those of the ``compared`` ranks by enough.
    """
    if position not in traces:
        return None
    own_ms = float(arrival.excess_ms.mean())
    losses, peer_losses = traces[position], [traces[p] for p in compared if p in traces]
    if not peer_losses or not losses.lost_ms:
        return None
    excess = {
        cause: ms - float(np.median([other.lost_ms.get(cause, 0.0) for other in peer_losses]))
        for cause, ms in losses.lost_ms.items()
    }
    cause = max(excess, key=lambda key: excess[key])
    if excess[cause] < MIN_EXPLAINED_SHARE * own_ms:
        return None
    if not arrival.in_most_steps and (cause == WORK or CAUSE_OF[cause].slowed):
        return None  # The profiler's cost itself may cause such a delay in a few steps.
    if cause != WORK:
        return _LateArrival(position, arrival.excess_ms, cause)
    reason, ratio = reason_of_work(losses, peer_losses, losses.lost_ms[WORK], own_ms)
    return _LateArrival(position, arrival.excess_ms, reason, ratio, reason == WORK and shares_work(losses, peer_losses))
