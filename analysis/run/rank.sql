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

-- name: allocating
SELECT coalesce(sum(c.dur_ns), 0)
FROM named_runtime_calls c ASOF JOIN (SELECT host_start_ns, host_end_ns FROM steps WHERE device = ? AND counted) t ON c.start_ns >= t.host_start_ns
WHERE c.start_ns < t.host_end_ns AND regexp_matches(c.name, '^(cuda|hip)Malloc|^cuMem(Alloc|Create|Map)')

-- name: allocated
SELECT max(total_allocated_bytes) FROM allocations WHERE device_type <> 0 AND device = ?
