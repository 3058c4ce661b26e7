"""Tables of the Idle page: the cost of each cause per step, and the longest pieces of lost time."""

from __future__ import annotations

import pandas as pd

from sawtooth.analysis.knowledge.owners import LOST_OWNERS
from sawtooth.analysis.queries import queries_of
from sawtooth.analysis.store.rank_view import RankView

LISTED = 200  # the longest pieces: in all recordings seen, further pieces are a few microseconds long
WEIGHED = 20_000  # the longest pieces, whose places are summed: the rest of a long recording is a few percent of its lost time
AROUND = 0.6  # share of a piece's own length: the margin on each side when the timeline shows it

_SQL = queries_of(__file__)


def causes(rank: RankView, by_estimate: bool) -> pd.DataFrame:
    """Return lost time by cause, ms per step (of the window without steps).

    The largest cause in the column that represents the run comes first. Columns: cause, owner (the largest it has),
    recorded_ms, unprofiled_ms (replay without the profiler, missing without one), recoverable_ms (what the replay gains without
    the cause, missing where the cause cannot be removed).
    """
    return rank.frame(
        _SQL["causes"].format(lost=LOST_OWNERS, order="unprofiled_ms" if by_estimate else "recorded_ms"),
        divisor=rank.step_divisor,
    )


def pieces(rank: RankView, cause: str | None = None) -> pd.DataFrame:
    """Return the longest pieces of lost time, of one cause or of all.

    ``cause`` is the owner for exposed copies and communication without a cause. Columns: at_ms (after the recording's start),
    ms, step, cause, phase, operator, call, python, python_call_id (missing without one), next_operation, confidence, evidence,
    and t0_ms and t1_ms, a view around the piece.
    """
    origin = rank.recording.rows("SELECT coalesce(first_ns, 0) FROM recording")[0][0]
    rows = rank.frame(_SQL["pieces"], cause=cause or "", origin=origin, listed=LISTED)
    margin = rows["ms"] * AROUND
    return rows.assign(t0_ms=(rows["at_ms"] - margin).clip(lower=0), t1_ms=rows["at_ms"] + rows["ms"] + margin)


def places(rank: RankView) -> pd.DataFrame:
    """Return the place with the most time of each cause.

    Columns: cause (the owner, for exposed copies and communication without one), place (a Python call, else an operator, else a
    runtime call), ms per step there, its share of the cause (0 to 1), and python_call_id of its longest piece or missing.
    """
    return rank.frame(_SQL["places"], divisor=rank.step_divisor, weighed=WEIGHED)
