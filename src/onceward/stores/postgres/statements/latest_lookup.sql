-- latest_lookup: the orders of these entities and the contents of these marks, in one snapshot, and its time.
-- Kinds of rows: 0 the time, 1 an entity, 2 an expired entity, 3 an entity written by a newer version, 4 a mark,
-- 5 a deleted entity.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, {now}) AS now
)
SELECT 0::smallint AS kind, NULL::bytea AS id, NULL::bytea AS said, now FROM clock
UNION ALL
SELECT CASE
        WHEN state.min_reader > {reader} THEN 3 WHEN state.expires_at <= clock.now THEN 2
        WHEN state.expires_at IS NOT NULL THEN 5 ELSE 1
    END::smallint, state.id, state.ordering, NULL
FROM clock CROSS JOIN unnest($2::bytea[]) AS asked (id) CROSS JOIN LATERAL (
    SELECT id, ordering, expires_at, min_reader FROM {schema}onceward_latest WHERE id = asked.id LIMIT 1
) AS state
UNION ALL
SELECT 4::smallint, mark.id, mark.content, NULL
FROM clock CROSS JOIN unnest($3::bytea[]) AS asked (id) CROSS JOIN LATERAL (
    SELECT id, content, expires_at FROM {schema}onceward_marks WHERE id = asked.id LIMIT 1
) AS mark
WHERE mark.expires_at > clock.now
