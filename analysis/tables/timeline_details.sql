-- name: gpu
SELECT g.gpu_op_id AS id, g.name_id, n.name, g.kind AS filed_as, g.device, g.stream AS lane, 0 AS depth, g.start_ns - $origin AS start, g.dur_ns AS dur,
    g.call_id, g.cpu_op_id, g.grid_x, g.grid_y, g.grid_z, g.block_x, g.block_y, g.block_z, g.registers_per_thread, g.shared_memory_bytes,
    g.blocks_per_sm, g.occupancy_pct, g.bytes, g.graph_id, s.category, s.tensor_cores, t.name AS step, t.end_ns - t.start_ns AS step_ns,
    o.name_id AS work_name_id, o.signature_id AS work_signature_id, i.input_dims, i.input_types, i.concrete_inputs, u.name AS operator
FROM (SELECT * FROM gpu_ops WHERE gpu_op_id = $id AND device = $device) g JOIN names n USING (name_id)
    LEFT JOIN (SELECT * FROM gpu_op_steps WHERE gpu_op_id = $id) s USING (gpu_op_id)
    LEFT JOIN steps t ON t.device = g.device AND t.step = s.step
    LEFT JOIN cpu_ops o ON o.cpu_op_id = coalesce(s.flop_op_id, g.cpu_op_id)
    LEFT JOIN signatures i ON i.signature_id = o.signature_id LEFT JOIN names u ON u.name_id = o.name_id

-- name: operators
SELECT o.cpu_op_id AS id, o.name_id, n.name, o.kind, o.thread_id AS lane, o.depth, o.start_ns - $origin AS start, o.dur_ns AS dur,
    o.sequence_number, o.name_id AS work_name_id, o.signature_id AS work_signature_id, i.input_dims, i.input_types, i.concrete_inputs
FROM (SELECT * FROM cpu_ops WHERE cpu_op_id = $id) o JOIN names n USING (name_id) LEFT JOIN signatures i USING (signature_id)

-- name: calls
SELECT c.call_id AS id, c.name_id, n.name, k.kind, c.thread_id AS lane, 0 AS depth, c.start_ns - $origin AS start, c.dur_ns AS dur, c.cpu_op_id, c.gpu_ops
FROM (SELECT * FROM runtime_calls WHERE call_id = $id) c JOIN names n USING (name_id) JOIN call_kinds k USING (name_id)

-- name: python
SELECT p.python_call_id AS id, p.name_id, n.name, p.thread_id AS lane, d.depth, p.start_ns - $origin AS start, p.dur_ns AS dur
FROM (SELECT * FROM python_calls WHERE python_call_id = $id) p JOIN names n USING (name_id)
    JOIN (SELECT * FROM python_depths WHERE python_call_id = $id) d USING (python_call_id)

-- name: same
SELECT count(*) AS count, sum(dur_ns)::BIGINT AS total_ns, max(dur_ns) AS longest_ns FROM {rows} WHERE name_id = $name AND {of_device}

-- name: linked
SELECT s.id, s.lane, s.depth, s.kind, s.start_ns - {origin} AS start, s.dur_ns AS dur, n.name
FROM {rows} s JOIN names n USING (name_id) ORDER BY s.start_ns, s.id LIMIT {most}

-- name: stack
SELECT n.name FROM python_calls p JOIN names n USING (name_id)
WHERE p.thread_id = $thread AND p.start_ns <= $at AND p.start_ns + p.dur_ns >= $at ORDER BY p.start_ns DESC, p.dur_ns LIMIT {most}

-- name: gap
SELECT g.start_ns - $origin AS start, g.end_ns - g.start_ns AS dur, g.owner, g.cause, g.phase, g.confidence, g.evidence, g.python_call_id,
    g.cpu_op_id, g.call_id, g.next_gpu_op_id,
    o.name AS operator, c.name AS call, k.name AS next_operation, k.start_ns - $origin AS next_start, s.name AS step, s.end_ns - s.start_ns AS step_ns
FROM (SELECT * FROM gaps WHERE device = $device AND start_ns = $start LIMIT 1) g
    LEFT JOIN named_cpu_ops o ON o.cpu_op_id = g.cpu_op_id LEFT JOIN named_runtime_calls c ON c.call_id = g.call_id
    LEFT JOIN named_gpu_ops k ON k.gpu_op_id = g.next_gpu_op_id LEFT JOIN steps s ON s.device = g.device AND s.step = g.step

-- name: named
SELECT '{source}' AS source, id, start_ns FROM {rows} WHERE {of_device} AND name_id IN ({names})

-- name: place
SELECT s.id, s.lane, s.depth, s.kind, s.start_ns - $origin AS start, s.dur_ns AS dur, n.name FROM (SELECT * FROM {rows} WHERE id = $id) s JOIN names n USING (name_id)

-- name: occurrences
SELECT min(start_ns) - $origin, max(end_ns) - $origin FROM gaps WHERE device = $device AND list_contains($causes, cause)
GROUP BY gap ORDER BY sum(end_ns - start_ns) DESC, min(start_ns) LIMIT $most

-- name: longest
SELECT start_ns - $origin, end_ns - start_ns, owner, cause FROM gaps WHERE device = $device AND start_ns < $until AND end_ns > $since
ORDER BY end_ns - start_ns DESC, start_ns LIMIT 1 OFFSET $nth

-- name: longest_named
SELECT source, id FROM ({rows}) WHERE start_ns < $until AND start_ns + dur_ns > $since ORDER BY dur_ns DESC, start_ns LIMIT 1
