"""The table behind the step strip: who owned each step's time."""

from __future__ import annotations

import pandas as pd

from sawtooth.analysis.knowledge.owners import LOST_OWNERS
from sawtooth.analysis.queries import queries_of
from sawtooth.analysis.store.rank_view import RankView

LISTED = 240  # steps: of more columns than that, each with its gap, some do not fit beside each other

_SQL = queries_of(__file__)


def owners(rank: RankView) -> pd.DataFrame:
    """Return the time of each step by owner and, for lost time of counted steps, cause, as recorded.

    Columns: step, start_ns, end_ns (device clock), counted, owner, cause, ms. A step's rows sum to its length where the GPU's work covers it.
    Of more than ``LISTED`` steps the longest of ``every`` few is there.
    """
    (steps,) = rank.rows("SELECT count(*) FROM steps WHERE device = $device AND end_ns > start_ns")[0]
    return rank.frame(_SQL["owners"].format(lost=LOST_OWNERS), every=every(steps))


def every(steps: int) -> int:
    """Return of how many of so many steps ``owners`` has the longest."""
    return max(-(-steps // LISTED), 1)
