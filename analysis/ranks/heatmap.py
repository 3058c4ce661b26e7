"""Time of each rank in each counted step: its own time and its waits for other ranks.

The heatmap on the screen and the summaries of jobs with many ranks use the same table. Times are those of the profiled steps.
They are computed in whole nanoseconds, so own_ms + wait_ms is exactly the rank's device step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from sawtooth.analysis.ranks.collectives import step_labels
from sawtooth.analysis.run.job import Communication, Straggler
from sawtooth.analysis.run.model import RankResult

Level = Literal["rank", "host", "stage"]

MAX_ROWS = 512  # Rows of a heatmap. A screen has hardly more lines of pixels for it.
MAX_CELLS = 2_500  # Cells of a heatmap. Each cell takes about 60 bytes in the page.
MIN_ROW_LIMIT = 64  # Rows that a heatmap may always have. A job with up to this many ranks has one row per rank.
MAX_PARTIES = 32  # Hosts or ranks in the matrix of waits. A reader cannot distinguish more rows.
HEATMAP_COLUMNS = ("rank", "host", "stage", "step", "own_ms", "wait_ms")
# Shares of a rank's largest excess over the other ranks in a step. A step above MIN_STALL_SHARE is a stall. Stalls are clear
# only if all other steps are below MAX_NORMAL_SHARE.
MIN_STALL_SHARE, MAX_NORMAL_SHARE = 0.5, 0.25
MAX_NAMED_STEPS = 4  # Steps that a sentence names. The heatmap shows all of them.


@dataclass(frozen=True)
class RankStalls:
    """The few steps in which a rank takes much longer than the others.

    ``steps`` are their names, and ``mean_ms`` is the mean excess in them.
    """

    steps: tuple[str, ...]
    steps_counted: int
    mean_ms: float

    def __str__(self) -> str:
        """Return, for a sentence, how many steps and which."""
        more = f" and {len(self.steps) - MAX_NAMED_STEPS} more" if len(self.steps) > MAX_NAMED_STEPS else ""
        return f"{len(self.steps)} of {self.steps_counted} steps ({', '.join(self.steps[:MAX_NAMED_STEPS])}{more})"


def rank_steps(ranks: Sequence[RankResult], communication: Communication, stages: Sequence[int | None] = ()) -> pd.DataFrame:
    """Return one row per rank and counted step, ordered by both: rank, host, stage, step, own_ms, wait_ms.

    ``wait_ms`` is the time in collectives while the rank's GPU computes nothing, ``own_ms`` the rest of its device step. Ranks
    without a number in their trace are numbered by position in the run. ``step`` is the step's name. ``stages`` are the ranks'
    pipeline stages, empty without a pipeline.
    """
    if communication.heat is not None:  # The job was read from rank summaries, which contain this table.
        return communication.heat
    numbered = _numbered(ranks)
    waits = communication.rows.groupby(["position", "step"])["exposed_wait_ns"].sum()
    tables = []
    for position, rank in enumerate(ranks):
        steps = rank.counted
        step_ns = (steps["end_ns"] - steps["start_ns"]).to_numpy(np.int64)
        names = step_labels(rank.steps).loc[steps.index]
        wait_ns = np.array([waits.get((position, name), 0) for name in names], np.int64)
        wait_ns = np.minimum(wait_ns, step_ns)
        tables.append(
            pd.DataFrame(
                {
                    "rank": rank.rank if numbered else position,
                    "host": rank.host,
                    "stage": stages[position] if stages else None,
                    "step": names.to_numpy(),
                    "own_ms": (step_ns - wait_ns) / 1e6,
                    "wait_ms": wait_ns / 1e6,
                }
            ).astype({"host": object, "stage": "Int64", "step": object})
        )
    heat = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=list(HEATMAP_COLUMNS))
    return heat.sort_values("rank", kind="stable", ignore_index=True)


def _numbered(ranks: Sequence[RankResult]) -> bool:
    """Return whether the traces contain a different rank number for each rank."""
    return len({rank.rank for rank in ranks if rank.rank is not None}) == len(ranks)


def stalls(heat: pd.DataFrame, rank: int) -> RankStalls | None:
    """Return the steps in which ``rank``'s own time (without waits) far exceeds that of the other ranks.

    None if these are more than half of the counted steps, or if the excess varies without clear stalls.
    """
    own_ms = heat.pivot(index="step", columns="rank", values="own_ms")
    if rank not in own_ms or len(own_ms.columns) < 2:
        return None
    excess = own_ms[rank] - own_ms.drop(columns=rank).median(axis=1)
    is_stall = excess >= MIN_STALL_SHARE * excess.max()
    if not excess.max() > 0 or is_stall.sum() > len(own_ms) / 2 or excess[~is_stall].max() > MAX_NORMAL_SHARE * excess.max():
        return None
    steps = [step for step in dict.fromkeys(heat["step"]) if is_stall[step]]
    return RankStalls(tuple(steps), len(own_ms), float(excess[is_stall].mean()))


def stalls_of(late: Straggler, ranks: Sequence[RankResult], communication: Communication) -> RankStalls | None:
    """Return the few steps in which a single late rank stalls; None if the rank is late in most steps."""
    if late.in_most_steps or len(late.ranks) != 1 or not (len(communication.rows) or communication.heat is not None):
        return None
    rank = late.ranks[0] if late.ranks[0] is not None else late.positions[0]
    return stalls(rank_steps(ranks, communication), rank)


def pooled_heat(heat: pd.DataFrame, level: Level = "rank", max_rows: int | None = None) -> pd.DataFrame:
    """Return ``heat`` with one row per ``level`` and step: label, step, own_ms, wait_ms, rank.

    If the level has more members than ``max_rows``, neighbours share a row. By default, ``max_rows`` depends on the number of
    steps. Times are the maximum over the ranks in the row, so that a slow rank stays visible. ``rank`` is the row's first rank.
    Ranks without a known host or stage are left out.
    """
    with_level = heat.dropna(subset=[level])
    names = list(dict.fromkeys(with_level[level]))
    if max_rows is None:
        max_rows = min(MAX_ROWS, max(MAX_CELLS // max(with_level["step"].nunique(), 1), MIN_ROW_LIMIT))
    ranks_per_row = -(-len(names) // max_rows) if names else 1
    row_of = {name: i // ranks_per_row for i, name in enumerate(names)}
    labels = [_label(level, names[i : i + ranks_per_row]) for i in range(0, len(names), ranks_per_row)]
    order = {step: i for i, step in enumerate(dict.fromkeys(with_level["step"]))}
    keyed = with_level.assign(
        row=with_level[level].map(row_of).astype("int64"), column=with_level["step"].map(order).astype("int64")
    )
    table = keyed.groupby(["row", "column"], as_index=False).agg(
        step=("step", "first"), own_ms=("own_ms", "max"), wait_ms=("wait_ms", "max"), rank=("rank", "first")
    )
    return table.assign(label=[labels[row] for row in table["row"]])[["label", "step", "own_ms", "wait_ms", "rank"]]


def _label(level: Level, names: Sequence[object]) -> str:
    first, last = names[0], names[-1]
    range_text = f"{first}" if len(names) == 1 else f"{first} to {last}"
    return range_text if level == "host" and len(names) == 1 else f"{level} {range_text}"


def waits_between(ranks: Sequence[RankResult], communication: Communication) -> tuple[Level, pd.DataFrame]:
    """Return which hosts or ranks wait for which: the level, and rows of waiter, late and wait_ms.

    A party is a host if the job has several hosts, else a rank. ``wait_ms`` is the mean time per counted step that a rank of the
    waiting party waits in collectives for the late party, while its GPU computes nothing. Only the MAX_PARTIES parties with the
    longest waits are included, as waiter or as late party.
    """
    hosts = [rank.host or "" for rank in ranks]
    several = len(set(hosts)) > 1 and all(hosts)
    level: Level = "host" if several else "rank"
    numbered = _numbered(ranks)
    party = hosts if several else [f"rank {rank.rank}" if numbered else f"trace {i}" for i, rank in enumerate(ranks)]
    counted = communication.rows[communication.rows["counted"]]
    late = counted[counted["last"]].drop_duplicates("collective").set_index("collective")["position"]
    waits = counted[~counted["last"] & counted["collective"].isin(late.index) & (counted["exposed_wait_ns"] > 0)]
    party_of = pd.Series(party, dtype=object)
    steps = max((len(rank.counted) for rank in ranks), default=0) or 1
    ranks_per_party = party_of.value_counts()
    table = pd.DataFrame(
        {
            "waiter": waits["position"].map(party_of),
            "late": waits["collective"].map(late).map(party_of),
            "wait_ms": waits["exposed_wait_ns"] / steps / 1e6,
        }
    )
    table["wait_ms"] /= table["waiter"].map(ranks_per_party).astype(float)
    sums = table.groupby(["waiter", "late"], as_index=False, sort=False)["wait_ms"].sum()
    as_waiter, as_late_party = (sums.groupby(column)["wait_ms"].sum() for column in ("waiter", "late"))
    longest = pd.concat([as_waiter, as_late_party]).groupby(level=0).max()
    shown = set(longest.nlargest(MAX_PARTIES).index)
    rank_numbers = [i if rank.rank is None else rank.rank for i, rank in enumerate(ranks)]
    in_order = sorted(range(len(ranks)), key=rank_numbers.__getitem__)
    order = {name: i for i, name in enumerate(dict.fromkeys(party[position] for position in in_order))}
    sums = sums[sums["waiter"].isin(shown) & sums["late"].isin(shown)]
    return level, sums.sort_values(["waiter", "late"], key=lambda parties: parties.map(order), ignore_index=True)
