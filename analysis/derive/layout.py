"""Layout of a derived file: sums that only screens read are views.

For a large recording, a second file (``sums``) has tables with these sums. The first answer does not need them, and storing them
takes a third of the analysis. Jobs with thousands of ranks have small recordings, most of which nobody opens.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from sawtooth.analysis.derive import timeline_sums as timeline_store
from sawtooth.analysis.knowledge.owners import TENSOR_CORES_USED

_SQL = Path(__file__).with_name("derived.sql")
MAX_EVENTS_WITHOUT_SUMS = 100_000  # Host and GPU events up to which a screen computes the sums in milliseconds.

LAUNCHED = f"""
WITH inside AS (
    SELECT g.device, g.gpu_op_id, g.cpu_op_id, g.start_ns >= w.start_ns AS begins, g.dur_ns,
        least(g.start_ns + g.dur_ns, w.end_ns) - greatest(g.start_ns, w.start_ns) AS part_ns
    FROM gpu_ops g JOIN windows w ON g.device = w.device AND g.start_ns < w.end_ns AND g.start_ns + g.dur_ns > w.start_ns)
SELECT i.device, GROUPING(i.input_dims) = 0 AS by_shape, i.name_id, i.input_dims,
    CASE WHEN min(i.category) = max(i.category) THEN min(i.category) ELSE 'several' END AS category,
    CASE WHEN min(i.tensor_cores) = max(i.tensor_cores) THEN min(i.tensor_cores) ELSE 'mixed' END AS tensor_cores,
    count(*) FILTER (begins) AS launches, sum(part_ns)::BIGINT AS total_ns,
    min(i.dur_ns) AS min_ns, median(i.dur_ns) AS median_ns, max(i.dur_ns) AS max_ns,
    sum(part_ns) FILTER (i.tensor_cores IN {TENSOR_CORES_USED})::BIGINT AS tensor_core_ns
FROM (SELECT inside.*, s.category, s.tensor_cores, coalesce(a.name_id, o.name_id) AS name_id, g.input_dims FROM inside JOIN gpu_op_steps s USING (gpu_op_id)
    LEFT JOIN named_in_graphs a ON a.device = inside.device AND a.module = s.module
    LEFT JOIN cpu_ops o ON o.cpu_op_id = inside.cpu_op_id LEFT JOIN signatures g ON g.signature_id = o.signature_id) i
GROUP BY GROUPING SETS ((i.device, i.name_id), (i.device, i.name_id, i.input_dims))"""

FLOP_WORK = """
WITH chosen AS (SELECT device, step FROM steps WHERE counted),
work AS (
    SELECT g.device, g.name_id, g.kind, g.dur_ns, t.category, t.tensor_cores, coalesce(t.flop_op_id, g.cpu_op_id) AS op_id
    FROM gpu_ops g JOIN gpu_op_steps t USING (gpu_op_id)
    WHERE (g.device, t.step) IN (SELECT (device, step) FROM chosen) OR g.device NOT IN (SELECT device FROM chosen))
SELECT w.device, w.name_id, w.kind, w.category, w.tensor_cores, o.name_id AS op_name_id, o.signature_id, o.kind = 'op' AS is_operator,
    sum(w.dur_ns)::BIGINT AS ns, count(*) AS launches
FROM work w LEFT JOIN cpu_ops o ON o.cpu_op_id = w.op_id GROUP BY ALL"""


def events_of(prefix: str = "") -> str:
    """Return SQL for a recording's number of host and GPU events; ``prefix`` precedes its table names."""
    return " + ".join(
        f"(SELECT count(*) FROM {prefix}{table})" for table in ("cpu_ops", "gpu_ops", "runtime_calls", "python_calls")
    )


def sum_statements() -> dict[str, str]:
    """Return the SELECT statement of each table of sums; each table comes after the tables that it reads."""
    return {"launched": LAUNCHED, "flop_work": FLOP_WORK, **timeline_store.selects()}


@cache
def derived_layout() -> str:
    """Return the statements that create a derived file; the recording's tables must be attached."""
    return _SQL.read_text(encoding="utf-8").format(**sum_statements())
