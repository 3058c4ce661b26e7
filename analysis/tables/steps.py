"""The table of the step strip: the owners of each step's time."""

from __future__ import annotations

import pandas as pd

from sawtooth.analysis.knowledge.owners import LOST_OWNERS
from sawtooth.analysis.queries import queries_of
from sawtooth.analysis.store.rank_view import RankView

MAX_STEPS = 240  # Largest number of steps whose columns fit on the page.

_SQL = queries_of(__file__)


def owners(rank: RankView) -> pd.DataFrame:
    """Return the recorded time of each step by owner, and lost time of counted steps also by cause.

    Columns: step, start_ns, end_ns (device clock), counted, owner, cause, ms. A step's rows sum to the part of its length that lies
    between the device's first and last operation. If there are more than ``MAX_STEPS`` steps, the table has the longest step of each
    group of ``stride`` steps.
    """
    (steps,) = rank.rows("SELECT count(*) FROM steps WHERE device = $device AND end_ns > start_ns")[0]
    return rank.frame(_SQL["owners"].format(lost=LOST_OWNERS), every=stride(steps))


def stride(steps: int) -> int:
    """Return the number of consecutive steps in each group of ``owners``."""
    return max(-(-steps // MAX_STEPS), 1)
