-- These statements run when a recording is opened as part of a run. {schema} is new and empty, {derived} is the recording's derived file, {summed} the file of its sums.

-- name: begin
CREATE SCHEMA {schema};
CREATE TABLE {schema}.comm_causes AS SELECT * FROM {derived}.causes LIMIT 0;
COMMENT ON TABLE {schema}.comm_causes IS 'Exposed communication by cause, as the ranks of the run tell it together';
CREATE TABLE {schema}.comm_gaps AS SELECT * FROM {derived}.gaps LIMIT 0;
COMMENT ON TABLE {schema}.comm_gaps IS 'The pieces of gaps that are exposed communication, cut by these causes';

-- name: cause
INSERT INTO {schema}.comm_causes (device, owner, cause, ns, unprofiled_ns_per_step) VALUES (?, 'exposed_comm', ?, ?, ?)

-- name: pieces
-- One device at a time: without an equality condition, the engine joins the ranges by sorting. With one, it compares all pairs.
INSERT INTO {schema}.comm_gaps
SELECT g.* REPLACE (greatest(g.start_ns, p.start_ns) AS start_ns, least(g.end_ns, p.end_ns) AS end_ns, $cause AS cause,
    CASE WHEN $evidence IS NULL THEN g.confidence ELSE 'high' END AS confidence, coalesce($evidence, g.evidence) AS evidence)
FROM (SELECT * FROM {derived}.gaps WHERE device = $device AND owner = 'exposed_comm') g
    JOIN (SELECT unnest($starts::BIGINT[]) AS start_ns, unnest($ends::BIGINT[]) AS end_ns) p
    ON g.start_ns < p.end_ns AND g.end_ns > p.start_ns
ORDER BY start_ns

-- name: views
CREATE TABLE {schema}.comm_sums AS {sums};
COMMENT ON TABLE {schema}.comm_sums IS 'The rows of lane_sums that these pieces make';
CREATE TABLE {schema}.comm_long AS {long};
COMMENT ON TABLE {schema}.comm_long IS 'The rows of long_slices that these pieces make';
CREATE VIEW {schema}.gaps AS
    SELECT * FROM {derived}.gaps WHERE NOT (owner = 'exposed_comm' AND device IN (SELECT device FROM {schema}.comm_causes))
    UNION ALL BY NAME SELECT * FROM {schema}.comm_gaps;
CREATE VIEW {schema}.causes AS
    SELECT * FROM {derived}.causes WHERE NOT (owner = 'exposed_comm' AND device IN (SELECT device FROM {schema}.comm_causes))
    UNION ALL BY NAME SELECT * FROM {schema}.comm_causes;
CREATE VIEW {schema}.lane_sums AS
    SELECT * FROM {summed}.lane_sums
    WHERE source <> 'gaps' OR owner <> 'exposed_comm' OR device NOT IN (SELECT device FROM {schema}.comm_causes)
    UNION ALL BY NAME SELECT * FROM {schema}.comm_sums;
CREATE VIEW {schema}.long_slices AS
    SELECT * FROM {summed}.long_slices
    WHERE source <> 'gaps' OR owner <> 'exposed_comm' OR device NOT IN (SELECT device FROM {schema}.comm_causes)
    UNION ALL BY NAME SELECT * FROM {schema}.comm_long;
