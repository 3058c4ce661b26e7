-- name: operations
-- Most kernels of one name have one owner: the alphabetically first. owner_exceptions has the others, as in timeline_sums.py.
WITH whole AS (SELECT min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM windows WHERE device = $device),
    usual AS (SELECT name_id, min(owner) AS owner FROM kernel_classes GROUP BY name_id)
SELECT g.gpu_op_id, g.start_ns, g.start_ns + g.dur_ns AS end_ns, coalesce(list_position($owners, coalesce(e.owner, u.owner)) - 1, 1)::TINYINT AS owner,
    g.name_id AS kernel, s.category, s.tensor_cores, coalesce(a.name_id, o.name_id, -1) AS operator, coalesce(o.signature_id, -1) AS signature,
    coalesce(f.name_id, o.name_id, -1) AS flop_operator, CASE WHEN f.cpu_op_id IS NULL THEN coalesce(o.signature_id, -1) ELSE coalesce(f.signature_id, -1) END AS flop_signature,
    coalesce(s.module, -1) AS module, coalesce(g.bytes, 0)::BIGINT AS bytes
FROM gpu_ops g JOIN gpu_op_steps s USING (gpu_op_id) JOIN whole w ON g.start_ns < w.end_ns AND g.start_ns + g.dur_ns > w.start_ns
    LEFT JOIN usual u USING (name_id) LEFT JOIN owner_exceptions e USING (gpu_op_id)
    LEFT JOIN cpu_ops o ON o.cpu_op_id = g.cpu_op_id LEFT JOIN cpu_ops f ON f.cpu_op_id = s.flop_op_id
    LEFT JOIN named_in_graphs a ON a.device = g.device AND a.module = s.module
WHERE g.device = $device

-- name: window
SELECT start_ns, end_ns FROM windows WHERE device = $device ORDER BY start_ns

-- name: signatures
SELECT signature_id, input_dims FROM signatures WHERE signature_id IN (SELECT unnest($ids::INTEGER[]))

-- name: host
SELECT name, {shape} AS input_dims, sum(calls)::BIGINT AS calls, sum(host_self_ns)::BIGINT AS host_ns
FROM named_operators WHERE device = $device GROUP BY ALL
