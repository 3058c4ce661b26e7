"""A job's collectives as they were recorded, and without what some ranks come late: a max-plus system of own times and transfers.

Between two collectives a rank takes its own time; a collective ends one transfer after its last member has come. The replays without the
profiler are the better witness of what a job gains. This one needs nothing of the hosts, and holds where their traces do not show what
they waited for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]


@dataclass(frozen=True)
class RecordedJob:
    """Matched collectives in the order of their ends; per collective its members, their own times before it (ns) and its transfer.

    ``step`` is the counted step of each collective, -1 outside; ``excess`` each member's own time beyond what it usually is.
    """

    members: tuple[I64, ...]
    own: tuple[F64, ...]
    excess: tuple[F64, ...]
    transfer: F64
    step: I64
    ranks: int

    @staticmethod
    def of(rows: pd.DataFrame, ranks: int) -> RecordedJob:
        """Return the job of matched ``rows`` (of ``matching.match``)."""
        rows = rows.sort_values(["position", "start_ns"], kind="stable")
        end = rows["start_ns"] + rows["dur_ns"]
        before = end.groupby(rows["position"]).shift()
        rows = rows.assign(own=(rows["start_ns"] - before).fillna(0.0), end_ns=end, nth=rows.groupby("position").cumcount())
        # a whole group may come late together: the usual time is that of all ranks before the same call
        alike = rows.groupby(["nth", "name"])["own"]
        # of an even number the lower one: half of the ranks may be late
        usual = alike.transform("quantile", 0.5, interpolation="lower").where(
            alike.transform("size") > 2, alike.transform("min")
        )
        rows = rows.assign(excess=rows["own"] - usual)
        # ends on different clocks cannot be compared: how many collectives a rank has had can
        order = rows.groupby("collective").agg(nth=("nth", "max"), end=("end_ns", "min")).sort_values(["nth", "end"]).index
        label = rows["step"].where(rows["counted"])
        number = {name: i for i, name in enumerate(dict.fromkeys(label.dropna()))}
        rows = rows.assign(number=label.map(number).fillna(-1).astype(np.int64))
        groups = dict(iter(rows.groupby("collective")))
        each = [groups[collective] for collective in order]
        return RecordedJob(
            members=tuple(mine["position"].to_numpy(np.int64) for mine in each),
            own=tuple(mine["own"].to_numpy(np.float64) for mine in each),
            excess=tuple(mine["excess"].to_numpy(np.float64) for mine in each),
            transfer=np.array([float(mine["shortest_ns"].iloc[0]) for mine in each]),
            step=np.array([int(mine["number"].max()) for mine in each], np.int64),
            ranks=ranks,
        )

    def lateness_ms(self) -> F64:
        """Return by rank position and counted step how much more own time than usual a rank takes before its collectives, ms."""
        late = np.zeros((self.ranks, int(self.step.max(initial=-1)) + 1))
        for members, excess, step in zip(self.members, self.excess, self.step.tolist(), strict=True):
            if step >= 0:
                late[members, step] += excess
        return late / 1e6

    def gain_ms(self, lost_ns: Mapping[int, float | F64]) -> float:
        """Return what a counted step gains, ms, where each rank in ``lost_ns`` (by position) comes that much earlier a step (all alike, or one entry a
        step), at most as early as the others."""
        steps = int(self.step.max(initial=-1)) + 1
        if steps <= 0:
            return 0.0
        return float(self._counted_ns({}) - self._counted_ns(lost_ns)) / steps / 1e6

    def _counted_ns(self, lost_ns: Mapping[int, float | F64]) -> float:
        """Return how long the counted steps take together: the time the last rank needs, from collective to collective."""
        now = np.zeros(self.ranks)
        left = {position: np.full(int(self.step.max(initial=-1)) + 1, ns) for position, ns in lost_ns.items()}
        counted = 0.0
        for members, own, excess, transfer, step in zip(
            self.members, self.own, self.excess, self.transfer, self.step.tolist(), strict=True
        ):
            arrive = now[members] + own
            for k, position in enumerate(members.tolist()):
                if step >= 0 and position in left:
                    cut = min(max(float(excess[k]), 0.0), float(left[position][step]))
                    left[position][step] -= cut
                    arrive[k] -= cut
            was = float(now.max())
            now[members] = arrive.max() + transfer
            counted += float(now.max()) - was if step >= 0 else 0.0
        return counted
