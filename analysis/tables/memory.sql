-- name: history
SELECT time_ns, bytes, total_allocated_bytes AS allocated, total_reserved_bytes AS reserved FROM allocations
WHERE coalesce(device_type, 1) <> 0 AND coalesce(device, $device) = $device ORDER BY time_ns

-- name: driver_calls
SELECT c.name AS call, count(*) AS calls, sum(c.dur_ns) / 1e6 AS ms
FROM named_runtime_calls c JOIN windows w ON w.device = $device AND c.start_ns >= w.start_ns AND c.start_ns < w.end_ns
WHERE regexp_matches(c.name, '^(cuda|hip|cu)(Malloc|Free|Mem(Alloc|Free|Map|Unmap|Create))', 'i') AND NOT c.name ILIKE '%host%'
GROUP BY 1 ORDER BY ms DESC

-- name: holders
-- Memory allocated before the peak and not yet freed, by the outermost operator on the thread, because an inner operator only calls the allocator.
WITH live AS (
    SELECT address, arg_max(bytes, time_ns) AS bytes, max(time_ns) AS at, arg_max(thread_id, time_ns) AS thread_id
    FROM allocations WHERE coalesce(device_type, 1) <> 0 AND coalesce(device, $device) = $device AND time_ns <= $peak
    GROUP BY address HAVING arg_max(bytes, time_ns) > 0),
made AS (
    SELECT l.address, l.bytes, o.name FROM live l LEFT JOIN named_cpu_ops o
        ON o.thread_id = l.thread_id AND o.start_ns <= l.at AND o.start_ns + o.dur_ns > l.at AND o.name NOT LIKE 'ProfilerStep#%'
    QUALIFY row_number() OVER (PARTITION BY l.address ORDER BY o.start_ns) = 1)
SELECT coalesce(replace(name, 'autograd::engine::evaluate_function: ', ''), 'outside any operator') AS operator, sum(bytes)::DOUBLE AS bytes, count(*) AS allocations
FROM made GROUP BY 1 ORDER BY bytes DESC, operator
