"""Simulate a job's steps from its recorded collectives.

Ranks arrive at the collectives as recorded, or earlier. The model is a max-plus system: between two collectives a rank needs its own time, and a collective ends one transfer after its
last member has arrived. Replays without the profiler are better evidence of a job's gain. But this model needs no data of the
hosts, so it also works if the traces do not show the hosts' waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]


@dataclass(frozen=True)
class RecordedJob:
    """Matched collectives, grouped into levels that do not wait for each other.

    Arrays over rows have one row per member of a collective; rows of one collective are adjacent. ``position`` is the position
    of the member's rank, ``own`` the rank's own time before the collective, and ``excess`` the part of it above the usual time,
    in ns. Arrays over collectives: ``first`` is the collective's first row, ``transfer`` its transfer time in ns, and ``step``
    its step (-1 outside the steps). ``level`` has the first collective of each level; the collectives of one level can be
    computed at once. ``counted`` has one value per step.
    """

    position: I64
    own: F64
    excess: F64
    first: I64
    transfer: F64
    step: I64
    level: I64
    counted: NDArray[np.bool_]
    ranks: int

    @staticmethod
    def from_rows(rows: pd.DataFrame, ranks: int) -> RecordedJob:
        """Return the job with the matched ``rows`` (of ``matching.match``)."""
        rows = rows.sort_values(["position", "start_ns"], kind="stable")
        rows = rows.assign(own=rows.groupby("position")["own_until_ns"].diff().fillna(0.0))
        # A whole group may be late together, so the usual time is the median over all ranks before the same call. It is the lower
        # of the two middle values, because half of the ranks may be late.
        same_call = rows.groupby(["nth", "name"])["own"]
        usual_ns = same_call.transform("quantile", 0.5, interpolation="lower").where(
            same_call.transform("size") > 2, same_call.transform("min")
        )
        label = dict.fromkeys(rows["step"].dropna())
        number = {name: i for i, name in enumerate(label)}
        rows = rows.assign(
            excess=rows["own"] - usual_ns,
            level=_levels(rows["position"].to_numpy(np.int64), rows["collective"].to_numpy(np.int64)),
            number=rows["step"].astype(object).map(number).fillna(-1).astype(np.int64),
        )
        counts = rows.loc[rows["counted"].to_numpy(bool), "number"].unique()
        rows = rows.sort_values(["level", "collective"], kind="stable")
        first = np.flatnonzero(np.diff(rows["collective"].to_numpy(np.int64), prepend=-1))
        return RecordedJob(
            position=rows["position"].to_numpy(np.int64),
            own=rows["own"].to_numpy(np.float64),
            excess=rows["excess"].to_numpy(np.float64),
            first=first,
            transfer=rows["shortest_ns"].to_numpy(np.float64)[first],
            step=rows["number"].to_numpy(np.int64)[first],
            level=np.flatnonzero(np.diff(rows["level"].to_numpy(np.int64)[first], prepend=-1)),
            counted=np.isin(np.arange(len(number)), counts),
            ranks=ranks,
        )

    def delay_ms(self) -> F64:
        """Return by how much the ranks' own time exceeds the usual time, in ms.

        The shape is (ranks, counted steps).
        """
        delay = np.zeros((self.ranks, len(self.counted) + 1))
        step_of_row = np.repeat(self.step, np.diff(self.first, append=len(self.position)))
        np.add.at(delay, (self.position, step_of_row), self.excess)  # Rows outside the steps are added to the last column.
        return delay[:, :-1][:, self.counted] / 1e6

    def gain_ms(self, lost_ns: Mapping[int, float | F64]) -> float:
        """Return the mean gain of a counted step in ms if the ranks in ``lost_ns`` do not lose this time.

        ``lost_ns`` has, by position, the lost time per step: one value for all steps, or one per counted step. A rank's own
        time is shortened only if it exceeds the usual time, and at most to the usual time.
        """
        if not self.counted.any():
            return 0.0
        return float(np.mean((self.steps_ns() - self.steps_ns(lost_ns))[self.counted])) / 1e6

    def steps_ns(self, lost_ns: Mapping[int, float | F64] | None = None) -> F64:
        """Return the duration of each step, in ns, without the time in ``lost_ns`` (as in ``gain_ms``).

        A step lasts from the end of the last collective before it to the end of its own last collective.
        """
        now = np.zeros(self.ranks)
        to_remove = np.zeros((self.ranks, len(self.counted) + 1))
        for late, ns in (lost_ns or {}).items():
            to_remove[late, :-1][self.counted] = ns
        ends = np.zeros(len(self.counted) + 1)
        row_of = np.append(self.first, len(self.position))
        for begin, stop in pairwise([*self.level.tolist(), len(self.first)]):
            rows = slice(row_of[begin], row_of[stop])
            size = np.diff(row_of[begin : stop + 1])
            position, step = self.position[rows], np.repeat(self.step[begin:stop], size)
            arrive = now[position] + self.own[rows]
            if lost_ns:
                removed = np.minimum(np.maximum(self.excess[rows], 0.0), to_remove[position, step])
                to_remove[position, step] -= removed
                arrive -= removed
            leave = np.maximum.reduceat(arrive, row_of[begin:stop] - row_of[begin]) + self.transfer[begin:stop]
            now[position] = np.repeat(leave, size)
            np.maximum.at(ends, self.step[begin:stop], leave)
        return np.diff(np.maximum.accumulate(ends[:-1]), prepend=0.0)


def _levels(position: I64, collective: I64) -> I64:
    """Return the level of each row's collective.

    A collective is on a higher level than all earlier collectives of its members. The rows of a rank are in the order of its calls. If the recorded orders contradict each other, the collective with the most
    waiting members goes first.
    """
    begin = np.flatnonzero(np.diff(position, prepend=-1))
    stop = np.append(begin[1:], len(position))
    _, meeting, members = np.unique(collective, return_inverse=True, return_counts=True)
    level = np.full(len(position), -1, np.int64)
    at, now = begin.copy(), 0
    is_done = np.zeros(len(members), bool)
    while (unfinished := at < stop).any():
        current = meeting[at[unfinished]]
        present = np.bincount(current, minlength=len(members))
        ready = (present == members) & (present > 0)
        if not ready.any():
            first = np.where(present > 0, present, -1).argmax()
            ready[first] = True
            participants = np.flatnonzero((meeting == first) & (level < 0))
            level[participants] = now  # The level of all members, although some ranks reach the collective later.
        is_done |= ready
        at[unfinished] += ready[current]
        level[at[unfinished][ready[current]] - 1] = now
        while (passed := (at < stop) & is_done[meeting[np.minimum(at, len(meeting) - 1)]]).any():
            at[passed] += 1
        now += 1
    return level
