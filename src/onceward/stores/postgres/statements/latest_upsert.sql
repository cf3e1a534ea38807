-- latest_upsert: write the new states of entities that still have the order that was read, or still none. In the order
-- of their ids, so that two batches never deadlock. Returns how many were written.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest($1::bytea[], $2::text[], $3::text[], $4::bytea[], $5::bytea[], $6::bytea[])
        AS one (id, scope, entity, ordering, value, met)
), moved AS (
    INSERT INTO {schema}onceward_latest AS mine (id, scope, entity, ordering, value, updated_at, expires_at)
    SELECT id, scope, entity, ordering, value, $7::bigint, CASE WHEN value IS NULL THEN $8::bigint END
    FROM given ORDER BY id
    ON CONFLICT (id) DO UPDATE SET
        ordering = excluded.ordering, value = excluded.value,
        updated_at = excluded.updated_at, expires_at = excluded.expires_at
    WHERE mine.min_reader <= {reader} AND (mine.id, mine.ordering) IN (SELECT id, met FROM given WHERE met IS NOT NULL)
    RETURNING 1
)
SELECT count(*) FROM moved
