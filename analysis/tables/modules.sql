-- name: modules
SELECT m.* EXCLUDE (device, name_id), n.name
FROM modules m LEFT JOIN names n USING (name_id) WHERE m.device = $device ORDER BY m.module NULLS LAST
