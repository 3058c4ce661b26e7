"""Measure the offsets between the ranks' clocks from collectives.

A collective ends at the same time on all of its ranks.

The ends of common collectives give the offset of two ranks' clocks, its drift and its error. Two ranks without a common group are
compared through other ranks. Of several such ways, the one with the smallest total error is used.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.quantiles import MAD_TO_SIGMA
from sawtooth.analysis.run.job import SEND_RECEIVE

# Operations whose kernels may end at different times: a root need not wait for the other ranks, nor a sender for its receiver.
ROOTED_OPERATIONS = ("broadcast", "reduce", SEND_RECEIVE)
MIN_ENDS_FOR_DRIFT = 8  # Number of common collectives. With fewer, the variation of single ends looks like drift.
MIN_DRIFT_NS = 20_000  # Drift over the whole recording. Smaller drift is within the scatter of the ends.

I64 = NDArray[np.int64]


@dataclass(frozen=True)
class RankClock:
    """A rank's clock minus the first rank's clock.

    ``offset_ns`` is the difference in the middle of their common collectives, and ``drift`` its change per ns.
    """

    offset_ns: int
    drift: float


@dataclass(frozen=True)
class _ClockOffset:
    """The clock of ``other`` minus the clock of ``rank``."""

    rank: int
    other: int
    offset_ns: float
    drift: float
    error_ns: float


class _ReachedRank(NamedTuple):
    """A rank that can be compared with the first one, and its offset, drift and error.

    Tuples sort by error, so that a heap returns the most exact one first.
    """

    error_ns: float
    rank: int
    offset_ns: float
    drift: float


def align(rows: pd.DataFrame, ranks: int) -> list[RankClock | None]:
    """Return each rank's clock relative to the first; None for ranks that share no collective with it.

    Ranks that share collectives only through other ranks have a clock too. ``rows`` has collective, position, name, start_ns and
    dur_ns of matched collectives.
    """
    ends = rows.assign(end=rows["start_ns"] + rows["dur_ns"])
    common_ends = ends[~ends["name"].isin(ROOTED_OPERATIONS)]
    pairs: dict[int, list[_ClockOffset]] = {}
    for pair in _clock_offsets(common_ends if len(common_ends) else ends):
        pairs.setdefault(pair.rank, []).append(pair)
        reverse = _ClockOffset(pair.other, pair.rank, -pair.offset_ns, -pair.drift, pair.error_ns)
        pairs.setdefault(pair.other, []).append(reverse)
    clocks: list[RankClock | None] = [None] * ranks
    reached = [_ReachedRank(0.0, 0, 0.0, 0.0)]
    while reached:
        error, rank, offset, drift = heapq.heappop(reached)
        if clocks[rank] is not None:
            continue
        clocks[rank] = RankClock(round(offset), drift)
        for pair in pairs.get(rank, ()):
            if clocks[pair.other] is None:
                next_rank = _ReachedRank(error + pair.error_ns, pair.other, offset + pair.offset_ns, drift + pair.drift)
                heapq.heappush(reached, next_rank)
    return clocks


def _clock_offsets(ends: pd.DataFrame) -> list[_ClockOffset]:
    """Return the clock offsets within each set of ranks that share a collective.

    Each member of a set is compared with the set's first member.
    """
    ends = ends.sort_values(["collective", "position"], kind="stable")
    position, end = ends["position"].to_numpy(np.int64), ends["end"].to_numpy(np.int64)
    first = np.flatnonzero(np.diff(ends["collective"].to_numpy(np.int64), prepend=-1))
    size = np.diff(first, append=len(ends))
    sets: dict[bytes, list[int]] = {}
    for begin, members in zip(first.tolist(), size.tolist(), strict=True):
        sets.setdefault(position[begin : begin + members].tobytes(), []).append(begin)
    pairs = []
    for key, begins in sets.items():
        group = np.frombuffer(key, np.int64)
        table = end[np.array(begins)[:, None] + np.arange(len(group))]
        pairs += _offsets_from_first(group, table)
    return pairs


def _offsets_from_first(group: I64, ends: I64) -> list[_ClockOffset]:
    """Return the clock offsets of the members of ``group`` from the first member.

    ``ends`` has one row per collective and one column per member.
    """
    at, later_ends = ends[:, 0], (ends[:, 1:] - ends[:, :1]).astype(np.float64)
    offset, drift = np.median(later_ends, axis=0), np.zeros(len(group) - 1)
    if len(at) >= MIN_ENDS_FOR_DRIFT:
        order = np.argsort(at)
        early, late = order[: len(at) // 2], order[len(at) // 2 :]
        span = float(np.median(at[late] - at[0]) - np.median(at[early] - at[0]))
        change = np.median(later_ends[late], axis=0) - np.median(later_ends[early], axis=0)
        drift = np.where(np.abs(change) >= MIN_DRIFT_NS, change / span, 0.0) if span > 0 else drift
        later_ends = later_ends - drift * (at - np.median(at))[:, None]
    scatter = MAD_TO_SIGMA * np.median(np.abs(later_ends - np.median(later_ends, axis=0)), axis=0) / len(at) ** 0.5
    columns = zip(group[1:].tolist(), offset.tolist(), drift.tolist(), scatter.tolist(), strict=True)
    return [_ClockOffset(int(group[0]), *column) for column in columns]
