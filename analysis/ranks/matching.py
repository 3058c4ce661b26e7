"""The same collective found on several ranks.

Ranks of a group call its collectives in the same order. So a collective is known by its group and sequence number where the trace has
one, else by its place among the group's collectives of that name, type and size in the same step. Sends and receives are known by their
order between two ranks: those of a job of two, and those whose calls say with whom.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sawtooth.analysis.ranks.clocks import ROOTED, RankClock, align
from sawtooth.analysis.run.job import SEND_RECEIVE

ENDS_APART_NS = 2_000_000  # a collective ends on all ranks at once; clocks that were aligned differ far less than 2 ms
ENDS_ALIKE_NS = 200_000  # ends of one group scatter by tens of microseconds, those of several by what their ranks wait
NEARLY_ALL = 0.95  # of them
MOSTLY = 0.5  # where most matches end apart, the matching is wrong and none of it is used
NONE_SHARED = "No collective of this run was found on two of its ranks."
MATCHED = ("collective", "shortest_ns", "wait_ns", "last", "ranks", "nth", "own_until_ns")


class Matched(NamedTuple):
    """Each collective on the ranks that took part in it.

    ``rows`` have collective, position (of the rank), shortest_ns, wait_ns, last (it came last; nobody where two are shortest), ranks (how many
    were matched), nth and own_until_ns (of ``with_places``). ``clocks`` are the ranks' against the first's, ``notes`` are for people.
    """

    rows: pd.DataFrame
    clocks: list[RankClock | None]
    notes: tuple[str, ...]


def match(kernels: Sequence[pd.DataFrame], ranks: Sequence[int | None], worlds: Sequence[Any]) -> Matched:
    """Find each collective on the ranks that took part in it; ``kernels`` are the frames of ``load``, one per rank."""
    rows = pd.concat([frame.assign(position=i, rank=ranks[i]) for i, frame in enumerate(kernels)], ignore_index=True)
    return match_rows(rows, len(kernels), worlds)


def match_rows(rows: pd.DataFrame, ranks: int, worlds: Sequence[Any]) -> Matched:
    """Return what ``match`` does, of the rows of all ``ranks`` in one table with position and rank."""
    rows = _paired(rows)
    known = {int(world) for world in worlds if world is not None and not pd.isna(world)}
    usable = (rows["name"] != SEND_RECEIVE) | (known == {2}) | rows["peer"].notna()
    described = rows[rows["has_arguments"]]
    one_group = known == {2} or (
        described["group"].nunique() == 1 and set(described["group_size"].dropna()) == known and len(known) == 1
    )
    unnamed = described.empty and len(known) == 1  # no rank says anything: all may be in one group, and their ends tell
    # Without arguments, only a run with one group says which ranks took part.
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
        # An unrecorded rank may have come last.
        notes += ("Some ranks of a group are not in this run: waiting is at least, and transfer at most, what is shown.",)
    return Matched(rows.reset_index(drop=True), clocks, notes)


def with_places(rows: pd.DataFrame) -> pd.DataFrame:
    """Return ``rows`` with nth, its place among its rank's, and own_until_ns, what the rank took between them until it came to this one.

    Of collectives that only one rank has, as where another's recording is cut, nobody can tell waiting from transfer; own time it is not.
    """
    rows = rows.sort_values(["position", "start_ns"], kind="stable")
    rank = rows["position"]
    before = (rows["start_ns"] + rows["dur_ns"]).groupby(rank).shift()
    own = (rows["start_ns"] - before).fillna(0.0)
    return rows.assign(nth=rows.groupby(rank).cumcount(), own_until_ns=own.groupby(rank).cumsum())


def _paired(rows: pd.DataFrame) -> pd.DataFrame:
    """Return ``rows`` with a group of two for each pair of ranks that send to each other, where the traces say who they are."""
    pairs = rows[(rows["name"] == SEND_RECEIVE) & rows["peer"].notna() & rows["rank"].notna()]
    if pairs.empty:
        return rows
    rows = rows.assign(group=rows["group"].astype(object))  # of many ranks it is a category, which takes no new name
    ends = pairs[["rank", "peer"]].astype(int)
    rows.loc[pairs.index, "group"] = [f"{min(a, b)} and {max(a, b)}" for a, b in zip(ends["rank"], ends["peer"], strict=True)]
    rows.loc[pairs.index, "group_size"] = 2
    return rows


def _numbered(rows: pd.DataFrame) -> pd.DataFrame:
    """Give rows of one collective one number; drop those found on one rank only, or not equally often on all of theirs."""
    numbered, pair = rows["sequence"].notna(), rows["name"] == SEND_RECEIVE
    # what does not tell one collective from another is the same in all rows
    apart = {
        "group": rows["group"],
        "name": rows["name"],
        "sequence": rows["sequence"],
        "step": rows["step"].mask(numbered),
        **{column: rows[column].mask(numbered | pair) for column in ("in_elements", "out_elements", "dtype")},
    }
    codes = pd.DataFrame({column: pd.factorize(values)[0] for column, values in apart.items()}, index=rows.index)
    rows = rows.assign(key=codes.groupby(list(codes)).ngroup())
    calls = rows.groupby(["key", "position"]).size()
    spread = calls.groupby("key").agg(["min", "max", "size"])
    good = spread[(spread["min"] == spread["max"]) & (spread["size"] > 1)].index
    rows = rows[rows["key"].isin(good)]
    rows = rows.assign(order=rows.groupby(["key", "position"]).cumcount())
    rows["collective"] = rows.groupby(["key", "order"], sort=True).ngroup().astype(np.int64)
    # two recordings of one rank are two times of one process, not two ranks
    twice = rows[rows["rank"].notna()].duplicated(["collective", "rank"], keep=False)
    rows = rows[~rows["collective"].isin(rows.loc[twice.index[twice], "collective"])]
    return rows.drop(columns=["key", "order"])


def _ends_together(
    rows: pd.DataFrame, clocks: Sequence[RankClock | None], *, exactly: bool
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Drop collectives whose ranks end apart although their clocks are aligned: different ones were taken for one. ``exactly``: that they are the same
    ones is a guess, which nearly all of them must bear out."""
    if rows.empty:
        return rows, (NONE_SHARED,)
    ends = (rows["start_ns"] + rows["dur_ns"]).to_numpy(np.int64)
    known = [clock or RankClock(0, 0.0, 0) for clock in clocks]
    offset, drift = (np.array([getattr(c, of) for c in known])[rows["position"]] for of in ("offset_ns", "drift"))
    aligned = pd.Series(ends - offset - (drift * (ends - np.median(ends))).astype(np.int64), index=rows.index)
    end = aligned.groupby(rows["collective"])
    between = end.transform("max") - end.transform("min")
    if exactly and (between > ENDS_ALIKE_NS).mean() > 1 - NEARLY_ALL:
        return rows[:0], (NONE_SHARED,)
    apart = between > ENDS_APART_NS
    lost = np.array([clock is None for clock in clocks])[rows["position"]]
    unknown = pd.Series(lost, index=rows.index).groupby(rows["collective"]).transform("any")
    bad = apart & ~unknown.astype(bool) & ~rows["name"].isin(ROOTED)
    if bad.mean() > MOSTLY:
        return rows[:0], (
            "The ranks' collectives end at different times, so they were not matched: are these traces of one run?",
        )
    note = f"{int(bad.sum())} communication kernels end at other times than on the other ranks and were not matched."
    return rows[~bad], ((note,) if bad.any() else ())
