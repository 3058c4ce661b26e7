-- Every query speaks of one device.

-- name: kernels
SELECT g.name, coalesce(o.name, ''), coalesce(s.input_dims, ''), c.category, sum(g.ns_in_window)::BIGINT, count(*) FILTER (g.starts_in_window)
FROM window_gpu_ops g JOIN gpu_op_steps c USING (gpu_op_id)
    LEFT JOIN (SELECT * FROM named_cpu_ops WHERE kind = 'op') o ON o.cpu_op_id = g.cpu_op_id LEFT JOIN signatures s ON s.signature_id = o.signature_id
WHERE g.device = $device GROUP BY ALL

-- name: operators
SELECT name, coalesce(input_dims, ''), sum(gpu_self_ns)::BIGINT, sum(calls)::BIGINT
FROM named_operators WHERE device = $device AND gpu_self_ns > 0 GROUP BY ALL

-- name: read_back
SELECT count(*)::BIGINT, count(DISTINCT step)::BIGINT
FROM named_gpu_ops g JOIN gpu_op_steps c USING (gpu_op_id) JOIN steps t USING (device, step)
WHERE g.device = $device AND t.counted AND starts_with(g.name, 'Memcpy DtoH')
