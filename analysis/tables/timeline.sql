-- name: lanes
SELECT source, lane, max(depth)::INTEGER + 1 AS rows, sum(slices)::BIGINT, sum(busy_ns)::BIGINT FROM (
    SELECT source, device, lane, depth, sum(operations) AS slices, sum(busy_ns) AS busy_ns FROM lane_sums WHERE source NOT IN ('gaps', 'segments') GROUP BY ALL
    UNION ALL SELECT source, device, lane, depth, count(*), sum(dur_ns) FROM long_slices WHERE source NOT IN ('gaps', 'segments') GROUP BY ALL)
WHERE device IS NULL OR device = ? GROUP BY ALL ORDER BY source, lane

-- name: threads
SELECT thread_id, coalesce(name, 'thread ' || coalesce(tid, thread_id::VARCHAR)) FROM threads

-- name: backward_threads
-- Threads on which autograd's engine calls most operators. A thread that steps an optimizer, reads a loader or marks profiled steps
-- is the loop's own, on which a backward pass on a CPU runs too. So is the only thread with operators.
SELECT thread_id FROM cpu_ops WHERE parent_id IS NULL AND (SELECT count(DISTINCT thread_id) FROM cpu_ops) > 1 GROUP BY 1
HAVING 2 * count(*) FILTER (name_id IN (SELECT name_id FROM names WHERE starts_with(name, 'autograd::engine::evaluate_function'))) > count(*)
    AND NOT bool_or(name_id IN (SELECT name_id FROM names WHERE regexp_matches(name, '^(Optimizer\.(step|zero_grad)#|enumerate\(DataLoader\)#|ProfilerStep#)')))

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
