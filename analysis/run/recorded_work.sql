-- name: ledger
SELECT owner, cause, ns, unprofiled_ns_per_step
FROM causes
WHERE device = ? AND (ns > 0 OR unprofiled_ns_per_step > 0)
ORDER BY ns DESC

-- name: operations_range
-- When the first operation was launched (NULL if its launch is not in the recording) and when it began; when the last ended.
SELECT min_by(c.start_ns, g.start_ns), min(g.start_ns), max(g.start_ns + g.dur_ns)
FROM gpu_ops g LEFT JOIN runtime_calls c USING (call_id)
WHERE g.device = ?

-- name: copies_and_communication
SELECT coalesce(sum(total_ns) FILTER (kind = 'memcpy' AND NOT list_contains($within::INTEGER[], name_id)), 0),
    coalesce(sum(total_ns) FILTER (kind = 'memcpy' AND contains(name, 'Pageable')), 0),
    coalesce(sum(total_ns) FILTER (category = 'communication'), 0)
FROM kernels JOIN names USING (name_id)
WHERE device = $device

-- name: resident
-- Operations on the GPU's own units in counted steps: the number of kernels outside graphs that start while another operation runs, so that nothing waits for
-- their dispatch; the time of all kernels; the number and time of fills and copies within the GPU that run alone.
-- Both tables are in order of start with one row per operation. They are read once in parallel, so more operations need no more memory. Each IN with a subquery
-- is an output column and not a condition, because a condition becomes a join that may load all operations to look up the few values.
WITH running AS (
    SELECT kind = 'kernel' AS is_kernel, start_ns, dur_ns, call_id, graph_id, step, max(start_ns + dur_ns) OVER (ROWS UNBOUNDED PRECEDING) AS reached_ns
    FROM gpu_ops POSITIONAL JOIN (SELECT step FROM gpu_op_steps)
    WHERE device = $device AND (kind IN ('kernel', 'memset') OR kind = 'memcpy' AND list_contains($within::INTEGER[], name_id))
), resident AS (
    SELECT is_kernel, dur_ns, start_ns < coalesce(lag(reached_ns) OVER (), 0) AS beside,
        graph_id IS NULL AND NOT coalesce(call_id IN (SELECT call_id FROM runtime_calls WHERE gpu_ops > 1), false) AS launched,
        step IN (SELECT step FROM steps WHERE device = $device AND counted) AS counted
    FROM running
)
SELECT count(*) FILTER (is_kernel AND launched AND beside), coalesce(sum(dur_ns) FILTER (is_kernel), 0),
    count(*) FILTER (NOT is_kernel AND launched AND NOT beside), coalesce(sum(dur_ns) FILTER (NOT is_kernel AND NOT beside), 0)
FROM resident
WHERE counted

-- name: allocating
SELECT coalesce(sum(c.dur_ns), 0)
FROM named_runtime_calls c ASOF JOIN (SELECT host_start_ns, host_end_ns FROM steps WHERE device = ? AND counted) t ON c.start_ns >= t.host_start_ns
WHERE c.start_ns < t.host_end_ns AND regexp_matches(c.name, '^(cuda|hip)Malloc|^cuMem(Alloc|Create|Map)')

-- name: loading_operators
-- Operators recorded inside the loader's annotation on the launching thread, if the loop loads its batches itself.
WITH loading AS (
    SELECT thread_id, start_ns, start_ns + dur_ns AS end_ns FROM cpu_ops WHERE list_contains($loading::INTEGER[], name_id)
)
SELECT count(*)
FROM (SELECT thread_id, start_ns FROM cpu_ops WHERE kind = 'op') o
ASOF JOIN loading l ON l.thread_id = o.thread_id AND o.start_ns >= l.start_ns
ASOF JOIN (SELECT host_start_ns, host_end_ns FROM steps WHERE device = $device AND counted) t ON o.start_ns >= t.host_start_ns
WHERE o.start_ns < l.end_ns AND o.start_ns < t.host_end_ns
