"""Tables behind the Idle screen: what each cause costs a step, and the longest pieces of lost time with what proves them."""

from __future__ import annotations

import pandas as pd

from analysis.recordings import Recording

LISTED = 200  # the longest pieces: below them a piece is a few microseconds in any recording seen
AROUND = 0.6  # of its own length that a piece has on each side when it is shown on the timeline

_CAUSES = """
SELECT coalesce(cause, owner) AS cause, arg_max(owner, ns) AS owner, sum(ns) / 1e6 / $per AS recorded_ms,
    sum(unprofiled_ns_per_step) / 1e6 AS unprofiled_ms, sum(loses_ns_per_step) / 1e6 AS recoverable_ms
FROM causes WHERE device = $device AND owner IN ('idle', 'exposed_memcpy', 'exposed_comm') AND (ns > 0 OR unprofiled_ns_per_step > 0)
GROUP BY 1 ORDER BY {order} DESC NULLS LAST, cause"""

# The pieces are chosen first, then what they name is looked up: joining every gap to every event takes seconds at five million events.
_PIECES = """
WITH g AS MATERIALIZED (
    SELECT * FROM gaps WHERE device = $device AND ($cause = '' OR cause = $cause) ORDER BY end_ns - start_ns DESC, start_ns LIMIT $listed)
SELECT (g.start_ns - $origin) / 1e6 AS at_ms, (g.end_ns - g.start_ns) / 1e6 AS ms, s.name AS step, g.cause, g.phase, n.name AS operator,
    c.name AS call, p.name AS python, k.name AS next_operation, g.confidence, g.evidence, g.owner, g.start_ns, g.end_ns
FROM g LEFT JOIN steps s ON s.device = g.device AND s.step = g.step
    LEFT JOIN (SELECT cpu_op_id, name FROM cpu_ops JOIN names USING (name_id) WHERE cpu_op_id IN (SELECT cpu_op_id FROM g)) n USING (cpu_op_id)
    LEFT JOIN (SELECT call_id, name FROM runtime_calls JOIN names USING (name_id) WHERE call_id IN (SELECT call_id FROM g)) c ON c.call_id = g.call_id
    LEFT JOIN (SELECT python_call_id, name FROM python_calls JOIN names USING (name_id) WHERE python_call_id IN (SELECT python_call_id FROM g)) p
        ON p.python_call_id = g.python_call_id
    LEFT JOIN (SELECT gpu_op_id, name FROM gpu_ops JOIN names USING (name_id) WHERE gpu_op_id IN (SELECT next_gpu_op_id FROM g)) k
        ON k.gpu_op_id = g.next_gpu_op_id
ORDER BY ms DESC, g.start_ns"""


def causes(recording: Recording, device: int, counted_steps: int, by_estimate: bool) -> pd.DataFrame:
    """Return lost time by cause, ms per step (of the window without steps), largest first by the column that speaks for the run.

    Columns: cause, owner (the largest it has), recorded_ms, unprofiled_ms (replay without the profiler, missing without one), recoverable_ms
    (what the replay gains without the cause, missing where it cannot be replayed away).
    """
    sql = _CAUSES.format(order="unprofiled_ms" if by_estimate else "recorded_ms")
    return recording.cursor.execute(sql, {"device": device, "per": max(counted_steps, 1)}).df()


def pieces(recording: Recording, device: int, cause: str | None = None) -> pd.DataFrame:
    """Return the longest pieces of lost time, of one cause or of all: at_ms (after the recording's start), ms, step, cause, phase, operator,
    call, python, next_operation, confidence, evidence, and t0_ms and t1_ms, a view around the piece."""
    origin = recording.rows("SELECT coalesce(first_ns, 0) FROM recording")[0][0]
    rows = recording.cursor.execute(_PIECES, {"device": device, "cause": cause or "", "origin": origin, "listed": LISTED}).df()
    margin = rows["ms"] * AROUND
    return rows.assign(t0_ms=(rows["at_ms"] - margin).clip(lower=0), t1_ms=rows["at_ms"] + rows["ms"] + margin)
