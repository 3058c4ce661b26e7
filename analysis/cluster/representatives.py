"""Choice of the few ranks of a large job that get their own recordings.

They are late ranks, the ranks that wait most, rank 0, and the most typical rank of each role.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

MAX_REPRESENTATIVES = 16  # Largest number of ranks that a run can read and show well.
MAX_WAITING = 2  # Number of ranks that are chosen because they wait most. Their traces show the waits.


def choose(
    lost: pd.DataFrame,
    ranks: pd.DataFrame,
    peers_of: Sequence[Sequence[int]],
    late: Sequence[int],
    limit: int = MAX_REPRESENTATIVES,
) -> tuple[int, ...]:
    """Return up to ``limit`` positions, in order.

    ``lost`` (position, cause, ms) is the time that ranks lose per step. ``ranks`` has their waits (wait_ms, by position). ``peers_of[p]``
    lists the positions of all ranks with the role of position p. ``late`` has the positions of late ranks. The rank whose
    delay costs the job most comes first.
    """
    late = list(dict.fromkeys(late))
    features = lost.pivot_table(index="position", columns="cause", values="ms", fill_value=0.0).reindex(
        range(len(ranks)), fill_value=0.0
    )
    table = np.column_stack([features.to_numpy(np.float64), ranks["wait_ms"].to_numpy(np.float64)])
    roles = sorted({id(role): list(role) for role in peers_of}.values(), key=lambda role: (-len(role), role[0]))
    medoids = [_medoid(table, [p for p in role if p not in set(late)] or role) for role in roles]
    waiting = ranks["wait_ms"].sort_values(ascending=False, kind="stable").index[:MAX_WAITING].tolist()
    # Late ranks come first, but some places are reserved for typical ranks, with which they are compared.
    candidates = [*late[: limit // 2], 0, *medoids[: limit // 4], *waiting, *medoids, *late]
    if len(ranks) <= limit:
        candidates += range(len(ranks))
    chosen = list(dict.fromkeys(int(position) for position in candidates))[:limit]
    return tuple(sorted(chosen))


def _medoid(table: np.ndarray, role: list[int]) -> int:
    """Return the rank that is closest to its role's median.

    Distances are in units of each column's median deviation.
    """
    rows_of_role = table[role]
    median = np.median(rows_of_role, axis=0)
    scatter = np.median(np.abs(rows_of_role - median), axis=0)
    distance = np.abs(rows_of_role - median) / np.where(scatter > 0, scatter, 1.0)
    return role[int(distance.sum(axis=1).argmin())]
