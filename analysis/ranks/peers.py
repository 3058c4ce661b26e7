"""Ranks with the same work by design, from the collectives in which they meet."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from sawtooth.analysis.run.job import SEND_RECEIVE


def peers(rows: pd.DataFrame, ranks: int) -> list[list[int]]:
    """Return, by position, the ranks with the same work by design: those joined by collectives.

    Ranks that send to each other form a pipeline, and the stages of a pipeline have different work. Some collectives join ranks
    of one pipeline, for example to compute the norm of the gradients, or for weights that the first and the last stage share.
    These collectives join different stages, so they do not count.
    """
    is_send = rows["name"] == SEND_RECEIVE
    pipeline = _components(_members(rows[is_send]), ranks)
    within_stages = (
        members for members in _members(rows[~is_send]) if len({pipeline[position] for position in members}) == len(members)
    )
    stage = _components(within_stages, ranks)
    ranks_of_stage: dict[int, list[int]] = {}
    for position in range(ranks):
        ranks_of_stage.setdefault(stage[position], []).append(position)
    # All ranks of a stage get the same list object, because there may be thousands of ranks.
    return [ranks_of_stage[stage[position]] for position in range(ranks)]


def have_common_step(rows: pd.DataFrame, ranks: int) -> bool:
    """Return whether collectives join all ranks, directly or through others.

    Sends and receives alone do not define a common end of the step.
    """
    return len(set(_components(_members(rows[rows["name"] != SEND_RECEIVE]), ranks))) == 1


def _members(rows: pd.DataFrame) -> set[tuple[int, ...]]:
    """Return the positions of the ranks that meet in each collective of ``rows``."""
    return set(rows.groupby("collective")["position"].agg(lambda positions: tuple(sorted(positions))))


def _components(sets: Iterable[tuple[int, ...]], ranks: int) -> list[int]:
    """Return, by position, the number of the rank's connected component.

    Each of ``sets`` connects its ranks.
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
