"""Ranks with the same work by design, from the collectives in which they meet."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from sawtooth.analysis.run.job import SEND_RECEIVE


def peers(rows: pd.DataFrame, ranks: int) -> list[list[int]]:
    """Return, by position, the ranks with the same work by design: those joined by collectives.

    Ranks that send to each other form a pipeline, and its stages differ. A collective that joins two ranks of one pipeline (the
    gradients' norm, the weights shared by the first and last stage) joins stages, so it does not count.
    """
    sent = rows["name"] == SEND_RECEIVE
    pipeline = _joined(_members(rows[sent]), ranks)
    of_stage = (
        members for members in _members(rows[~sent]) if len({pipeline[position] for position in members}) == len(members)
    )
    root = _joined(of_stage, ranks)
    of_root: dict[int, list[int]] = {}
    for position in range(ranks):
        of_root.setdefault(root[position], []).append(position)
    # one list for all of its ranks, because there may be thousands
    return [of_root[root[position]] for position in range(ranks)]


def one_step(rows: pd.DataFrame, ranks: int) -> bool:
    """Return whether collectives join all ranks, directly or through others.

    Sends and receives alone do not define a common end of the step.
    """
    return len(set(_joined(_members(rows[rows["name"] != SEND_RECEIVE]), ranks))) == 1


def _members(rows: pd.DataFrame) -> set[tuple[int, ...]]:
    """Return the positions of the ranks that meet in each collective of ``rows``."""
    return set(rows.groupby("collective")["position"].agg(lambda positions: tuple(sorted(positions))))


def _joined(sets: Iterable[tuple[int, ...]], ranks: int) -> list[int]:
    """Return, by position, a number that is equal for ranks that ``sets`` join.

    Ranks may be joined directly or through others.
    """
    joined = list(range(ranks))

    def root(position: int) -> int:
        while joined[position] != position:
            position = joined[position]
        return position

    for members in sets:
        for position in members[1:]:
            joined[root(position)] = root(members[0])
    return [root(position) for position in range(ranks)]
