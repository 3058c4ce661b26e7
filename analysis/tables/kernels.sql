-- Every query speaks of one device.

-- name: kernels
SELECT n.name, k.category, k.tensor_cores, k.kind, k.launches, k.total_ns, k.min_ns, k.median_ns, k.max_ns,
    k.mean_blocks_per_sm AS blocks_per_sm, k.mean_occupancy_pct / 100 AS occupancy, k.bytes
FROM kernels k JOIN names n USING (name_id) WHERE k.device = $device

-- name: kernels_by_class
SELECT {key} AS name, CASE WHEN count(DISTINCT k.category) = 1 THEN min(k.category) ELSE 'several' END AS category,
    CASE WHEN count(DISTINCT k.tensor_cores) = 1 THEN min(k.tensor_cores) ELSE 'mixed' END AS tensor_cores, count(*) AS names,
    sum(k.launches)::BIGINT AS launches, sum(k.total_ns)::BIGINT AS total_ns, min(k.min_ns) AS min_ns, max(k.max_ns) AS max_ns,
    sum(k.total_ns) FILTER (k.tensor_cores IN {used})::BIGINT AS tensor_core_ns
FROM kernels k WHERE k.device = $device GROUP BY 1

-- name: kernels_by_operator
SELECT coalesce(n.name, 'no operator known') AS name, l.* EXCLUDE (device, by_shape, name_id)
FROM launched l LEFT JOIN names n USING (name_id) WHERE l.device = $device AND l.by_shape = $by_shape

-- name: kernel_durations
-- Bins have equal widths, or equal ratios if durations differ so much that nearly all would be in the first bin.
WITH d AS (SELECT greatest(dur_ns, 1) / 1e3 AS us FROM window_gpu_ops WHERE device = $device AND starts_in_window AND name = $name),
    s AS (SELECT max(us) > $wide * min(us) AS ratios FROM d),
    v AS (SELECT CASE WHEN ratios THEN ln(us) ELSE us END AS value, ratios FROM d, s),
    r AS (SELECT min(value) AS low, greatest(max(value) - min(value), 0.001) / $bins AS width FROM v),
    b AS (SELECT least(floor((value - low) / width), $bins - 1)::INTEGER AS bin, low, width, ratios FROM v, r),
    e AS (SELECT low + bin * width AS low, low + (bin + 1) * width AS high, ratios FROM b)
SELECT CASE WHEN ratios THEN exp(low) ELSE low END AS low_us, CASE WHEN ratios THEN exp(high) ELSE high END AS high_us, count(*) AS launches
FROM e GROUP BY ALL ORDER BY 1
