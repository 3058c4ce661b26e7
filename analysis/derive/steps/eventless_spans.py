"""Launches that were lost together with all other events of the same time.

A step lost launches if it launched less than all other steps, and if it has a span without any event on host or GPU that is longer
than any such span of the other steps. Steps that launch less by design, such as those that only accumulate gradients, have no
such span. If all other steps launch equally often, a step without any launch lost all of them.
"""

from __future__ import annotations

import duckdb
import numpy as np

from sawtooth.analysis.derive.events import I64, columns_of
from sawtooth.analysis.intervals import Intervals

MIN_STEPS = 3  # The check needs one step that lacks launches and two steps that agree.
# Share of the launches. Equal steps differ by at most this share, for example by an allocation or an event record.
LAUNCHES_DIFFER = 0.005
MIN_LACKING_SHARE = 0.02  # Share of the launches. A step lacks launches if it has fewer by this share.
# Factor. The span must be this many times as long as the longest span of the other steps. Other steps may wait for data or
# for the GPU.
LONGER = 1.5
AS_LONG = 0.5  # Share of the time that the missing launches usually take. The span must be at least as long.
_STRETCHES = """WITH begun AS (
    SELECT start_ns - {origin} AS start FROM runtime_calls UNION ALL SELECT start_ns - {origin} FROM gpu_ops
    UNION ALL SELECT start_ns - {origin} FROM cpu_ops WHERE kind = 'op'),
steps AS (SELECT unnest($starts::BIGINT[]) AS begins, unnest($ends::BIGINT[]) AS ends, unnest(range(len($starts))) AS step),
followed AS (SELECT start, lead(start) OVER (ORDER BY start) AS next FROM begun)
SELECT s.step, max(f.next - f.start) AS longest, arg_max(f.start, f.next - f.start) AS start
FROM followed f ASOF JOIN steps s ON f.start >= s.begins WHERE f.start < s.ends AND f.next IS NOT NULL GROUP BY s.step ORDER BY s.step"""


def eventless_spans(con: duckdb.DuckDBPyConnection, origin: int, launching: list[int], steps: Intervals) -> I64:
    """Return the start of each step's eventless span, once for each launch that the step lacks.

    ``launching`` are the ids of names of calls that launch. ``steps`` are host intervals relative to ``origin``. The first step
    is not checked, because it initializes libraries. The last step is not checked, because the recording may end within it.
    """
    no_rows = np.zeros(0, np.int64)
    if len(steps.starts) < MIN_STEPS or not launching:
        return no_rows
    listed = ", ".join(map(str, launching))
    sql = f"SELECT start_ns - {origin} AS start FROM runtime_calls WHERE name_id IN ({listed}) ORDER BY start"
    calls = columns_of(con, sql)["start"].astype(np.int64)
    launches = np.searchsorted(calls, steps.ends) - np.searchsorted(calls, steps.starts)
    usual_launches = int(np.bincount(launches).argmax())
    inner = np.arange(len(launches)) % (len(launches) - 1) > 0
    lacking = inner & (launches < (1 - MIN_LACKING_SHARE) * usual_launches)
    complete = ~lacking & (launches > 0)
    if (
        not lacking.any()
        or complete.sum() < 2
        or (np.abs(launches[complete & inner] - usual_launches) > LAUNCHES_DIFFER * usual_launches).any()
    ):
        return no_rows
    places = {"starts": steps.starts.tolist(), "ends": steps.ends.tolist()}
    rows = columns_of(con, _STRETCHES.format(origin=origin), places)
    longest, start = np.zeros(len(launches), np.int64), steps.starts.copy()
    longest[rows["step"].astype(np.int64)], start[rows["step"].astype(np.int64)] = rows["longest"], rows["start"]
    missing = usual_launches - launches[lacking]
    usually = missing / usual_launches * np.median((steps.ends - steps.starts)[complete])
    silent = launches[lacking] == 0
    if (~silent & (longest[lacking] <= np.maximum(LONGER * longest[complete].max(), AS_LONG * usually))).any():
        return no_rows
    return np.repeat(start[lacking], missing)
