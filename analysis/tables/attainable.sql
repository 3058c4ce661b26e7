-- name: worked_for
-- A kernel works for the operator whose FLOPs are counted, else for the one that launched it.
SELECT o.name, o.signature_id, s.input_dims, count(*) AS launches, sum(g.dur_ns)::BIGINT AS ns, sum(g.bytes)::BIGINT AS bytes
FROM step_gpu_ops g JOIN named_cpu_ops o ON o.cpu_op_id = coalesce(g.flop_op_id, g.cpu_op_id) LEFT JOIN signatures s USING (signature_id)
WHERE g.device = $device AND g.summed AND g.name = $name GROUP BY ALL ORDER BY ns DESC, o.name LIMIT $listed

-- name: operators
SELECT o.*, s.input_strides FROM named_operators o LEFT JOIN signatures s USING (signature_id) WHERE o.device = $device AND o.name IN $names

-- name: longest
SELECT start_ns, start_ns + dur_ns AS end_ns FROM window_gpu_ops WHERE device = $device AND starts_in_window AND name = $name
ORDER BY dur_ns DESC, start_ns LIMIT 1
