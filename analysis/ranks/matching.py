"""The same collective found on several ranks.

Ranks of a group call its collectives in the same order. So a collective is identified by its group and sequence number, if the
trace has one. Otherwise it is identified by its place among the group's collectives of the same name, type and size in the same
step. Sends and receives are identified by their order between two ranks, in a job of two ranks or if the calls name the other
rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sawtooth.analysis.ranks.clocks import ROOTED, RankClock, align
from sawtooth.analysis.run.job import SEND_RECEIVE

# Ends that differ by more belong to different collectives; aligned clocks differ by far less than 2 ms.
ENDS_APART_NS = 2_000_000
SAME_END_NS = 200_000  # ends of one group scatter by tens of µs; those of several groups scatter by the waits of their ranks
NEARLY_ALL = 0.95  # share of matches whose ends must agree
MOSTLY = 0.5  # share of the matched kernels: if the ends of more differ, the matching is wrong and is not used
NONE_SHARED = "No collective of this run was found on two of its ranks."
MATCHED = ("collective", "shortest_ns", "wait_ns", "last", "ranks", "nth", "own_until_ns")


class Matched(NamedTuple):
    """Each collective on the ranks that took part in it.

    ``rows`` have collective, position (of the rank), shortest_ns, wait_ns, last (whether it came last; no rank if two are
    shortest), ranks (number of matched ranks), nth and own_until_ns (of ``with_places``). ``clocks`` are relative to the first
    rank's. ``notes`` are shown to users.
    """

    rows: pd.DataFrame
    clocks: list[RankClock | None]
    notes: tuple[str, ...]


def match(kernels: Sequence[pd.DataFrame], ranks: Sequence[int | None], worlds: Sequence[Any]) -> Matched:
    """Match each collective on the ranks that took part in it.

    ``kernels`` are the frames of ``load``, one per rank.
    """
    rows = pd.concat([frame.assign(position=i, rank=ranks[i]) for i, frame in enumerate(kernels)], ignore_index=True)
    return match_rows(rows, len(kernels), worlds)


def match_rows(rows: pd.DataFrame, ranks: int, worlds: Sequence[Any]) -> Matched:
    """Return the result of ``match`` for the rows of all ``ranks`` in one table with position and rank."""
    rows = _paired(rows)
    known = {int(world) for world in worlds if world is not None and not pd.isna(world)}
    usable = (rows["name"] != SEND_RECEIVE) | (known == {2}) | rows["peer"].notna()
    described = rows[rows["has_arguments"]]
    one_group = known == {2} or (
        described["group"].nunique() == 1 and set(described["group_size"].dropna()) == known and len(known) == 1
    )
    # If no rank has arguments, all ranks may form one group. The ends of their collectives show whether they do.
    unnamed = described.empty and len(known) == 1
    # Without arguments, the ranks of a collective are known only if the run has one group.
    usable &= rows["has_arguments"] | rows["peer"].notna() | one_group | unnamed
    usable &= rows["step"].notna() | rows["sequence"].notna()
    if not usable.any():
        lacking = rows.reindex(columns=[*rows.columns, *MATCHED])[:0]
        nobody = align(lacking, ranks)
        return Matched(lacking.astype(dict.fromkeys(MATCHED, "int64") | {"last": bool}), nobody, (NONE_SHARED,))
    rows = _numbered(with_places(rows[usable]))
    clocks = align(rows, ranks)
    rows, notes = _ends_together(rows, clocks, exactly=unnamed and not one_group)
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
    return Matched(rows.reset_index(drop=True), clocks, notes)


def with_places(rows: pd.DataFrame) -> pd.DataFrame:
    """Return ``rows`` with nth and own_until_ns.

    ``nth`` is the position among the rank's rows. ``own_until_ns`` is the rank's sum of times between rows, up to this one.
    Collectives that only one rank has, for example because another recording is cut, cannot be split into waiting and transfer.
    They are not own time.
    """
    rows = rows.sort_values(["position", "start_ns"], kind="stable")
    rank = rows["position"]
    previous_end = (rows["start_ns"] + rows["dur_ns"]).groupby(rank).shift()
    own_ns = (rows["start_ns"] - previous_end).fillna(0.0)
    return rows.assign(nth=rows.groupby(rank).cumcount(), own_until_ns=own_ns.groupby(rank).cumsum())


def _paired(rows: pd.DataFrame) -> pd.DataFrame:
    """Return ``rows`` with a group of two for each pair of ranks that send to each other, if known."""
    pairs = rows[(rows["name"] == SEND_RECEIVE) & rows["peer"].notna() & rows["rank"].notna()]
    if pairs.empty:
        return rows
    rows = rows.assign(group=rows["group"].astype(object))  # with many ranks it is a category, which accepts no new name
    ends = pairs[["rank", "peer"]].astype(int)
    rows.loc[pairs.index, "group"] = [f"{min(a, b)} and {max(a, b)}" for a, b in zip(ends["rank"], ends["peer"], strict=True)]
    rows.loc[pairs.index, "group_size"] = 2
    return rows


def _numbered(rows: pd.DataFrame) -> pd.DataFrame:
    """Give rows of one collective the same number.

    Rows are dropped if the collective is found on one rank only, or not equally often on all of its ranks.
    """
    numbered, pair = rows["sequence"].notna(), rows["name"] == SEND_RECEIVE
    # a column that does not distinguish collectives gets the same value in all rows
    separate = {
        "group": rows["group"],
        "name": rows["name"],
        "sequence": rows["sequence"],
        "step": rows["step"].mask(numbered),
        **{column: rows[column].mask(numbered | pair) for column in ("in_elements", "out_elements", "dtype")},
    }
    codes = pd.DataFrame({column: pd.factorize(values)[0] for column, values in separate.items()}, index=rows.index)
    rows = rows.assign(key=codes.groupby(list(codes)).ngroup())
    calls = rows.groupby(["key", "position"]).size()
    spread = calls.groupby("key").agg(["min", "max", "size"])
    good = spread[(spread["min"] == spread["max"]) & (spread["size"] > 1)].index
    rows = rows[rows["key"].isin(good)]
    rows = rows.assign(order=rows.groupby(["key", "position"]).cumcount())
    rows["collective"] = rows.groupby(["key", "order"], sort=True).ngroup().astype(np.int64)
    # two recordings of the same rank are not two ranks
    twice = rows[rows["rank"].notna()].duplicated(["collective", "rank"], keep=False)
    rows = rows[~rows["collective"].isin(rows.loc[twice.index[twice], "collective"])]
    return rows.drop(columns=["key", "order"])


def _ends_together(
    rows: pd.DataFrame, clocks: Sequence[RankClock | None], *, exactly: bool
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Drop collectives whose ranks end at different times although their clocks are aligned.

    Different collectives were then matched as one. With ``exactly``, the match is only a guess, and nearly all ends must agree.
    """
    if rows.empty:
        return rows, (NONE_SHARED,)
    ends = (rows["start_ns"] + rows["dur_ns"]).to_numpy(np.int64)
    known = [clock or RankClock(0, 0.0, 0) for clock in clocks]
    offset, drift = (np.array([getattr(c, name) for c in known])[rows["position"]] for name in ("offset_ns", "drift"))
    aligned = pd.Series(ends - offset - (drift * (ends - np.median(ends))).astype(np.int64), index=rows.index)
    end = aligned.groupby(rows["collective"])
    between = end.transform("max") - end.transform("min")
    if exactly and (between > SAME_END_NS).mean() > 1 - NEARLY_ALL:
        return rows[:0], (NONE_SHARED,)
    separate = between > ENDS_APART_NS
    without_clock = np.array([clock is None for clock in clocks])[rows["position"]]
    unknown = pd.Series(without_clock, index=rows.index).groupby(rows["collective"]).transform("any")
    bad = separate & ~unknown.astype(bool) & ~rows["name"].isin(ROOTED)
    if bad.mean() > MOSTLY:
        return rows[:0], (
            "The ranks' collectives end at different times, so they were not matched. Check that all traces are of one run.",
        )
    note = f"{int(bad.sum())} communication kernels end at other times than on the other ranks and were not matched."
    return rows[~bad], ((note,) if bad.any() else ())
