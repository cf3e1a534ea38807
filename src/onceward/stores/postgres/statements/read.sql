-- read: the records of these ids, one row per id, and the time.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, {now}) AS now
)
SELECT clock.now, asked.id, record.*
FROM clock CROSS JOIN unnest($2::bytea[]) AS asked (id) LEFT JOIN LATERAL (
    SELECT xmin AS version, {columns} FROM {schema}onceward_records WHERE id = asked.id LIMIT 1
) AS record ON true
