"""The same collective found on several ranks.

Ranks of a group call its collectives in the same order. So the group and the sequence number identify a collective, if the trace
has a sequence number. Otherwise its place among the group's collectives of the same name, type and size in the same step
identifies it. The order of sends and receives between two ranks identifies them. This is only possible if the job has two ranks,
or if the calls name the other rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sawtooth.analysis.ranks.clocks import ROOTED_OPERATIONS, RankClock, align
from sawtooth.analysis.run.job import SEND_RECEIVE

# If the ends on two ranks differ by more, they belong to different collectives. Aligned clocks differ by far less than 2 ms.
MAX_END_DIFFERENCE_NS = 2_000_000
# Limit for the guess that all ranks form one group. The ends of one group scatter by tens of µs. Those of several groups scatter by
# the waits of their ranks.
MAX_GROUP_END_DIFFERENCE_NS = 200_000
# Share of the matches that must end within MAX_GROUP_END_DIFFERENCE_NS, so that the guess is accepted.
MIN_COMMON_END_SHARE = 0.95
# Share of the matched kernels. If more of them end at different times, the matching as a whole is wrong.
MAX_REJECTED_SHARE = 0.5
NO_SHARED_COLLECTIVE = "No collective of this run was found on two of its ranks."
MATCH_COLUMNS = ("collective", "shortest_ns", "wait_ns", "last", "ranks", "nth", "own_until_ns")


class MatchedRows(NamedTuple):
    """Each collective on the ranks that took part in it.

    ``rows`` have collective, position (of the rank), shortest_ns, wait_ns, last (whether the rank arrived last; False for all
    ranks if two durations are the shortest), ranks (number of matched ranks), nth and own_until_ns (of ``with_own_times``).
    ``clocks`` are relative to the first rank's. ``notes`` are shown to users.
    """

    rows: pd.DataFrame
    clocks: list[RankClock | None]
    notes: tuple[str, ...]


def match(kernels: Sequence[pd.DataFrame], ranks: Sequence[int | None], worlds: Sequence[Any]) -> MatchedRows:
    """Match each collective on the ranks that took part in it.

    ``kernels`` are the frames of ``load``, one per rank.
    """
    rows = pd.concat([frame.assign(position=i, rank=ranks[i]) for i, frame in enumerate(kernels)], ignore_index=True)
    return match_rows(rows, len(kernels), worlds)


def match_rows(rows: pd.DataFrame, ranks: int, worlds: Sequence[Any]) -> MatchedRows:
    """Return the result of ``match`` for the rows of all ``ranks`` in one table with position and rank."""
    rows = _with_pair_groups(rows)
    known_worlds = {int(world) for world in worlds if world is not None and not pd.isna(world)}
    usable = (rows["name"] != SEND_RECEIVE) | (known_worlds == {2}) | rows["peer"].notna()
    described = rows[rows["has_arguments"]]
    one_group = known_worlds == {2} or (
        described["group"].nunique() == 1 and set(described["group_size"].dropna()) == known_worlds and len(known_worlds) == 1
    )
    # If no rank has arguments, all ranks may form one group. The ends of their collectives show whether they do.
    unnamed = described.empty and len(known_worlds) == 1
    # Without arguments, the ranks of a collective are known only if the run has one group.
    usable &= rows["has_arguments"] | rows["peer"].notna() | one_group | unnamed
    usable &= rows["step"].notna() | rows["sequence"].notna()
    if not usable.any():
        empty = rows.reindex(columns=[*rows.columns, *MATCH_COLUMNS])[:0]
        clocks = align(empty, ranks)
        return MatchedRows(
            empty.astype(dict.fromkeys(MATCH_COLUMNS, "int64") | {"last": bool}), clocks, (NO_SHARED_COLLECTIVE,)
        )
    rows = _with_collective_numbers(with_own_times(rows[usable]))
    clocks = align(rows, ranks)
    rows, notes = _without_different_ends(rows, clocks, exactly=unnamed and not one_group)
    duration = rows.groupby("collective")["dur_ns"]
    rows["shortest_ns"] = duration.transform("min")
    rows["wait_ns"] = rows["dur_ns"] - rows["shortest_ns"]
    shortest = rows["wait_ns"] == 0
    rows["last"] = shortest & (shortest.groupby(rows["collective"]).transform("sum") == 1)
    rows["counted"] = rows.groupby("collective")["counted"].transform("all")
    rows["ranks"] = duration.transform("size")
    if (rows["group_size"] > rows["ranks"]).fillna(False).any():
        # A rank without a recording may have arrived last.
        notes += ("Some ranks of a group are not in this run, so waiting can be longer and transfers shorter than shown.",)
    return MatchedRows(rows.reset_index(drop=True), clocks, notes)


def with_own_times(rows: pd.DataFrame) -> pd.DataFrame:
    """Return ``rows`` with nth and own_until_ns.

    ``nth`` is the row's index among the rank's rows. ``own_until_ns`` is the sum of the times between the rank's rows, up to this
    row. ``rows`` also needs collectives that only one rank has, for example because another recording is cut. They cannot be
    split into waiting and transfer, so they are not own time.
    """
    rows = rows.sort_values(["position", "start_ns"], kind="stable")
    rank = rows["position"]
    previous_end = (rows["start_ns"] + rows["dur_ns"]).groupby(rank).shift()
    own_ns = (rows["start_ns"] - previous_end).fillna(0.0)
    return rows.assign(nth=rows.groupby(rank).cumcount(), own_until_ns=own_ns.groupby(rank).cumsum())


def _with_pair_groups(rows: pd.DataFrame) -> pd.DataFrame:
    """Return ``rows`` in which each known pair of sender and receiver is a group of two ranks."""
    pairs = rows[(rows["name"] == SEND_RECEIVE) & rows["peer"].notna() & rows["rank"].notna()]
    if pairs.empty:
        return rows
    # With many ranks, the column is a category, which accepts no new name.
    rows = rows.assign(group=rows["group"].astype(object))
    ends = pairs[["rank", "peer"]].astype(int)
    rows.loc[pairs.index, "group"] = [f"{min(a, b)} and {max(a, b)}" for a, b in zip(ends["rank"], ends["peer"], strict=True)]
    rows.loc[pairs.index, "group_size"] = 2
    return rows


def _with_collective_numbers(rows: pd.DataFrame) -> pd.DataFrame:
    """Give all rows of one collective the same number.

    Rows are dropped if the collective is found on one rank only, or not equally often on all of its ranks.
    """
    has_sequence, is_pair = rows["sequence"].notna(), rows["name"] == SEND_RECEIVE
    # ``mask`` gives a column the same value in all rows that the column need not distinguish.
    identity = {
        "group": rows["group"],
        "name": rows["name"],
        "sequence": rows["sequence"],
        "step": rows["step"].mask(has_sequence),
        **{column: rows[column].mask(has_sequence | is_pair) for column in ("in_elements", "out_elements", "dtype")},
    }
    codes = pd.DataFrame({column: pd.factorize(values)[0] for column, values in identity.items()}, index=rows.index)
    rows = rows.assign(key=codes.groupby(list(codes)).ngroup())
    calls = rows.groupby(["key", "position"]).size()
    calls_per_rank = calls.groupby("key").agg(["min", "max", "size"])
    shared = calls_per_rank[(calls_per_rank["min"] == calls_per_rank["max"]) & (calls_per_rank["size"] > 1)].index
    rows = rows[rows["key"].isin(shared)]
    rows = rows.assign(order=rows.groupby(["key", "position"]).cumcount())
    rows["collective"] = rows.groupby(["key", "order"], sort=True).ngroup().astype(np.int64)
    # Two recordings of the same rank are not two ranks.
    twice = rows[rows["rank"].notna()].duplicated(["collective", "rank"], keep=False)
    rows = rows[~rows["collective"].isin(rows.loc[twice.index[twice], "collective"])]
    return rows.drop(columns=["key", "order"])


def _without_different_ends(
    rows: pd.DataFrame, clocks: Sequence[RankClock | None], *, exactly: bool
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Drop collectives that end at different times on their ranks although the ranks' clocks are aligned.

    In this case, different collectives were matched as one. With ``exactly``, the match is only a guess, so nearly all ends must
    agree. The notes say what was dropped.
    """
    if rows.empty:
        return rows, (NO_SHARED_COLLECTIVE,)
    ends = (rows["start_ns"] + rows["dur_ns"]).to_numpy(np.int64)
    known_clocks = [clock or RankClock(0, 0.0) for clock in clocks]
    offset, drift = (np.array([getattr(c, name) for c in known_clocks])[rows["position"]] for name in ("offset_ns", "drift"))
    aligned = pd.Series(ends - offset - (drift * (ends - np.median(ends))).astype(np.int64), index=rows.index)
    end = aligned.groupby(rows["collective"])
    difference = end.transform("max") - end.transform("min")
    if exactly and (difference > MAX_GROUP_END_DIFFERENCE_NS).mean() > 1 - MIN_COMMON_END_SHARE:
        return rows[:0], (NO_SHARED_COLLECTIVE,)
    separate = difference > MAX_END_DIFFERENCE_NS
    without_clock = np.array([clock is None for clock in clocks])[rows["position"]]
    unknown = pd.Series(without_clock, index=rows.index).groupby(rows["collective"]).transform("any")
    bad = separate & ~unknown.astype(bool) & ~rows["name"].isin(ROOTED_OPERATIONS)
    if bad.mean() > MAX_REJECTED_SHARE:
        return rows[:0], (
            "The ranks' collectives end at different times, so they were not matched. Check that all traces are of one run.",
        )
    note = f"{int(bad.sum())} communication kernels end at other times than on the other ranks and were not matched."
    return rows[~bad], ((note,) if bad.any() else ())
