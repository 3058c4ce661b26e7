-- name: operators
-- The kernels of a FLOP operator belong to its children, so its tensor-core time is summed here. Copies to or from the host are not part
-- of this roofline.
WITH uses AS (
    SELECT op_name_id AS name_id, signature_id, sum(ns) FILTER (tensor_cores IN ('yes', 'likely')) AS tensor_ns,
        sum(ns) FILTER (kind = 'memcpy') AS memcpy_ns
    FROM flop_work WHERE device = $device AND op_name_id IS NOT NULL GROUP BY ALL)
SELECT o.* REPLACE (coalesce(u.tensor_ns, 0)::BIGINT AS tensor_core_ns)
FROM named_operators o LEFT JOIN uses u ON u.name_id = o.name_id AND u.signature_id IS NOT DISTINCT FROM o.signature_id
WHERE o.device = $device AND coalesce(u.memcpy_ns, 0) * 2 <= o.gpu_self_ns

-- name: flop_kernels
SELECT k.name AS kernel, n.name AS operator, s.input_dims, s.input_types, s.input_strides, w.category, w.tensor_cores, sum(w.ns)::BIGINT AS ns,
    sum(w.launches)::BIGINT AS launches
FROM flop_work w JOIN names k ON k.name_id = w.name_id LEFT JOIN names n ON n.name_id = w.op_name_id AND w.is_operator
    LEFT JOIN signatures s ON s.signature_id = w.signature_id AND w.is_operator
WHERE w.device = $device AND w.category IN ('gemm', 'conv', 'attention') GROUP BY ALL ORDER BY ns DESC

-- name: vendor
SELECT r.vendor, d.compute_major FROM recording r LEFT JOIN devices d ON true ORDER BY d.device = $device DESC LIMIT 1
