-- name: modules
SELECT m.* EXCLUDE (device, name_id), n.name
FROM modules m LEFT JOIN names n USING (name_id) WHERE m.device = $device ORDER BY m.module NULLS LAST

-- name: module_kernels
SELECT name AS kernel, category, tensor_cores, count(*) AS launches, sum(dur_ns)::BIGINT AS total_ns
FROM step_gpu_ops
WHERE device = $device AND summed AND (list_contains($ids::INTEGER[], module) OR len($ids::INTEGER[]) = 0 AND module IS NULL)
GROUP BY ALL ORDER BY total_ns DESC, kernel LIMIT 50
