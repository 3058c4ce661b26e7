"""The table behind the step strip: who owned each step's time."""

from __future__ import annotations

import pandas as pd

from sawtooth.analysis.knowledge.owners import LOST_OWNERS
from sawtooth.analysis.queries import queries_of
from sawtooth.analysis.store.rank_view import RankView

LISTED = 400  # steps: more columns than that are narrower than two pixels beside each other

_SQL = queries_of(__file__)


def owners(rank: RankView) -> pd.DataFrame:
    """Return the time of each of the first ``LISTED`` steps by owner and, for lost time of counted steps, cause, as recorded.

    Columns: step, start_ns, end_ns (device clock), counted, owner, cause, ms. A step's rows sum to its length where the GPU's work covers it.
    """
    until = rank.rows(_SQL["until"], listed=LISTED)[0][0] or 0
    return rank.frame(_SQL["owners"].format(lost=LOST_OWNERS), listed=LISTED, until=until)
