"""Find launches that were lost together with their kernels, by operators that launched in other steps.

A step that repeats an operator with the same inputs launches the same work. Operators are compared by name, inputs, enclosing
operator and position within their step. Where inputs change from step to step, the comparison is only whether an operator
launched anything. Steps whose operators differ by design are not compared.
"""

from __future__ import annotations

import duckdb
import numpy as np

from sawtooth.analysis.derive.events import I64, columns_of
from sawtooth.analysis.intervals import Intervals

# The first step of a profile initializes libraries and searches algorithms, so it may launch more. Two other steps are needed.
MIN_STEPS = 3
MIN_COMPARABLE_SHARE = 0.5  # At least this share of the launches must be comparable. Otherwise the steps differ by design.
# Share of the usual number of operators. Steps with a larger difference are not compared. Steps that evaluate have more
# operators, and a compiler runs operators on tensors without data, which launch nothing.
NUMBERS_DIFFER = 0.2
_WORK = """CREATE OR REPLACE TEMP TABLE operators_of_steps AS
WITH started AS (SELECT cpu_op_id FROM runtime_calls WHERE name_id IN ({launching}) AND cpu_op_id IS NOT NULL
    UNION ALL SELECT cpu_op_id FROM gpu_ops WHERE call_id IS NULL AND cpu_op_id IS NOT NULL),
launched AS (SELECT cpu_op_id, count(*) AS launches FROM started GROUP BY cpu_op_id),
kinds AS (SELECT DISTINCT o.name_id FROM launched JOIN cpu_ops o USING (cpu_op_id) WHERE o.kind = 'op'),
steps AS (SELECT unnest($starts::BIGINT[]) AS begins, unnest($ends::BIGINT[]) AS ends, unnest(range(len($starts))) AS step),
operators AS (SELECT o.cpu_op_id, o.name_id, o.signature_id, o.parent_id, o.start_ns - {origin} AS start
    FROM cpu_ops o SEMI JOIN kinds USING (name_id) WHERE o.kind = 'op')
SELECT o.cpu_op_id, o.start, s.step, coalesce(l.launches, 0) AS launches,
    hash(o.name_id, o.signature_id, p.name_id) AS by_inputs, hash(o.name_id, p.name_id) AS by_name
FROM operators o ASOF JOIN steps s ON o.start >= s.begins
LEFT JOIN cpu_ops p ON p.cpu_op_id = o.parent_id AND p.kind = 'op'
LEFT JOIN launched l ON l.cpu_op_id = o.cpu_op_id
WHERE o.start < s.ends"""
# The usual number at one place is the second largest of the other steps: a single step may search for an algorithm.
_MISSING = """WITH numbers AS (SELECT step, count(*) AS operators FROM operators_of_steps GROUP BY step),
usual_steps AS (SELECT step FROM numbers
    WHERE abs(operators / (SELECT median(operators) FROM numbers WHERE step > 0) - 1) <= {within}),
placed AS (SELECT {kind} AS kind, step, start, {launches} AS launches,
    row_number() OVER (PARTITION BY step, {kind} ORDER BY start, cpu_op_id) AS place
    FROM operators_of_steps SEMI JOIN usual_steps USING (step)),
sizes AS (SELECT kind, step, max(place) AS size FROM placed GROUP BY kind, step),
usual AS (SELECT kind, mode(size) AS size FROM sizes WHERE step > 0 GROUP BY kind),
compared AS (SELECT w.* FROM placed w JOIN sizes s USING (kind, step) JOIN usual u ON u.kind = w.kind AND u.size = s.size),
places AS (SELECT kind, place, CASE WHEN count(*) > 2 THEN max(launches, 2)[2] ELSE max(launches) END AS launches
    FROM compared WHERE step > 0 GROUP BY kind, place HAVING count(*) > 1)
SELECT c.step, c.start, c.launches, greatest(p.launches - c.launches, 0) AS missing FROM compared c JOIN places p USING (kind, place)"""

# GPU operations whose launch was lost. Their operators seem to launch nothing, but no GPU work is missing. What a stream runs
# before the first operation with a launch was launched before the recording.
_WITHOUT_LAUNCH = """WITH firsts AS (SELECT device, stream, min(start_ns) AS first FROM gpu_ops WHERE call_id IS NOT NULL GROUP BY ALL)
SELECT g.start_ns - {origin} AS start FROM gpu_ops g JOIN firsts f USING (device, stream)
WHERE g.call_id IS NULL AND g.start_ns >= f.first ORDER BY start"""


def silent_operators(con: duckdb.DuckDBPyConnection, origin: int, launching: list[int], steps: Intervals) -> I64:
    """Return the start of operators that launched too little, once for each missing launch.

    ``launching`` are the names of calls that launch, ``steps`` are host intervals relative to ``origin``.
    """
    if len(steps.starts) < MIN_STEPS or not launching:
        return np.zeros(0, np.int64)
    sql = _WORK.format(origin=origin, launching=", ".join(map(str, launching)))
    con.execute(sql, {"starts": steps.starts.tolist(), "ends": steps.ends.tolist()})
    missing = _missing_launches(con, steps)
    con.execute("DROP TABLE operators_of_steps")
    return _unexplained_launches(missing, columns_of(con, _WITHOUT_LAUNCH.format(origin=origin))["start"].astype(np.int64))


def _unexplained_launches(missing: I64, without_launch: I64) -> I64:
    """Return the missing launches that operations without a launch do not explain.

    A missing launch is explained by a later operation without a launch. So from any time on, at least the surplus of missing
    launches over these operations is unexplained. The result begins at the time with the largest surplus.
    """
    after = np.arange(len(missing), 0, -1) - (len(without_launch) - np.searchsorted(without_launch, missing))
    return missing[int(after.argmax()) :] if len(after) and after.max() > 0 else missing[:0]


def _missing_launches(con: duckdb.DuckDBPyConnection, steps: Intervals) -> I64:
    """Return the start of each missing launch by the strictest comparison that covers the steps.

    If every compared step lacks launches, the steps that could not be compared count too, each with one missing launch at its start.
    """
    for kind, launches in (("by_inputs", "launches"), ("by_name", "least(launches, 1)")):
        rows = columns_of(con, _MISSING.format(within=NUMBERS_DIFFER, kind=kind, launches=launches))
        query = f"SELECT coalesce(sum({launches}), 0) FROM operators_of_steps WHERE step > 0"
        step, missing = rows["step"].astype(np.int64), rows["missing"].astype(np.int64)
        if rows["launches"][step > 0].sum() >= MIN_COMPARABLE_SHARE * int(con.execute(query).fetchall()[0][0]):
            start = np.repeat(rows["start"].astype(np.int64), missing)
            compared = np.unique(step)
            if len(compared) and len(np.unique(step[missing > 0])) == len(compared):
                start = np.concatenate([start, np.delete(steps.starts, compared)])
            return np.sort(start)
    return np.zeros(0, np.int64)
