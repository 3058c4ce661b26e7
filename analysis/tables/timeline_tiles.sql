-- {rows} are slices, {long} those at least as long as a cell, {sums} the sums of the others by cell. {shift} converts cells to columns. {ends} is the end of a
-- slice. It is a plain column if possible, because the engine then skips blocks outside the range.

-- name: far
-- For columns at least as wide as a cell.
SELECT "column", lane, depth, arg_max(kind, busy_ns) AS kind, sum(busy_ns)::BIGINT AS busy_ns, sum(operations)::BIGINT AS operations FROM (
    SELECT (cell >> {shift}) - (({start} - {origin}) >> {level}) AS "column", lane, depth, kind, sum(busy_ns) AS busy_ns, sum(operations) AS operations
    FROM {sums} WHERE {of_device} AND cell >= ({start} - {origin}) // {cell} AND cell < ({end} - {origin}) // {cell} GROUP BY ALL
    UNION ALL
    SELECT (start_ns - {start}) >> {level} AS "column", lane, depth, kind, sum(dur_ns) AS busy_ns, count(*) AS operations
    FROM {long} WHERE {of_device} AND dur_ns >= {cell} AND dur_ns < 1::BIGINT << {level} AND start_ns >= {start} AND start_ns < {end} GROUP BY ALL
) GROUP BY ALL ORDER BY "column", lane, depth

-- name: near
SELECT "column", lane, depth, arg_max(kind, busy_ns) AS kind, sum(busy_ns)::BIGINT AS busy_ns, sum(operations)::BIGINT AS operations FROM (
    SELECT (start_ns - {start}) >> {level} AS "column", lane, depth, kind, sum(dur_ns) AS busy_ns, count(*) AS operations
    FROM {rows} WHERE {of_device} AND dur_ns < 1::BIGINT << {level} AND start_ns >= {start} AND start_ns < {end} GROUP BY ALL
) GROUP BY ALL ORDER BY "column", lane, depth

-- name: long_slices
SELECT start_ns - {origin} AS start_ns, dur_ns, id, name_id, lane, depth, kind FROM {long}
WHERE {of_device} AND dur_ns >= greatest({cell}, {least}) AND start_ns < {end} AND start_ns + dur_ns > {start}
ORDER BY dur_ns DESC, start_ns, id LIMIT {most}

-- name: short_slices
-- A short slice that touches the tile begins less than a cell before it.
SELECT start_ns - {origin} AS start_ns, dur_ns, id, name_id, lane, depth, kind FROM {rows}
WHERE {of_device} AND dur_ns < {cell} AND dur_ns >= {least} AND start_ns > {start} - {cell} AND start_ns < {end}
    AND ({ends} > {start} OR start_ns >= {start})
ORDER BY dur_ns DESC, start_ns, id LIMIT {most}
