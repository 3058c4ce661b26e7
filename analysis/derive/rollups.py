"""Sums over GPU operations that screens show and that take too long to add up in a page at five million events."""

from __future__ import annotations

import duckdb

from sawtooth.analysis.knowledge.owners import TENSOR_CORES_USED

# The profiler rounds its estimate to whole percent and writes 0 where it cannot tell (kernels with much shared memory). Of the 48 to 64 warps
# that an SM holds, one is 1.6 % and more: with as many per SM the 0 is no estimate.
WARPS_SEEN = 1

_KERNELS = f"""
INSERT INTO d.kernels
WITH clipped AS (
    SELECT g.*, s.category, s.tensor_cores, g.start_ns >= w.start_ns AND g.start_ns < w.end_ns AS inside,
        least(g.start_ns + g.dur_ns, w.end_ns) - greatest(g.start_ns, w.start_ns) AS part_ns
    FROM gpu_ops g JOIN windows w ON g.device = w.device AND g.start_ns < w.end_ns AND g.start_ns + g.dur_ns > w.start_ns
    JOIN gpu_op_steps s USING (gpu_op_id))
SELECT device, name_id, kind, category, tensor_cores, count(*) FILTER (inside), sum(part_ns), min(dur_ns), median(dur_ns), max(dur_ns),
    sum(blocks_per_sm * dur_ns) / nullif(sum(dur_ns) FILTER (blocks_per_sm IS NOT NULL), 0),
    sum(occupancy_pct * dur_ns) / nullif(sum(dur_ns) FILTER (occupancy_pct IS NOT NULL), 0), sum(least(blocks_per_sm, 1) * part_ns), sum(bytes),
    sum(part_ns) FILTER (occupancy_pct = 0 AND warps_per_sm >= {WARPS_SEEN})::BIGINT
FROM clipped GROUP BY ALL"""

LAUNCHED = f"""
WITH inside AS (
    SELECT g.device, g.gpu_op_id, g.cpu_op_id, g.start_ns >= w.start_ns AS begins, g.dur_ns,
        least(g.start_ns + g.dur_ns, w.end_ns) - greatest(g.start_ns, w.start_ns) AS part_ns
    FROM gpu_ops g JOIN windows w ON g.device = w.device AND g.start_ns < w.end_ns AND g.start_ns + g.dur_ns > w.start_ns)
SELECT i.device, GROUPING(i.input_dims) = 0 AS by_shape, i.name_id, i.input_dims,
    CASE WHEN min(i.category) = max(i.category) THEN min(i.category) ELSE 'several' END,
    CASE WHEN min(i.tensor_cores) = max(i.tensor_cores) THEN min(i.tensor_cores) ELSE 'mixed' END,
    count(*) FILTER (begins), sum(part_ns)::BIGINT, min(i.dur_ns), median(i.dur_ns), max(i.dur_ns),
    sum(part_ns) FILTER (i.tensor_cores IN {TENSOR_CORES_USED})::BIGINT
FROM (SELECT inside.*, s.category, s.tensor_cores, o.name_id, g.input_dims FROM inside JOIN gpu_op_steps s USING (gpu_op_id)
    LEFT JOIN cpu_ops o ON o.cpu_op_id = inside.cpu_op_id LEFT JOIN signatures g ON g.signature_id = o.signature_id) i
GROUP BY GROUPING SETS ((i.device, i.name_id), (i.device, i.name_id, i.input_dims))"""

FLOP_WORK = """
WITH chosen AS (SELECT device, step FROM steps WHERE counted),
work AS (
    SELECT g.device, g.name_id, g.kind, g.dur_ns, t.category, t.tensor_cores, coalesce(t.flop_op_id, g.cpu_op_id) AS op_id
    FROM gpu_ops g JOIN gpu_op_steps t USING (gpu_op_id)
    WHERE (g.device, t.step) IN (SELECT (device, step) FROM chosen) OR g.device NOT IN (SELECT device FROM chosen))
SELECT w.device, w.name_id, w.kind, w.category, w.tensor_cores, o.name_id, o.signature_id, o.kind = 'op', sum(w.dur_ns)::BIGINT, count(*)
FROM work w LEFT JOIN cpu_ops o ON o.cpu_op_id = w.op_id GROUP BY ALL"""


def store(con: duckdb.DuckDBPyConnection) -> None:
    """Fill ``kernels`` of the derived file that ``con`` sees as ``d`` from what is derived so far."""
    con.execute(_KERNELS)
