"""SQL that finds the moments of threads inside any of many intervals, without comparing every pair."""

from __future__ import annotations


def with_latest_end(intervals: str) -> str:
    """Return a SELECT of intervals for a join with moments.

    Join it as ``ASOF JOIN (…) r ON r.thread_id = m.thread_id AND m.start_ns >= r.start_ns WHERE m.start_ns < r.end_ns``.
    ``intervals`` is a table or a SELECT in brackets with the columns thread_id, start_ns and end_ns. In the result, ``end_ns`` is the
    latest end of all intervals that began so far on the thread. So the query compares a moment only with the interval that began
    last.
    """
    return f"SELECT thread_id, start_ns, max(end_ns) OVER (PARTITION BY thread_id ORDER BY start_ns) AS end_ns FROM {intervals}"


def calls_within(intervals: str) -> str:
    """Return a SELECT of the runtime calls that began in any of ``intervals`` (see ``with_latest_end``)."""
    return _select_within("runtime_calls", intervals)


def launches_within(intervals: str) -> str:
    """Return a SELECT of the calls of ``calls_within`` that started GPU operations."""
    return _select_within("(FROM runtime_calls WHERE gpu_ops > 0)", intervals)


def _select_within(calls: str, intervals: str) -> str:
    return (
        f"SELECT c.* FROM {calls} c ASOF JOIN ({with_latest_end(intervals)}) r ON r.thread_id = c.thread_id AND c.start_ns >= r.start_ns "
        "WHERE c.start_ns < r.end_ns"
    )
