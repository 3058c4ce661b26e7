"""SQL that tells which moments of threads lie in any of many intervals, without comparing each with each."""

from __future__ import annotations


def reach(intervals: str) -> str:
    """Return a SELECT to join moments with: ``ASOF JOIN (…) r ON r.thread_id = m.thread_id AND m.start_ns >= r.start_ns WHERE m.start_ns < r.end_ns``.

    ``intervals`` is a table or a SELECT in brackets with thread_id, start_ns, end_ns. Of all that began by a moment, the last to end decides; ``end_ns``
    is that end, so the interval that began last speaks for all before it.
    """
    return f"SELECT thread_id, start_ns, max(end_ns) OVER (PARTITION BY thread_id ORDER BY start_ns) AS end_ns FROM {intervals}"


def calls_within(intervals: str) -> str:
    """Return a SELECT of the runtime calls that began in any of ``intervals``, as ``reach`` takes them."""
    return _within("runtime_calls", intervals)


def launches_within(intervals: str) -> str:
    """Return a SELECT of those of ``calls_within`` that started GPU operations: half of all calls, or fewer, need be sorted."""
    return _within("(FROM runtime_calls WHERE gpu_ops > 0)", intervals)


def _within(calls: str, intervals: str) -> str:
    return (
        f"SELECT c.* FROM {calls} c ASOF JOIN ({reach(intervals)}) r ON r.thread_id = c.thread_id AND c.start_ns >= r.start_ns "
        "WHERE c.start_ns < r.end_ns"
    )
