-- name: kernels
SELECT category, kind, sum(total_ns)::BIGINT AS ns, sum(launches)::BIGINT AS launches, sum(sm_efficiency_ns) AS sm_ns,
    sum(total_ns) FILTER (tensor_cores = 'unknown') AS undecided_ns,
    sum(mean_occupancy_pct * total_ns) / sum(total_ns) FILTER (mean_occupancy_pct IS NOT NULL) AS occupancy_pct,
    sum(occupancy_unseen_ns) AS occupancy_unseen_ns
FROM kernels
WHERE device = ?
GROUP BY category, kind
ORDER BY ns DESC

-- name: allocated
SELECT max(total_allocated_bytes) FROM allocations WHERE device_type <> 0 AND device = ?

-- name: waits
SELECT step, owner, cause, sum(end_ns - start_ns)::BIGINT AS ns
FROM gaps WHERE device = ? AND step IS NOT NULL GROUP BY ALL
