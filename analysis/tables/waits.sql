-- name: causes
SELECT coalesce(cause, owner) AS cause, arg_max(owner, ns) AS owner, sum(ns) / 1e6 / $per AS recorded_ms,
    sum(unprofiled_ns_per_step) / 1e6 AS unprofiled_ms, sum(loses_ns_per_step) / 1e6 AS recoverable_ms
FROM causes WHERE device = $device AND owner IN {lost} AND (ns > 0 OR unprofiled_ns_per_step > 0)
GROUP BY 1 ORDER BY {order} DESC NULLS LAST, cause

-- name: pieces
-- The pieces are chosen first, then what they name is looked up: joining every gap to every event takes seconds at five million events.
WITH g AS MATERIALIZED (
    SELECT * FROM gaps WHERE device = $device AND ($cause = '' OR cause = $cause) ORDER BY end_ns - start_ns DESC, start_ns LIMIT $listed)
SELECT (g.start_ns - $origin) / 1e6 AS at_ms, (g.end_ns - g.start_ns) / 1e6 AS ms, s.name AS step, g.cause, g.phase, n.name AS operator,
    c.name AS call, p.name AS python, k.name AS next_operation, g.confidence, g.evidence, g.owner, g.start_ns, g.end_ns
FROM g LEFT JOIN steps s ON s.device = g.device AND s.step = g.step
    LEFT JOIN (SELECT cpu_op_id, name FROM named_cpu_ops WHERE cpu_op_id IN (SELECT cpu_op_id FROM g)) n USING (cpu_op_id)
    LEFT JOIN (SELECT call_id, name FROM named_runtime_calls WHERE call_id IN (SELECT call_id FROM g)) c ON c.call_id = g.call_id
    LEFT JOIN (SELECT python_call_id, name FROM named_python_calls WHERE python_call_id IN (SELECT python_call_id FROM g)) p
        ON p.python_call_id = g.python_call_id
    LEFT JOIN (SELECT gpu_op_id, name FROM named_gpu_ops WHERE gpu_op_id IN (SELECT next_gpu_op_id FROM g)) k
        ON k.gpu_op_id = g.next_gpu_op_id
ORDER BY ms DESC, g.start_ns
