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
SELECT coalesce(sum(total_ns) FILTER (kind = 'memcpy'), 0),
    coalesce(sum(total_ns) FILTER (kind = 'memcpy' AND contains(name, 'Pageable')), 0),
    coalesce(sum(total_ns) FILTER (category = 'communication'), 0)
FROM kernels JOIN names USING (name_id)
WHERE device = ?

-- name: beside_others
-- of the kernels in counted steps: those outside graphs that start while another one runs, whose dispatch nothing waits for, and the sum of all
SELECT count(*) FILTER (launched = 1 AND start_ns < until_ns), coalesce(sum(dur_ns), 0) FROM (
    SELECT gpu_op_id, g.start_ns, g.dur_ns, if(graph_id IS NULL, coalesce(c.gpu_ops, 1), 2) AS launched,
        max(g.start_ns + g.dur_ns) OVER (ORDER BY g.start_ns, gpu_op_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS until_ns
    FROM gpu_ops g LEFT JOIN runtime_calls c USING (call_id) WHERE g.device = $device AND g.kind = 'kernel'
) JOIN gpu_op_steps USING (gpu_op_id)
WHERE step IN (SELECT step FROM steps WHERE device = $device AND counted)

-- name: allocating
SELECT coalesce(sum(c.dur_ns), 0)
FROM named_runtime_calls c ASOF JOIN (SELECT host_start_ns, host_end_ns FROM steps WHERE device = ? AND counted) t ON c.start_ns >= t.host_start_ns
WHERE c.start_ns < t.host_end_ns AND regexp_matches(c.name, '^(cuda|hip)Malloc|^cuMem(Alloc|Create|Map)')

-- name: allocated
SELECT max(total_allocated_bytes) FROM allocations WHERE device_type <> 0 AND device = ?
