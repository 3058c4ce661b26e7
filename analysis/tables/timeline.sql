-- name: streams
SELECT stream, count(*) AS operations, sum(dur_ns)::BIGINT AS busy_ns FROM gpu_ops WHERE device = $device GROUP BY 1 ORDER BY 3 DESC, 1

-- name: threads
WITH o AS (SELECT thread_id, count(*) AS operations FROM cpu_ops GROUP BY 1),
    c AS (SELECT thread_id, sum(gpu_ops)::BIGINT AS launches FROM runtime_calls GROUP BY 1)
SELECT t.thread_id, coalesce(t.name, 'thread ' || coalesce(t.tid, t.thread_id::VARCHAR)) AS label,
    coalesce(c.launches, 0)::BIGINT AS launches, coalesce(o.operations, 0)::BIGINT AS operations
FROM threads t LEFT JOIN o USING (thread_id) LEFT JOIN c USING (thread_id)
WHERE coalesce(c.launches, 0) + coalesce(o.operations, 0) > 0 ORDER BY launches DESC, operations DESC, t.thread_id

-- name: by_name
SELECT n.name, s.kind, s.{count}, s.ms, s.longest_us FROM (
    SELECT name_id, min(kind) AS kind, sum(operations)::BIGINT AS {count}, sum(busy_ns) / 1e6 AS ms, max(longest_ns) / 1e3 AS longest_us
    FROM ({parts}) GROUP BY name_id) s
JOIN names n USING (name_id) ORDER BY s.ms DESC, n.name LIMIT 200

-- name: gaps
WITH g AS MATERIALIZED (
    SELECT * FROM gaps WHERE device = $device AND start_ns < $end AND end_ns > $start ORDER BY end_ns - start_ns DESC, start_ns LIMIT 200)
SELECT (g.start_ns - $origin) / 1e6 AS at_ms, (g.end_ns - g.start_ns) / 1e6 AS ms, g.owner, g.cause, g.phase, g.confidence,
    n.name AS operator, p.name AS python, g.evidence
FROM g LEFT JOIN (SELECT cpu_op_id, name FROM named_cpu_ops WHERE cpu_op_id IN (SELECT cpu_op_id FROM g)) n USING (cpu_op_id)
    LEFT JOIN (SELECT python_call_id, name FROM named_python_calls WHERE python_call_id IN (SELECT python_call_id FROM g)) p
        ON p.python_call_id = g.python_call_id
ORDER BY ms DESC, g.start_ns
