-- name: causes
SELECT coalesce(cause, owner) AS cause, arg_max(owner, ns) AS owner, sum(ns) / 1e6 / $divisor AS recorded_ms,
    sum(unprofiled_ns_per_step) / 1e6 AS unprofiled_ms, sum(loses_ns_per_step) / 1e6 AS recoverable_ms
FROM causes WHERE device = $device AND owner IN {lost} AND (ns > 0 OR unprofiled_ns_per_step > 0)
GROUP BY 1 ORDER BY {order} DESC NULLS LAST, cause

-- name: pieces
-- The pieces are selected first, and only then joined with events. Joining every gap with every event takes seconds at five million events.
WITH g AS MATERIALIZED (
    SELECT * FROM gaps
    WHERE device = $device AND ($cause = '' OR CASE WHEN cause = 'unattributed' AND owner <> 'idle' THEN owner ELSE cause END = $cause)
    ORDER BY end_ns - start_ns DESC, start_ns LIMIT $listed)
SELECT (g.start_ns - $origin) / 1e6 AS at_ms, (g.end_ns - g.start_ns) / 1e6 AS ms, s.name AS step, g.cause, g.phase, n.name AS operator,
    c.name AS call, p.name AS python, k.name AS next_operation, g.confidence, g.evidence, g.owner, g.start_ns, g.end_ns, g.python_call_id
FROM g LEFT JOIN steps s ON s.device = g.device AND s.step = g.step
    LEFT JOIN (SELECT cpu_op_id, name FROM named_cpu_ops WHERE cpu_op_id IN (SELECT cpu_op_id FROM g)) n USING (cpu_op_id)
    LEFT JOIN (SELECT call_id, name FROM named_runtime_calls WHERE call_id IN (SELECT call_id FROM g)) c ON c.call_id = g.call_id
    LEFT JOIN (SELECT python_call_id, name FROM named_python_calls WHERE python_call_id IN (SELECT python_call_id FROM g)) p
        ON p.python_call_id = g.python_call_id
    LEFT JOIN (SELECT gpu_op_id, name FROM named_gpu_ops WHERE gpu_op_id IN (SELECT next_gpu_op_id FROM g)) k
        ON k.gpu_op_id = g.next_gpu_op_id
ORDER BY ms DESC, g.start_ns

-- name: places
-- The place of each cause: the Python call, else the operator, else the runtime call. The longest pieces have nearly all of the time.
WITH g AS MATERIALIZED (
    SELECT *, CASE WHEN cause = 'unattributed' AND owner <> 'idle' THEN owner ELSE cause END AS lost_to, end_ns - start_ns AS ns
    FROM gaps WHERE device = $device ORDER BY ns DESC, start_ns LIMIT $weighed),
placed AS (
    SELECT g.lost_to, g.ns, g.python_call_id, coalesce(p.name, n.name, c.name) AS place
    FROM g LEFT JOIN (SELECT cpu_op_id, name FROM named_cpu_ops WHERE cpu_op_id IN (SELECT cpu_op_id FROM g)) n USING (cpu_op_id)
        LEFT JOIN (SELECT call_id, name FROM named_runtime_calls WHERE call_id IN (SELECT call_id FROM g)) c ON c.call_id = g.call_id
        LEFT JOIN (SELECT python_call_id, name FROM named_python_calls
                   WHERE python_call_id IN (SELECT python_call_id FROM g) AND NOT starts_with(name, '<built-in')) p
            ON p.python_call_id = g.python_call_id)
SELECT lost_to AS cause, place, sum(ns) / 1e6 / $divisor AS ms, sum(ns) / sum(sum(ns)) OVER (PARTITION BY lost_to) AS share,
    arg_max(python_call_id, ns) AS python_call_id
FROM placed GROUP BY lost_to, place
QUALIFY place IS NOT NULL AND row_number() OVER (PARTITION BY lost_to ORDER BY place IS NULL, sum(ns) DESC, place) = 1
