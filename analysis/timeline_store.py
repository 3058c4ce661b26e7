"""What the timeline needs of a huge trace, derived once: host lanes without what they hide, and sums of short operations on a grid of time.

An operation shorter than a cell of the grid can only be drawn as part of a sum in any view whose columns are at least a cell wide, so
such views read the sums instead of the operations. Longer ones do not overlap on their lane, hence are few, and are read themselves.
"""

from __future__ import annotations

import duckdb

CELLS = 8192  # of the whole recording: views down to a fourteenth of it read sums, nearer ones a fourteenth of the operations

_OPERATION_CLASS = """CASE WHEN c.category = 'communication' THEN 'exposed_comm' WHEN g.kind = 'memcpy' THEN 'exposed_memcpy'
    WHEN g.kind = 'memset' THEN 'memset' WHEN c.tensor_cores IN ('yes', 'likely') THEN 'tensor_core_compute' ELSE 'other_compute' END"""

# The class of a name, not of each operation: five million operations join two hundred names in 70 ms, and themselves in 700.
GPU = f"""(WITH class AS (SELECT name_id, min(category) AS category, max(tensor_cores) AS tensor_cores FROM kernel_classes GROUP BY name_id)
    SELECT g.device, g.stream AS lane, {_OPERATION_CLASS} AS kind, g.name_id, g.start_ns, g.dur_ns FROM gpu_ops g LEFT JOIN class c USING (name_id))"""
HOST = "(SELECT NULL::INTEGER AS device, * FROM host_lanes)"

_HOST_LANES = """
INSERT INTO d.host_lanes
SELECT thread_id * 3 + CASE kind WHEN 'annotation' THEN 0 ELSE 1 END AS lane, kind, name_id, start_ns, dur_ns FROM cpu_ops
    WHERE (kind = 'annotation' AND name_id NOT IN (SELECT name_id FROM names WHERE starts_with(name, 'ProfilerStep')))
    OR (kind = 'op' AND (parent_id IS NULL OR parent_id IN (SELECT cpu_op_id FROM cpu_ops WHERE kind = 'annotation')))
UNION ALL
SELECT thread_id * 3 + 2, c.kind, name_id, start_ns, dur_ns FROM runtime_calls JOIN (SELECT name_id, CASE
    WHEN name ILIKE '%synchronize%' THEN 'sync' WHEN name ILIKE '%malloc%' OR name ILIKE '%free%' THEN 'allocator'
    WHEN name ILIKE '%memcpy%' OR name ILIKE '%memset%' THEN 'copy' WHEN name ILIKE '%launch%' THEN 'launch' ELSE 'call' END AS kind
    FROM names) c USING (name_id)
ORDER BY start_ns"""

_SUMS = """
INSERT INTO d.lane_sums
SELECT '{source}', device, lane, kind, ((start_ns - {origin}) // {cell})::INTEGER AS cell, sum(dur_ns)::BIGINT, count(*)
FROM {rows} WHERE dur_ns < {cell} GROUP BY ALL ORDER BY device, lane, cell"""


def store(con: duckdb.DuckDBPyConnection) -> None:
    """Fill ``host_lanes`` and ``lane_sums`` of the derived file that ``con`` sees as ``d``; the classes of kernels must be there."""
    con.execute(_HOST_LANES)
    first, last = con.execute("SELECT coalesce(first_ns, 0), coalesce(last_ns, 1) FROM recording").fetchall()[0]
    for source, rows in (("gpu", GPU), ("host", HOST)):
        con.execute(_SUMS.format(source=source, origin=first, cell=cell_ns(last - first), rows=rows))


def cell_ns(recording_ns: int) -> int:
    """Return the width of a cell for a recording as long as this."""
    return max(-(-recording_ns // CELLS), 1)
