"""Find ranks that split into an early and a late group.

The late group has at least half of the ranks, so no single rank is an outlier.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.quantiles import MAD_TO_SIGMA
from sawtooth.analysis.ranks.recorded_collectives import RecordedJob
from sawtooth.analysis.ranks.stragglers.detection import MIN_GAIN_SHARE
from sawtooth.analysis.ranks.stragglers.excess import OUTLIER_MADS, PERSISTENT_SHARE
from sawtooth.analysis.run.job import RankGroup, Split

# Ratio of the gap between the groups to the larger spread within a group. With a smaller ratio, the ranks are one group.
MIN_GAP_FACTOR = 2.0
MIN_LATE_RANKS = 2  # Ranks in the late group. The search for single stragglers reports a single late rank.


def split_of(
    recorded: RecordedJob,
    peers: Sequence[Sequence[int]],
    ranks: Sequence[int | None],
    hosts: Sequence[str | None],
    step_ms: float,
) -> Split | None:
    """Return the early and the late group among peers, from the recorded arrivals at collectives.

    None if the peers do not split, or if fewer than half of them are late. If several sets of peers split, the split with the
    largest delay is returned. All sequences are by position. ``peers`` has the ranks with the same work as the rank. ``step_ms``
    is the job's recorded step time.
    """
    delay = recorded.delay_ms()
    if not delay.size:
        return None
    splits = []
    for equal_ranks in {id(equal_ranks): equal_ranks for equal_ranks in peers if len(equal_ranks) > MIN_LATE_RANKS}.values():
        positions = np.asarray(equal_ranks)[np.argsort(delay[equal_ranks].mean(axis=1), kind="stable")]
        sorted_delay = delay[positions]
        mean = sorted_delay.mean(axis=1)
        cut = int(np.diff(mean).argmax()) + 1
        early, late = sorted_delay[:cut], sorted_delay[cut:]
        if len(late) < max(MIN_LATE_RANKS, len(early)):
            continue
        distance = late.min(axis=0) - early.max(axis=0)  # One value for each step.
        spread = max(float(np.ptp(mean[:cut])), float(np.ptp(mean[cut:])))
        scatter = np.median(np.abs(np.concatenate([mean[:cut] - np.median(mean[:cut]), mean[cut:] - np.median(mean[cut:])])))
        least_ms = max(MIN_GAIN_SHARE * step_ms, MIN_GAP_FACTOR * spread, OUTLIER_MADS * MAD_TO_SIGMA * float(scatter))
        if mean[cut] - mean[cut - 1] >= least_ms and (distance > 0).mean() > PERSISTENT_SHARE:
            behind_ms = float(np.median(mean[cut:]) - np.median(mean[:cut]))
            splits.append(
                Split(_rank_group(positions[:cut], ranks, hosts), _rank_group(positions[cut:], ranks, hosts), behind_ms)
            )
    return max(splits, key=lambda split: split.behind_ms, default=None)


def _rank_group(positions_of: NDArray[np.int64], ranks: Sequence[int | None], hosts: Sequence[str | None]) -> RankGroup:
    """Return the ranks at ``positions_of`` as a group: a host if they are all of its ranks."""
    positions = sorted(positions_of.tolist(), key=lambda p: (-1 if (rank := ranks[p]) is None else rank, p))
    host = hosts[positions[0]]
    full_host = (
        host is not None and len(positions) > 1 and {p for p, name in enumerate(hosts) if name == host} == set(positions)
    )
    return RankGroup(
        "host" if full_host else "set", tuple(positions), tuple(ranks[p] for p in positions), host if full_host else None
    )
