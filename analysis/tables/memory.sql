-- name: history
SELECT time_ns, bytes, total_allocated_bytes AS allocated, total_reserved_bytes AS reserved FROM allocations
WHERE coalesce(device_type, 1) <> 0 AND coalesce(device, $device) = $device ORDER BY time_ns

-- name: driver_calls
SELECT c.name AS call, count(*) AS calls, sum(c.dur_ns) / 1e6 AS ms
FROM named_runtime_calls c JOIN windows w ON w.device = $device AND c.start_ns >= w.start_ns AND c.start_ns < w.end_ns
WHERE regexp_matches(c.name, '^(cuda|hip|cu)(Malloc|Free|Mem(Alloc|Free|Map|Unmap|Create))', 'i') AND NOT c.name ILIKE '%host%'
GROUP BY 1 ORDER BY ms DESC
