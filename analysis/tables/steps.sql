-- name: owners
-- Lost time of counted steps has a cause (gaps). The rest of a step, and lost time of steps outside the steady window, only has an owner.
WITH placed AS (SELECT step, start_ns, end_ns, counted, (row_number() OVER (ORDER BY step) - 1) // $every AS place FROM steps WHERE device = $device AND end_ns > start_ns),
shown AS (SELECT step, start_ns, end_ns, counted FROM placed QUALIFY row_number() OVER (PARTITION BY place ORDER BY end_ns - start_ns DESC, step) = 1),
lost AS (
    SELECT g.step, g.owner, g.cause, sum(g.end_ns - g.start_ns) AS ns
    FROM gaps g JOIN shown s USING (step) WHERE g.device = $device AND s.counted GROUP BY ALL
),
-- Candidate pieces for these steps, found with a grid as wide as one step, so that millions of pieces are not compared with every step.
grid AS (SELECT greatest(median(end_ns - start_ns)::BIGINT, 1) AS cell FROM shown),
near AS (
    SELECT x.* FROM segments x, grid WHERE x.device = $device AND (x.end_ns - x.start_ns >= cell
        OR x.start_ns // cell IN (SELECT unnest(range(start_ns // cell - 1, end_ns // cell + 1)) FROM shown, grid))
),
owned AS (
    SELECT s.step, x.owner, NULL::VARCHAR AS cause, sum(least(x.end_ns, s.end_ns) - greatest(x.start_ns, s.start_ns)) AS ns
    FROM shown s JOIN near x ON x.start_ns < s.end_ns AND x.end_ns > s.start_ns
    WHERE NOT (s.counted AND x.owner IN {lost}) GROUP BY ALL
)
SELECT step, s.start_ns, s.end_ns, s.counted, owner, cause, ns / 1e6 AS ms
FROM (SELECT * FROM lost UNION ALL SELECT * FROM owned) JOIN shown s USING (step) WHERE ns > 0 ORDER BY step, owner, cause
