"""Tables of the Idle page: the cost of each cause per step, and the longest intervals of lost time."""

from __future__ import annotations

import pandas as pd

from sawtooth.analysis.knowledge.owners import LOST_OWNERS
from sawtooth.analysis.queries import queries_of
from sawtooth.analysis.store.rank_view import RankView

MAX_INTERVALS = 200  # Listed intervals, the longest first. In all known recordings, further ones take a few microseconds.
# The places of this many longest intervals are summed; the rest of a long recording is a few percent of its lost time.
MAX_WEIGHED_INTERVALS = 20_000
MARGIN_SHARE = 0.6  # Margin on each side when the timeline shows an interval, as a share of its length.

_SQL = queries_of(__file__)


def causes(rank: RankView, by_estimate: bool) -> pd.DataFrame:
    """Return the lost time by cause, ms per step (or in the window without steps).

    Columns: cause, owner (that with the most of its time), recorded_ms, unprofiled_ms (in the replay without the profiler, missing
    without a replay), recoverable_ms (gain of a replay without the cause, missing if the cause cannot be removed). The causes are
    sorted by unprofiled_ms if ``by_estimate``, else by recorded_ms, largest first.
    """
    return rank.frame(
        _SQL["causes"].format(lost=LOST_OWNERS, order="unprofiled_ms" if by_estimate else "recorded_ms"),
        divisor=rank.step_divisor,
    )


def pieces(rank: RankView, cause: str | None = None) -> pd.DataFrame:
    """Return the longest intervals of lost time, of one cause or of all.

    For exposed copies and communication without a cause, ``cause`` is the owner. Columns: at_ms (after the recording's start),
    ms, step, cause, phase, operator, call, python, python_call_id (missing without one), next_operation, confidence, evidence,
    and t0_ms and t1_ms, a view around the interval.
    """
    origin = rank.recording.rows("SELECT coalesce(first_ns, 0) FROM recording")[0][0]
    rows = rank.frame(_SQL["pieces"], cause=cause or "", origin=origin, listed=MAX_INTERVALS)
    margin = rows["ms"] * MARGIN_SHARE
    return rows.assign(t0_ms=(rows["at_ms"] - margin).clip(lower=0), t1_ms=rows["at_ms"] + rows["ms"] + margin)


def main_locations(rank: RankView) -> pd.DataFrame:
    """Return, for each cause, the place on the host with the most lost time.

    Columns: cause (the owner, for exposed copies and communication without a cause), place (a Python call, else an operator, else
    a runtime call), ms per step there, its share of the cause (0 to 1), and python_call_id of its longest interval, if known.
    """
    return rank.frame(_SQL["places"], divisor=rank.step_divisor, weighed=MAX_WEIGHED_INTERVALS)
