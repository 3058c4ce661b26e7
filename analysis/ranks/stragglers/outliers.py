"""Stragglers among many equal ranks, from the recorded collectives.

No replay is needed if a job has enough peers for a comparison. The profiler's cost on the hosts scatters over all ranks of a
job. A rank, or all ranks of a host, may arrive later at its collectives than this scatter allows, step after step. The rank
itself is the cause if its trace shows a loss of that size which recording does not cause.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.quantiles import MAD_TO_SIGMA
from sawtooth.analysis.ranks.contention import Kernels, Quiet, Shape, held_ms
from sawtooth.analysis.ranks.recorded_collectives import RecordedJob
from sawtooth.analysis.ranks.stragglers.detection import LEAST_SHARE
from sawtooth.analysis.ranks.stragglers.excess import OUTLIER_MADS, PERSISTENT, RECURS
from sawtooth.analysis.ranks.stragglers.own_time import LONG_GAP_NS, UNRECORDED, WORK, kernel_work
from sawtooth.analysis.ranks.stragglers.reasons import reason_of_work, shared_work_ms, shares_work, stragglers_of
from sawtooth.analysis.run.job import Straggler
from sawtooth.analysis.run.model import RankResult

if TYPE_CHECKING:
    from sawtooth.analysis.store.library import Recording

FEWEST_EQUAL = 6  # ranks with the same work: with fewer, a late rank changes the scatter with which it is compared
MANY = 64  # equal ranks: up to this number, each one is compared with all others
MOST_COMPARED = 64  # number of peers that define the usual kernels and waits; more peers give the same result
EXPLAINED = 0.5  # share of a rank's lateness that its own time, without recording, must explain

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class RankLosses:
    """One rank's times in its counted steps, in ms per step.

    ``lost_ms`` has, by cause, host time for which the GPU waits and that recording does not cause, and kernel time under
    ``WORK``. ``held_ms`` is as in ``contention.held_ms``. ``quiet`` and ``shapes`` describe its kernels (as in ``contention.Kernels``).
    """

    lost_ms: Mapping[str, float]
    held_ms: float
    quiet: Quiet
    shapes: Set[Shape]

    @staticmethod
    def from_recording(recording: Recording, rank: RankResult, kernels: Kernels, shortest: Mapping[Shape, float]) -> RankLosses:
        """Return the times in the trace of ``rank``.

        ``shortest`` is the shortest time of each kernel over the ranks (of ``contention.quietest``).
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
            # host time after a wait for the GPU is the host's own: all ranks wait like this, but only the late rank's GPU runs
            # out of work
            key = UNRECORDED if cause == "host_sync" else cause
            lost_ms[key] = lost_ms.get(key, 0.0) + float((long if CAUSE_OF[key].slowed else total) or 0) / steps / 1e6
        work, _, loud = kernel_work(kernels, tuple(counted.tolist()))
        lost_ms[WORK] = float(work.sum()) / steps / 1e6
        return RankLosses(lost_ms, held_ms(kernels, counted, shortest), kernels.quiet, kernels.quiet.keys() | loud.keys())


@dataclass(frozen=True)
class _ArrivalExcess:
    """How much later than its peers a rank arrives, in ms by counted step.

    ``mostly`` is true if it is outside their scatter in most steps, false if only in several.
    """

    over_ms: F64
    mostly: bool


@dataclass(frozen=True)
class _LateArrival:
    """One late rank: how much later than its peers it arrives, and its own cause of that."""

    position: int
    over_ms: F64  # by counted step
    reason: str | None
    kernel_ratio: float | None = None
    shared: bool = False  # whether peers can share it, like the work of another batch size

    @property
    def own_ms(self) -> float:
        return float(self.over_ms.mean())

    @property
    def shared_ms(self) -> float:
        return self.own_ms if self.shared else 0.0


def outliers(
    recorded: RecordedJob,
    traces: Callable[[Sequence[int]], Mapping[int, RankLosses]],
    peers: Sequence[Sequence[int]],
    ranks: Sequence[int | None],
    hosts: Sequence[str | None],
    step_ms: float,
) -> tuple[Straggler, ...]:
    """Return the ranks whose own work makes them late, most gain first; empty with too few equal ranks.

    All sequences are by position. ``traces`` returns the traces' times at some positions; it is called with the late ranks and
    some of their peers. ``step_ms`` is the job's step as recorded.
    """
    late_ms = _late_ms(recorded.delay_ms(), peers, LEAST_SHARE * step_ms)
    compared = {position: _compared(position, peers[position]) for position in late_ms}
    trace_of = traces(sorted({p for position, subset in compared.items() for p in (position, *subset)})) if late_ms else {}
    explained = (_explained(position, comes, trace_of, compared[position]) for position, comes in late_ms.items())
    late = [arrival for arrival in explained if arrival is not None]
    late.sort(key=lambda arrival: -1 if (rank := ranks[arrival.position]) is None else rank)
    if not late:
        return ()

    shared_ms = {arrival.position: ms for arrival, ms in zip(late, shared_work_ms(late, peers), strict=True)}

    def gain_ms(subset: Sequence[_LateArrival]) -> float:
        return recorded.gain_ms(
            {arrival.position: np.maximum(arrival.over_ms - shared_ms[arrival.position], 0.0) * 1e6 for arrival in subset}
        )

    return tuple(replace(straggler, as_recorded=True) for straggler in stragglers_of(late, ranks, hosts, gain_ms))


def _late_ms(delay: F64, peers: Sequence[Sequence[int]], least_ms: float) -> dict[int, _ArrivalExcess]:
    """Return how much later than their peers the late ranks arrive (see ``_arrival_excess``)."""
    late = {}
    for equal_ranks in {id(equal_ranks): equal_ranks for equal_ranks in peers if len(equal_ranks) >= FEWEST_EQUAL}.values():
        mine = delay[equal_ranks]
        # all are compared at once first, because few of thousands are late and each single median takes as long as this one
        excess = mine - np.median(mine, axis=0)
        candidates = ((excess >= least_ms / 2).mean(axis=1) >= PERSISTENT / 2) | (excess.mean(axis=1) >= least_ms / 2)
        for position in np.asarray(equal_ranks)[candidates | (len(equal_ranks) < MANY)].tolist():
            comes = _arrival_excess(delay, position, equal_ranks, least_ms)
            if comes is not None:
                late[position] = comes
    return late


def _arrival_excess(delay: F64, position: int, equal_ranks: Sequence[int], least_ms: float) -> _ArrivalExcess | None:
    """Return how much later than its peers a rank arrives.

    It is None if the time is small, occurs only once, or is within their scatter.
    """
    others = delay[[p for p in equal_ranks if p != position]]
    usual = np.median(others, axis=0)
    excess: F64 = delay[position] - usual
    limit = np.maximum(OUTLIER_MADS * MAD_TO_SIGMA * np.median(np.abs(others - usual), axis=0), least_ms)
    beyond = excess > limit
    if not excess.size or beyond.sum() < min(RECURS, excess.size) or excess.mean() < least_ms:
        return None
    return _ArrivalExcess(excess, bool(beyond.mean() > PERSISTENT))


def _compared(position: int, equal_ranks: Sequence[int]) -> list[int]:
    """Return the peers to compare a late rank's trace with: all, or a spread selection of many."""
    others = [p for p in equal_ranks if p != position]
    return others[:: -(-len(others) // MOST_COMPARED)]


def _explained(
    position: int, comes: _ArrivalExcess, traces: Mapping[int, RankLosses], compared: Sequence[int]
) -> _LateArrival | None:
    """Return the rank with the cause of its lateness.

    None if its trace is missing, or if none of its losses exceeds those of the ``compared`` ranks by enough.
    """
    if position not in traces:
        return None
    own_ms = float(comes.over_ms.mean())
    mine, others = traces[position], [traces[p] for p in compared if p in traces]
    if not others or not mine.lost_ms:
        return None
    excess = {
        cause: ms - float(np.median([other.lost_ms.get(cause, 0.0) for other in others])) for cause, ms in mine.lost_ms.items()
    }
    cause = max(excess, key=lambda key: excess[key])
    if excess[cause] < EXPLAINED * own_ms:
        return None
    if not comes.mostly and (cause == WORK or CAUSE_OF[cause].slowed):
        return None  # recording itself may cause this in a few steps
    if cause != WORK:
        return _LateArrival(position, comes.over_ms, cause)
    reason, ratio = reason_of_work(mine, others, mine.lost_ms[WORK], own_ms)
    return _LateArrival(position, comes.over_ms, reason, ratio, reason == WORK and shares_work(mine, others))
