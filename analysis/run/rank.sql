-- name: kernels
SELECT category, kind, sum(total_ns)::BIGINT AS ns, sum(launches)::BIGINT AS launches, sum(sm_efficiency_ns) AS sm_ns,
    sum(total_ns) FILTER (tensor_cores = 'unknown') AS undecided_ns,
    sum(mean_occupancy_pct * total_ns) / sum(total_ns) FILTER (mean_occupancy_pct IS NOT NULL) AS occupancy_pct,
    sum(occupancy_unseen_ns) AS occupancy_unseen_ns
FROM kernels
WHERE device = ?
GROUP BY category, kind
ORDER BY ns DESC

-- name: ledger
SELECT owner, cause, ns, unprofiled_ns_per_step
FROM causes
WHERE device = ? AND (ns > 0 OR unprofiled_ns_per_step > 0)
ORDER BY ns DESC

-- name: copies_and_communication
SELECT coalesce(sum(total_ns) FILTER (kind = 'memcpy' AND NOT regexp_matches(name, $within)), 0),
    coalesce(sum(total_ns) FILTER (kind = 'memcpy' AND contains(name, 'Pageable')), 0),
    coalesce(sum(total_ns) FILTER (category = 'communication'), 0)
FROM kernels JOIN names USING (name_id)
WHERE device = $device

-- name: resident
-- of what runs on the GPU's own units in counted steps: kernels outside graphs that start while something else runs, whose dispatch nothing waits for; the sum
-- of all kernels; fills and copies within the GPU that nothing runs beside, and what they take
SELECT count(*) FILTER (kind = 'kernel' AND launched = 1 AND beside), coalesce(sum(dur_ns) FILTER (kind = 'kernel'), 0),
    count(*) FILTER (kind <> 'kernel' AND launched = 1 AND NOT beside), coalesce(sum(dur_ns) FILTER (kind <> 'kernel' AND NOT beside), 0)
FROM (
    SELECT gpu_op_id, kind, g.dur_ns, if(graph_id IS NULL, coalesce(c.gpu_ops, 1), 2) AS launched,
        g.start_ns < coalesce(max(g.start_ns + g.dur_ns) OVER (ORDER BY g.start_ns, gpu_op_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS beside
    FROM gpu_ops g JOIN names n ON n.name_id = g.name_id LEFT JOIN runtime_calls c USING (call_id)
    WHERE g.device = $device AND (kind IN ('kernel', 'memset') OR kind = 'memcpy' AND regexp_matches(name, $within))
) JOIN gpu_op_steps USING (gpu_op_id)
WHERE step IN (SELECT step FROM steps WHERE device = $device AND counted)

-- name: allocating
SELECT coalesce(sum(c.dur_ns), 0)
FROM named_runtime_calls c ASOF JOIN (SELECT host_start_ns, host_end_ns FROM steps WHERE device = ? AND counted) t ON c.start_ns >= t.host_start_ns
WHERE c.start_ns < t.host_end_ns AND regexp_matches(c.name, '^(cuda|hip)Malloc|^cuMem(Alloc|Create|Map)')

-- name: allocated
SELECT max(total_allocated_bytes) FROM allocations WHERE device_type <> 0 AND device = ?
